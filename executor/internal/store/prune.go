package store

import (
	"context"
	"time"
)

// Pruner deletes data whose retention time has passed, in batches. The executor calls it
// periodically. DecideEvents and EndSession delete their own old rows.
type Pruner interface {
	// Prune deletes at most limit records, in any state, that were accepted before a time, with
	// everything that belongs to them. It returns the number of deleted records. If that is less
	// than limit, no more records are left to delete; in this case, Prune also deletes the messages
	// put aside, and the duplicate counts without a record, that are from before that time.
	Prune(ctx context.Context, before time.Time, limit int) (int, error)

	// PruneCounts deletes the report IDs, and the per-minute counts that MinuteCounts returns, that
	// are from before a time. Reports from before that time must not be delivered again, because a
	// report whose ID was deleted would be counted twice.
	//
	// PruneCounts also deletes refusals by workflow: those from before that time, and then the
	// oldest ones until about keep rows are left. It deletes at most limit refusals in one call,
	// and returns the number of deleted refusals. If that is less than limit, no more are left to
	// delete.
	PruneCounts(ctx context.Context, before time.Time, keep, limit int) (int, error)

	// PrunePending deletes the progress steps of unrecorded executions that arrived before a time,
	// and returns how many it deleted.
	PrunePending(ctx context.Context, before time.Time) (int, error)

	// PruneAudit deletes at most limit audit entries from before a time, oldest first, and returns
	// how many it deleted.
	PruneAudit(ctx context.Context, before time.Time, limit int) (int, error)
}
