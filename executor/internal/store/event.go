package store

import (
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// EventCause is one occurrence that an operator event may report to an account's operators. The
// store keeps it until an event reports it, or until it is decided that no event will.
type EventCause struct {
	ID          string // unique; names the occurrence, its subject and, if it can recur, its time
	AccountID   string
	Kind        string    // the kind of event that reports it, such as execution.failed
	WorkflowID  string    // the workflow concerned; "" means none
	ExecutionID string    // the execution concerned; "" means none
	Queue       string    // the queue concerned; "" means none
	At          time.Time // when it happened
	Text        string    // description for people
}

// Event is an operator event that starts, or has started, an execution. The store holds everything
// needed for the start message before it is published. After a crash, another process therefore
// publishes the same message.
type Event struct {
	ID          string // the delivery ID of the execution that the event starts
	AccountID   string
	Kind        string // the kind of its causes, such as execution.failed
	WorkflowID  string // the workflow that it starts
	NodeID      string // the node at which it starts
	Input       string // the execution's input as JSON text
	DecidedAt   time.Time
	PublishedAt time.Time // zero until published, or until the workflow is found deleted
}

// OngoingCondition is an ongoing state whose beginning an operator event has reported. Kind is the
// kind of that event, and Subject names the object in that state.
type OngoingCondition struct {
	AccountID, Kind, Subject string

	Since time.Time // when the state began
}

// OngoingConditionChange is the beginning or the end of a condition.
type OngoingConditionChange struct {
	OngoingCondition
	// Cause is the event cause of the change; nil means that no event reports it. The store keeps
	// it only if the change takes effect: a new condition begins, or an existing one ends.
	Cause *EventCause
	Ended bool // whether the condition has ended; if so, Since is ignored
}

// Limits of operator events.
const (
	// MaxCausesPerDecision is the maximum number of causes that one decision considers.
	MaxCausesPerDecision = 5_000
	// EventRetention is how long published events are kept.
	EventRetention = time.Hour
)

// Failure is an execution that has failed, because of a report in a batch or because its start
// message was lost.
type Failure struct {
	ExecutionID, AccountID, WorkflowID, Queue string

	At    time.Time // when the execution ended
	Error string    // why it failed
}

// Failures returns a Failure for each update of a batch that makes an execution fail. current holds
// the states of the executions before the batch, by ID.
func Failures(current map[string]CurrentState, updates []StateUpdate) (failures []Failure) {
	for _, m := range updates {
		if m.Status == execution.Failed {
			failures = append(failures, failureOf(m.ID, current[m.ID], m.FinishedAt, m.Error))
		}
	}
	return failures
}

// LostExecutionFailures returns a failure with the given reason for each lost execution that was
// ended.
func LostExecutionFailures(
	current map[string]CurrentState, ended []string, at time.Time, reason string,
) (failures []Failure) {
	for _, id := range ended {
		failures = append(failures, failureOf(id, current[id], at, reason))
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
