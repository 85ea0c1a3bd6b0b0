package registry

import (
	"slices"
	"time"
)

// OperatorEvents is the setting of an account by which its events start a workflow.
type OperatorEvents struct {
	WorkflowID string `audit:"workflowId"` // a workflow of the account
	// Kinds holds the kinds that start it, sorted. Empty means all kinds.
	Kinds []string `audit:"kinds"`
	// SilentAfter is the time without a request after which a trigger node counts as silent. 0
	// means that it follows from the node's own usual pace.
	SilentAfter time.Duration `audit:"silentAfterSeconds"` // whole seconds
	// Since is when the account, which had no such setting, was given it. What happened before
	// makes no event.
	Since time.Time `audit:"-"`

	unknown unknown `audit:"-"`
}

// The kinds of operator events. A kind with the suffix Recovered is the end of what the kind began.
const (
	ExecutionFailed = "execution.failed"
	QueueUnattended = "queue.unattended"
	SenderRefused   = "sender.refused"
	SenderSilent    = "sender.silent"
	StorageLow      = "storage.low"

	Recovered = ".recovered"
)

// EventKinds returns all kinds of operator events, sorted.
func EventKinds() []string {
	return []string{
		ExecutionFailed, QueueUnattended, QueueUnattended + Recovered, SenderRefused,
		SenderRefused + Recovered,
		SenderSilent, SenderSilent + Recovered, StorageLow, StorageLow + Recovered,
	}
}

// Wants reports whether events of a kind start the workflow. e may be nil, which wants none.
func (e *OperatorEvents) Wants(kind string) bool {
	return e != nil && (len(e.Kinds) == 0 || slices.Contains(e.Kinds, kind))
}
