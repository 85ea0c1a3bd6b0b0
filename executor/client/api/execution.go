package api

import (
	"encoding/json"
	"time"
)

// States of an execution.
const (
	StatusQueued    = "queued"
	StatusRunning   = "running"
	StatusSucceeded = "succeeded" // final
	StatusFailed    = "failed"    // final
	StatusRejected  = "rejected"  // final: the workflow was inactive
	StatusCanceled  = "canceled"  // final: an operator canceled the execution
)

// Sources of an execution.
const (
	SourceWebhook = "webhook" // a request to the webhook
	SourceRerun   = "rerun"   // an operator: rerun, replay or requeue
	SourceEvent   = "event"   // an operator event
)

// Execution is the record of one execution.
type Execution struct {
	// ExecutionID identifies the execution. If a webhook request started it, the response to the
	// sender contained this ID.
	ExecutionID string `json:"executionId" format:"uuid"`
	// AccountID is the ID of the account that owned the workflow when the execution was accepted.
	AccountID string `json:"accountId" example:"acme"`
	// WorkflowID is the ID of the workflow that the execution runs.
	WorkflowID string `json:"workflowId" example:"orders"`
	// NodeID is the ID of the trigger node that received the request.
	NodeID     string    `json:"nodeId" example:"webhook"`
	Source     string    `json:"source" enum:"webhook,rerun,event" doc:"What started it: a request to the webhook, an operator (rerun, replay, requeue), or an operator event of the account."`
	Status     string    `json:"status" enum:"queued,running,succeeded,failed,rejected,canceled" doc:"queued, then running, then succeeded, failed or canceled; or rejected. The last four are final."`
	DeliveryID string    `json:"deliveryId,omitempty" doc:"The sender's delivery ID. Absent: the request had none."`
	Sender     string    `json:"sender,omitempty" doc:"The preset of the sender that the node had when the request arrived. Absent: the node had no sender." example:"stripe"`
	Verified   bool      `json:"verified" doc:"Whether the sender's signature or secret was verified."`
	RerunOf    string    `json:"rerunOf,omitempty" doc:"The ID of the execution that this one reruns."`
	ReplayOf   string    `json:"replayOf,omitempty" doc:"The ID of the execution that this one replays. It has the same body, headers and query."`
	RequeuedAs string    `json:"requeuedAs,omitempty" doc:"The ID of the execution that a requeue started in place of this one."`
	AcceptedAt time.Time `json:"acceptedAt" doc:"When the request was answered, or when an operator started the execution."`
	// RecordedAt is when the executor began to write the record.
	RecordedAt time.Time `json:"recordedAt"`
	StartedAt  time.Time `json:"startedAt,omitzero" doc:"When the first attempt started. Absent until a runner has reported it."`
	FinishedAt time.Time `json:"finishedAt,omitzero" doc:"When the execution ended. Absent until it has succeeded, failed or been canceled."`
	// CancelRequestedAt is when an operator canceled the execution. Zero means never.
	CancelRequestedAt time.Time `json:"cancelRequestedAt,omitzero" doc:"When an operator canceled the execution. If a runner has it, the runner is asked to end it, and it may still succeed or fail. Absent: it was not canceled."`
	DismissedAt       time.Time `json:"dismissedAt,omitzero" doc:"When the execution was removed from the list of dead letters. Absent: it was not removed."`
	ContentType       string    `json:"contentType" doc:"The Content-Type of the body, as the sender sent it."`
	BodyBytes         int64     `json:"bodyBytes" doc:"The length of the body in bytes. If the request was rejected before its body was read, it is the declared length."`
	Duplicates        int64     `json:"duplicates" doc:"The number of repeated deliveries that were recognised and did not start an execution."`
	Queue             string    `json:"queue" doc:"The queue from which runners receive the execution." example:"default"`
	Attempts          int       `json:"attempts" doc:"The number of the latest attempt that a runner has reported, from 1. 0: no attempt was reported."`
	StreamSequence    uint64    `json:"streamSequence" doc:"The sequence of its message in the stream EXECUTIONS, or in the own stream of its queue."`
}

