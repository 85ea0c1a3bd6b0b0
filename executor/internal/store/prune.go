package store

import (
	"context"
	"time"
)

// Pruner deletes data whose retention has passed, in batches. The executor calls it at regular
// intervals. DecideEvents and EndSession delete their own old rows.
type Pruner interface {
	// Prune deletes at most limit records, in any state, that were accepted before the given time,
	// together with everything that belongs to them. It returns the number of deleted records. A
	// number below limit means that no more are left. In this case, Prune has also deleted the
	// messages put aside before that time, and the duplicate counts from before that time that have
	// no record.
	Prune(ctx context.Context, before time.Time, limit int) (int, error)

	// PruneCounts deletes the report IDs and the per-minute counts (see MinuteCounts) from before
	// the given time. Reports from before that time must not be delivered again: a report whose ID
	// was deleted would be counted twice.
	//
	// PruneCounts also deletes refusals by workflow: those from before that time, and then the
	// oldest ones until only about keep rows are left. One call deletes at most limit refusals, and
	// returns how many it has deleted. A number below limit means that no more are left to delete.
	PruneCounts(ctx context.Context, before time.Time, keep, limit int) (int, error)

	// PrunePending deletes the progress steps of unrecorded executions that arrived before the
	// given time, and returns how many it deleted.
	PrunePending(ctx context.Context, before time.Time) (int, error)

	// PruneAudit deletes at most limit audit entries from before the given time, oldest first, and
	// returns how many it deleted.
	PruneAudit(ctx context.Context, before time.Time, limit int) (int, error)
}
