package store

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// Events stores operator events, the causes that lead to them, and the conditions that events have
// reported and that still hold, such as a queue without runners. Package events writes them, and
// operate shows the conditions. The cause of a failed execution is stored when its report is
// recorded: see SetFailureCauseFunc.
type Events interface {
	// SetFailureCauseFunc sets the function that returns the event cause of a failed execution, or
	// nil if no event is wanted. Apply and EndLostExecutions call the function for each execution
	// that they end as failed, and store the cause in the same transaction, unless a cause with the
	// same ID exists. Call SetFailureCauseFunc before both of them, or not at all.
	SetFailureCauseFunc(cause func(ExecutionFailure) *EventCause)

	// DecideEvents replaces event causes with events, in one transaction. It calls decide with the
	// oldest causes, and with the events that earlier calls have decided since the given time
	// (inclusive). There are at most MaxCausesPerDecision causes, none of them from a group in
	// except. The events come oldest first, without their inputs. If there are no such causes,
	// DecideEvents does nothing.
	//
	// decide returns the events to store, and the IDs of the causes that are settled: those that
	// the events report, and those that no event will report. If an event's ID already exists, the
	// stored event is kept. Concurrent callers never receive the same causes. DecideEvents also
	// deletes published events that are older than EventRetention.
	DecideEvents(
		ctx context.Context, now, since time.Time, except []CauseGroup, decide func(
			causes []EventCause, decided []Event,
		) (events []Event, used []string),
	) error

	// HasEventCauses reports whether there are causes that DecideEvents has not settled yet.
	HasEventCauses(ctx context.Context) (bool, error)

	// UnpublishedEvents returns at most limit events that have not been published, oldest first. It
	// leaves out events that start one of the workflows in exceptWorkflows.
	UnpublishedEvents(ctx context.Context, exceptWorkflows []string, limit int) ([]Event, error)

	// MarkEventsPublished records that the events with the given IDs were published at the given
	// time.
	MarkEventsPublished(ctx context.Context, ids []string, at time.Time) error

	// OngoingConditions returns all ongoing conditions.
	OngoingConditions(ctx context.Context) ([]OngoingCondition, error)

	// ChangeOngoingConditions records, in one transaction, that conditions have begun or ended. If
	// two callers make the same change, its event cause is stored only once.
	ChangeOngoingConditions(ctx context.Context, changes []OngoingConditionChange) error

	// AcquireConditionLease acquires or renews the lease for detecting conditions, so that it is
	// valid until the given time, unless another caller holds it. It reports whether the caller now
	// holds the lease.
	AcquireConditionLease(ctx context.Context, caller string, now, until time.Time) (bool, error)
}

// EventCause is an occurrence that an operator event may report to the operators of an account,
// such as the failure of an execution. The store keeps it until DecideEvents has settled it.
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

// CauseGroup identifies the causes of one account and kind. The number of events is limited for
// each group separately.
type CauseGroup struct{ AccountID, Kind string }

// Event is an operator event that starts, or has started, an execution. Before the event's start
// message is published, the store already holds everything that the message contains. If the
// process crashes, another process therefore publishes the same message.
type Event struct {
	ID          string // the delivery ID of the execution that the event starts
	AccountID   string
	Kind        string    // the kind of its causes, such as execution.failed
	WorkflowID  string    // the workflow that it starts
	NodeID      string    // the node at which it starts
	Input       string    // the execution's input as JSON text
	DecidedAt   time.Time // when it was made from its causes; becomes AcceptedAt of the execution
	PublishedAt time.Time // zero until it is published or its workflow is found deleted
}

// OngoingCondition is a state, such as a queue without runners, that has not ended and whose
// beginning an operator event has reported. Kind is the kind of that event, and Subject names the
// object that is in the state.
type OngoingCondition struct {
	AccountID, Kind, Subject string

	Since time.Time // when the state began
}

// OngoingConditionChange is the beginning or the end of a condition.
type OngoingConditionChange struct {
	OngoingCondition
	// Cause is the event cause to store if the change takes effect, that is, if it begins a new
	// condition or ends an existing one. nil means that no event reports the change.
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

// ExecutionFailure is an execution that has failed: either a runner has reported the failure, or
// EndLostExecutions has ended the execution.
type ExecutionFailure struct {
	ExecutionID, AccountID, WorkflowID, Queue string

	At    time.Time // when the execution ended
	Error string    // why it failed
}

// FailuresFromUpdates returns an ExecutionFailure for each update in a batch that makes an
// execution fail. current maps the executions' IDs to their states before the batch.
func FailuresFromUpdates(current map[string]CurrentState,
	updates []StateUpdate,
) (failures []ExecutionFailure) {
	for _, m := range updates {
		if m.Status == execution.Failed {
			failures = append(failures, failureOf(m.ID, current[m.ID], m.FinishedAt, m.Error))
		}
	}
	return failures
}

// LostExecutionFailures returns an ExecutionFailure for each ID in ended, the result of
// EndLostExecutions. current maps these IDs to the states of the executions. at and reason are the
// time and the reason of all the failures.
func LostExecutionFailures(
	current map[string]CurrentState, ended []string, at time.Time, reason string,
) (failures []ExecutionFailure) {
	for _, id := range ended {
		failures = append(failures, failureOf(id, current[id], at, reason))
	}
	return failures
}

func failureOf(id string, state CurrentState, at time.Time, why string) ExecutionFailure {
	return ExecutionFailure{
		ExecutionID: id,
		AccountID:   state.AccountID,
		WorkflowID:  state.WorkflowID,
		Queue:       state.Queue,
		At:          at,
		Error:       why,
	}
}
