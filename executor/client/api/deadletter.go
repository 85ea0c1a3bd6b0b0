package api

import "time"

// These are the kinds of dead letters.
const (
	DeadLetterFailed      = "failed"
	DeadLetterUndecodable = "undecodable"
	DeadLetterRefused     = "refused"
)

// DeadLetter is an execution that failed and was not requeued, or a message that could not be
// decoded or recorded.
type DeadLetter struct {
	ID             string    `json:"id" doc:"failed: the execution's ID. refused, undecodable: message-, or report- for a runner's report, and the stream sequence."`
	Kind           string    `json:"kind" enum:"failed,refused,undecodable" doc:"failed: its runners gave up; a requeue starts it again. refused: the database refused its contents; a requeue records it. undecodable: the message cannot be decoded as what its subject says; a requeue works only if this version can decode it."`
	At             time.Time `json:"at" doc:"When it was accepted, or the message stored. The list's order."`
	FailedAt       time.Time `json:"failedAt,omitzero" doc:"Only of failed."`
	Reason         string    `json:"reason" doc:"Why it failed, was refused, or could not be decoded."`
	StreamSequence uint64    `json:"streamSequence" doc:"Of the message in the stream EXECUTIONS, or PROGRESS when its subject is executions.progress.…"`
	Subject        string    `json:"subject" doc:"Of the message."`
	ExecutionID    string    `json:"executionId,omitempty" format:"uuid" doc:"Only of failed."`
	WorkflowID     string    `json:"workflowId,omitempty" doc:"Absent: undecodable; its subject may name one." example:"orders"`
	NodeID         string    `json:"nodeId,omitempty" doc:"Absent: undecodable." example:"webhook"`
}

// SelectDeadLetters selects dead letters by their IDs, or by a filter. An empty object selects all.
type SelectDeadLetters struct {
	IDs        []string  `json:"ids,omitzero" nullable:"false" maxItems:"10000" doc:"IDs of dead letters. What is none any more is passed over. Not together with the others."`
	AccountID  string    `json:"accountId,omitempty" minLength:"1" doc:"Only this account's; messages that were put aside belong to none."`
	WorkflowID string    `json:"workflowId,omitempty" minLength:"1" doc:"Only this workflow's."`
	Reason     string    `json:"reason,omitempty" minLength:"1" doc:"Only those whose reason has this text in it, in upper and lower case as it is there."`
	Since      time.Time `json:"since,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"Accepted then or later."`
	Until      time.Time `json:"until,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"Accepted before."`
}

// Requeued holds the number of dead letters that a call has requeued.
type Requeued struct {
	Requeued int    `json:"requeued" doc:"How many this call requeued; repeated, none twice."`
	Left     []Left `json:"left,omitempty" nullable:"false" doc:"Those that cannot be requeued: they stay on the list. Absent: none."`
	More     bool   `json:"more,omitempty" doc:"True: there may be others; repeat the call. Absent: false."`
}

// Dismissed holds the number of dead letters that a call has removed from the list.
type Dismissed struct {
	Dismissed int  `json:"dismissed" doc:"How many this call took off the list."`
	More      bool `json:"more,omitempty" doc:"True: there may be others; repeat the call. Absent: false."`
}
