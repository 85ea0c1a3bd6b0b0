package api

import "time"

// Kinds of dead letters. DeadLetterFailed: the execution failed after its last attempt.
// DeadLetterUndecodable: the message does not have the format that its subject requires.
// DeadLetterRefused: the database refused the content of the message.
const (
	DeadLetterFailed      = "failed"
	DeadLetterUndecodable = "undecodable"
	DeadLetterRefused     = "refused"
)

// DeadLetter is an execution that failed and was not requeued, or a message that could not be
// decoded or recorded.
type DeadLetter struct {
	ID             string    `json:"id" doc:"The ID of the dead letter. Of kind failed, it is the execution's ID. Of the other kinds, it is the sequence of the message in its stream after the prefix message-, or report- for a report of a runner."`
	Kind           string    `json:"kind" enum:"failed,refused,undecodable" doc:"failed: the execution failed after its last attempt; a requeue starts it again. refused: the database refused the content of the message; a requeue records it. undecodable: the message does not have the format that its subject requires; a requeue works only if this version of hookstart can decode it."`
	At             time.Time `json:"at" doc:"When the execution was accepted, or the message was stored. The list is in this order."`
	FailedAt       time.Time `json:"failedAt,omitzero" doc:"When the execution failed. Only for the kind failed."`
	Reason         string    `json:"reason" doc:"Why the execution failed, or why the message was refused or could not be decoded."`
	StreamSequence uint64    `json:"streamSequence" doc:"The sequence of the message in the stream EXECUTIONS, in PROGRESS if its subject begins with executions.progress, or in the own stream of its queue."`
	Subject        string    `json:"subject,omitempty" doc:"The NATS subject of the message. Absent if it is not known: of an execution that failed in a queue that has ordered executions or a stream of its own."`
	ExecutionID    string    `json:"executionId,omitempty" format:"uuid" doc:"The ID of the execution. Only for the kind failed."`
	WorkflowID     string    `json:"workflowId,omitempty" doc:"The ID of the workflow. Absent if the message could not be decoded; its subject may contain the ID." example:"orders"`
	NodeID         string    `json:"nodeId,omitempty" doc:"The ID of the trigger node. Absent if the message could not be decoded." example:"webhook"`
}

// SelectDeadLetters selects dead letters, either by ID or by a filter. The zero value selects all
// of them.
type SelectDeadLetters struct {
	IDs        []string  `json:"ids,omitzero" nullable:"false" maxItems:"10000" doc:"The IDs of dead letters. An ID that is no longer on the list is ignored. It cannot be combined with the other fields."`
	AccountID  string    `json:"accountId,omitempty" minLength:"1" doc:"Selects the dead letters of this account. Messages that were refused or could not be decoded belong to no account."`
	WorkflowID string    `json:"workflowId,omitempty" minLength:"1" doc:"Selects the dead letters of this workflow."`
	Reason     string    `json:"reason,omitempty" minLength:"1" doc:"Selects the dead letters whose reason contains this text. Upper and lower case are distinguished."`
	Since      time.Time `json:"since,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"Selects the dead letters that were accepted at this time or later."`
	Until      time.Time `json:"until,omitzero" pattern:"^[1-9]" patternDescription:"a time after the year 1000" doc:"Selects the dead letters that were accepted before this time."`
}

// Requeued is the result of a call that requeues dead letters.
type Requeued struct {
	Requeued int    `json:"requeued" doc:"The number of dead letters that this call requeued. A repeated call requeues none of them again."`
	Left     []Left `json:"left,omitempty" nullable:"false" doc:"The dead letters that could not be requeued. They stay on the list. Absent: there are none."`
	More     bool   `json:"more,omitempty" doc:"Whether there may be more; then repeat the call. Absent means false."`
}

// Dismissed is the result of a call that removes dead letters from the list.
type Dismissed struct {
	Dismissed int  `json:"dismissed" doc:"The number of dead letters that this call removed from the list."`
	More      bool `json:"more,omitempty" doc:"Whether there may be more; then repeat the call. Absent means false."`
}
