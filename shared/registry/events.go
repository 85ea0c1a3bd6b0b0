package registry

import (
	"slices"
	"time"
)

// EventSubscription makes the operator events of an account start one of the account's workflows.
type EventSubscription struct {
	WorkflowID string `audit:"workflowId"` // a workflow of the account
	// Kinds holds the kinds of events that start the workflow, sorted. Empty means all kinds.
	Kinds []string `audit:"kinds"`
	// SilentAfter is how long a trigger node may receive no requests before it counts as silent. 0
	// means that the limit is derived from the node's usual rate of requests.
	SilentAfter time.Duration `audit:"silentAfterSeconds"` // whole seconds
	// SubscribedAt is when the account got its event subscription. Replacing the subscription does
	// not change the time. What happened before SubscribedAt causes no event.
	SubscribedAt time.Time `audit:"-"`

	unknown unknownFields `audit:"-"`
}

// The kinds of operator events. A kind followed by EventRecoveredSuffix, such as
// queue.unattended.recovered, reports that the condition is over.
const (
	EventExecutionFailed = "execution.failed"
	EventQueueUnattended = "queue.unattended"
	EventSenderRefused   = "sender.refused"
	EventSenderSilent    = "sender.silent"
	EventStorageLow      = "storage.low"

	EventRecoveredSuffix = ".recovered"
)

// EventKinds returns all kinds of operator events, sorted.
func EventKinds() []string {
	return []string{
		EventExecutionFailed, EventQueueUnattended, EventQueueUnattended +
			EventRecoveredSuffix, EventSenderRefused,
		EventSenderRefused + EventRecoveredSuffix,
		EventSenderSilent, EventSenderSilent +
			EventRecoveredSuffix, EventStorageLow, EventStorageLow +
			EventRecoveredSuffix,
	}
}

// Wants reports whether events of the given kind start the workflow. It returns false if e is nil.
func (e *EventSubscription) Wants(kind string) bool {
	return e != nil && (len(e.Kinds) == 0 || slices.Contains(e.Kinds, kind))
}