// ExecutionDetail holds an execution's record, its request, and the result that the runner
// reported. The request is read from the stream.
type ExecutionDetail struct {
	Execution
	Input        json.RawMessage     `json:"input" doc:"The workflow's input, which is any JSON value. null: the request was rejected before its body was read, or the input has expired (see inputExpired)."`
	InputExpired bool                `json:"inputExpired,omitempty" doc:"Whether the stream no longer has the message; then the input, the headers and the query are lost. Absent means false."`
	OrderKey     string              `json:"orderKey,omitempty" doc:"The order key of the execution: executions of the workflow with the same key run one after the other in each group of runners. Absent: the execution has no order, or the input has expired." example:"4711"`
	StoredAt     time.Time           `json:"storedAt,omitzero" doc:"When the stream stored the message, which is before the request was answered. Absent if the input has expired."`
	Headers      map[string][]string `json:"headers" doc:"The headers of the request, without secrets."`
	Query        map[string][]string `json:"query" doc:"The query parameters of the request, without the token."`
	Error        *string             `json:"error" doc:"Why the execution failed, what its runner reported when it was canceled, or the code with which the request was rejected. null: none of these, as for an execution that was canceled before a runner received it."`
	Output       json.RawMessage     `json:"output" doc:"What the handler returned, which is any JSON value. null: it returned nothing."`
}

// ReplayRejected selects rejected executions to replay.
type ReplayRejected struct {
	Status     string    `json:"status" enum:"rejected" doc:"The constant rejected: the call replays rejected executions only."`
	AccountID  string    `json:"accountId,omitempty" minLength:"1" doc:"Selects the executions of this account."`
	WorkflowID string    `json:"workflowId,omitempty" minLength:"1" doc:"Selects the executions of this workflow."`
	Since      time.Time `json:"since,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"Selects the executions that were accepted at this time or later."`
	Until      time.Time `json:"until,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"Selects the executions that were accepted before this time."`
}

// Replayed is the result of a call that replays rejected executions.
type Replayed struct {
	Replayed int    `json:"replayed" doc:"The number of executions that this call started."`
	Left     []Left `json:"left,omitempty" nullable:"false" doc:"The executions that could not be replayed. Absent: there are none."`
	More     bool   `json:"more,omitempty" doc:"Whether there may be more; then repeat the call. Absent means false."`
}

// Left counts the executions or dead letters that a bulk call skipped for one reason, which Code
// names.
type Left struct {
	Code string `json:"code" doc:"The error code, which is the one that the same call for this execution alone returns." example:"input_expired"`
	// Count is the number of executions or dead letters that were skipped for this reason.
	Count int `json:"count"`
}

// CancelExecutions selects executions to cancel, either by ID or by workflow.
type CancelExecutions struct {
	IDs        []string  `json:"ids,omitzero" nullable:"false" maxItems:"10000" doc:"The IDs of executions. An execution that has ended is ignored. It cannot be combined with the other fields."`
	WorkflowID string    `json:"workflowId,omitempty" minLength:"1" doc:"Selects the executions of this workflow that have not ended."`
	Status     string    `json:"status,omitempty" enum:"queued,running" doc:"With workflowId: selects the executions that have this status. Absent: those that are queued or running. An execution that begins meanwhile is asked to end."`
	Since      time.Time `json:"since,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"With workflowId: selects the executions that were accepted at this time or later."`
	Until      time.Time `json:"until,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"With workflowId: selects the executions that were accepted before this time."`
}

// Canceled is the result of a call that cancels executions.
type Canceled struct {
	Canceled  int  `json:"canceled" doc:"The number of executions that this call has ended. No runner starts them any more."`
	Requested int  `json:"requested" doc:"The number of executions that a runner has already received. The runner ends them, unless they end by themselves first."`
	More      bool `json:"more,omitempty" doc:"Whether there may be more; then repeat the call. Absent means false."`
}
