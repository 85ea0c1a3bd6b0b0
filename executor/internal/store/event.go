package store

import (
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// EventCause is one occurrence that an event reports to an account's operators. It is kept until an
// event contains it, or until no event will.
type EventCause struct {
	ID          string // what happened to what, and when, if that can happen again; unique
	AccountID   string
	Kind        string    // the kind of the events, such as execution.failed
	WorkflowID  string    // the workflow that it is about; "" means none
	ExecutionID string    // the execution that it is about; "" means none
	Queue       string    // the queue that it is about; "" means none
	At          time.Time // when it happened
	Text        string    // what happened, for people
}

// Event is an operator event whose execution is decided: everything that its start consists of is
// stored before it is published, so that a process that repeats the publication after a crash
// publishes the same start.
type Event struct {
	ID          string // its delivery ID
	AccountID   string
	Kind        string // the kind of its causes, such as execution.failed
	WorkflowID  string // the workflow that it starts
	NodeID      string // the node at which it starts
	Input       string // the execution's input: a JSON text
	DecidedAt   time.Time
	PublishedAt time.Time // zero until its start is published, or its workflow is found to be gone
}

// Condition is a state whose beginning an event has reported, and that has not ended. Kind is the
// kind of that event, Subject names what is in the state.
type Condition struct {
	AccountID, Kind, Subject string

	Since time.Time // when the state began
}

// ConditionChange is the beginning or the end of a condition.
type ConditionChange struct {
	Condition
	// Cause is the event cause of the change. It is stored only if the state really changes: a
	// condition begins that did not exist, or ends that did. nil means that no event reports the
	// change.
	Cause *EventCause
	Ended bool // whether the condition has ended; Since is ignored then
}

// Bounds of the operator events.
const (
	// MaxEventCauses is the maximum number of causes that one decision considers.
	MaxEventCauses = 5_000
	// EventMemory is the time for which decided events are kept.
	EventMemory = time.Hour
)

// Failure is an execution that a batch has ended as failed.
type Failure struct {
	ExecutionID, AccountID, WorkflowID, Queue string

	At    time.Time // when the execution ended
	Error string    // why it failed
}

// Failures returns the failures among the moves of a batch.
func Failures(standing map[string]CurrentState, moves []StateUpdate) (failures []Failure) {
	for _, m := range moves {
		if m.Status == execution.Failed {
			failures = append(failures, failureOf(m.ID, standing[m.ID], m.FinishedAt, m.Error))
		}
	}
	return failures
}

// LostFailures returns the failures of executions that were ended with a reason.
func LostFailures(
	standing map[string]CurrentState, ended []string, at time.Time, reason string,
) (failures []Failure) {
	for _, id := range ended {
		failures = append(failures, failureOf(id, standing[id], at, reason))
	}
	return failures
}

func failureOf(id string, state CurrentState, at time.Time, why string) Failure {
	return Failure{
		ExecutionID: id,
		AccountID:   state.AccountID,
		WorkflowID:  state.WorkflowID,
		Queue:       state.Queue,
		At:          at,
		Error:       why,
	}
}
