package api

import "time"

// The kinds of dead letters.
const (
	DeadLetterFailed      = "failed"
	DeadLetterUndecodable = "undecodable"
)

// DeadLetter is what nobody works on any more: an execution that failed and was not
// requeued, or a message that could not be decoded.
type DeadLetter struct {
	ID             string    `json:"id" doc:"failed: the execution's ID. undecodable: message- and the stream sequence."`
	Kind           string    `json:"kind" enum:"failed,undecodable" doc:"failed: its runners gave it up; it can be requeued. undecodable: a message that is not what its subject says; it cannot."`
	At             time.Time `json:"at" doc:"When it was accepted, or the message stored. The list's order."`
	FailedAt       time.Time `json:"failedAt,omitzero" doc:"Absent: undecodable."`
	Reason         string    `json:"reason" doc:"Why it failed, or could not be decoded."`
	StreamSequence uint64    `json:"streamSequence" doc:"Of the message in the stream EXECUTIONS."`
	Subject        string    `json:"subject" doc:"Of the message."`
	ExecutionID    string    `json:"executionId,omitempty" format:"uuid" doc:"Absent: undecodable."`
	WorkflowID     string    `json:"workflowId,omitempty" doc:"Absent: undecodable; its subject may name one." example:"orders"`
	NodeID         string    `json:"nodeId,omitempty" doc:"Absent: undecodable." example:"webhook"`
}
