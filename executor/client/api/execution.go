package api

import (
	"encoding/json"
	"time"
)

// These are the states of an execution.
const (
	StatusQueued    = "queued"
	StatusRunning   = "running"
	StatusSucceeded = "succeeded" // final
	StatusFailed    = "failed"    // final
	StatusRejected  = "rejected"  // final: its workflow was inactive
)

// These are the sources of an execution.
const (
	SourceWebhook = "webhook" // a request to the webhook
	SourceRerun   = "rerun"   // an operator: rerun, replay or requeue
)

// Execution is the record of one execution.
type Execution struct {
	// ExecutionID is the ID that the sender got in the answer.
	ExecutionID string `json:"executionId" format:"uuid"`
	// AccountID is the account of the workflow when the execution was accepted.
	AccountID string `json:"accountId" example:"acme"`
	// WorkflowID is the workflow that runs.
	WorkflowID string `json:"workflowId" example:"orders"`
	// NodeID is the trigger node that received the request.
	NodeID     string    `json:"nodeId" example:"webhook"`
	Source     string    `json:"source" enum:"webhook,rerun,event" doc:"What started it: a request to the webhook, an operator (rerun, replay, requeue), or an operator event of the account."`
	Status     string    `json:"status" enum:"queued,running,succeeded,failed,rejected,canceled" doc:"queued, then running, then succeeded, failed or canceled; or rejected. The last four are final."`
	DeliveryID string    `json:"deliveryId,omitempty" doc:"The sender's delivery ID. Absent: it sent none."`
	Sender     string    `json:"sender,omitempty" doc:"The preset of the sender that the node had. Absent: it had none." example:"stripe"`
	Verified   bool      `json:"verified" doc:"Whether the request was verified as the sender's."`
	RerunOf    string    `json:"rerunOf,omitempty" doc:"The execution that was run again."`
	ReplayOf   string    `json:"replayOf,omitempty" doc:"The execution whose original request it has once more: body, headers and query."`
	RequeuedAs string    `json:"requeuedAs,omitempty" doc:"The execution that a requeue started in its place."`
	AcceptedAt time.Time `json:"acceptedAt" doc:"When the request was answered, or an operator started it."`
	// RecordedAt is the time at which the executor began to write the record.
	RecordedAt time.Time `json:"recordedAt"`
	StartedAt  time.Time `json:"startedAt,omitzero" doc:"Absent until a runner reports that it started."`
	FinishedAt time.Time `json:"finishedAt,omitzero" doc:"Absent until it has succeeded, failed or been canceled."`
	// CancelRequestedAt is the time at which an operator asked to end the execution. Zero means
	// that none did.
	CancelRequestedAt time.Time `json:"cancelRequestedAt,omitzero" doc:"When an operator canceled it. While it runs, its end is asked for. Absent: nobody did."`
	DismissedAt       time.Time `json:"dismissedAt,omitzero" doc:"When it was taken off the dead letters. Absent: it was not."`
	ContentType       string    `json:"contentType" doc:"Of the body, as sent."`
	BodyBytes         int64     `json:"bodyBytes" doc:"Length of the body. Rejected before it was read: as declared."`
	Duplicates        int64     `json:"duplicates" doc:"How many repeats of its delivery were suppressed."`
	Queue             string    `json:"queue" doc:"The queue whose runners get it." example:"default"`
	Attempts          int       `json:"attempts" doc:"The number of the attempt that runs or ended it, as the runner reported it. 0: not known."`
	StreamSequence    uint64    `json:"streamSequence" doc:"Of its message in the stream EXECUTIONS."`
}

// ExecutionDetail is a record with the request from the stream and the runners' results.
type ExecutionDetail struct {
	Execution
	Input        json.RawMessage     `json:"input" doc:"The workflow's input: any JSON value. null: rejected, its body was not read; or see inputExpired."`
	InputExpired bool                `json:"inputExpired,omitempty" doc:"True: the stream no longer has the message, so input, headers and query are lost. Absent: false."`
	StoredAt     time.Time           `json:"storedAt,omitzero" doc:"When the stream stored the message, before the request was answered. Absent: inputExpired."`
	Headers      map[string][]string `json:"headers" doc:"Of the request, without secrets."`
	Query        map[string][]string `json:"query" doc:"Of the request, without the token."`
	Error        *string             `json:"error" doc:"Why it failed, or the code with which it was rejected. null: neither."`
	Output       json.RawMessage     `json:"output" doc:"What the run returned: any JSON value. null: nothing."`
}

// ReplayRejected selects the rejected executions to replay.
type ReplayRejected struct {
	Status     string    `json:"status" enum:"rejected" doc:"Says of itself what is replayed: rejected executions."`
	AccountID  string    `json:"accountId,omitempty" minLength:"1" doc:"Only this account's."`
	WorkflowID string    `json:"workflowId,omitempty" minLength:"1" doc:"Only this workflow's."`
	Since      time.Time `json:"since,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"Accepted then or later."`
	Until      time.Time `json:"until,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"Accepted before."`
}

// Replayed holds the number of executions that a call has replayed.
type Replayed struct {
	Replayed int    `json:"replayed" doc:"How many executions this call started."`
	Left     []Left `json:"left,omitempty" nullable:"false" doc:"Those that cannot be replayed. Absent: none."`
	More     bool   `json:"more,omitempty" doc:"True: there may be others; repeat the call. Absent: false."`
}

// Left is the number of executions that a bulk call left out for one reason.
type Left struct {
	Code string `json:"code" doc:"Why: the code that the same call for one answers." example:"input_expired"`
	// Count is the number of executions or dead letters.
	Count int `json:"count"`
}

// CancelExecutions says which executions are to be canceled.
type CancelExecutions struct {
	IDs        []string  `json:"ids,omitzero" nullable:"false" maxItems:"10000" doc:"IDs of executions. One that has ended is passed over. Not together with the others."`
	WorkflowID string    `json:"workflowId,omitempty" minLength:"1" doc:"All of this workflow that have not ended."`
	Since      time.Time `json:"since,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"Of these, accepted then or later."`
	Until      time.Time `json:"until,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"Of these, accepted before."`
}

// Canceled holds the number of executions that a call has canceled.
type Canceled struct {
	Canceled  int  `json:"canceled" doc:"How many this call has ended: no handler begins with them any more."`
	Requested int  `json:"requested" doc:"How many a runner was given already: it ends them, unless they end by themselves first."`
	More      bool `json:"more,omitempty" doc:"True: there may be others; repeat the call. Absent: false."`
}
