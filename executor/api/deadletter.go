package api

import "time"

// The kinds of dead letters.
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
