package store

import (
	"context"
	"time"
)

// Pruner deletes what is past its retention, in batches. The executor calls it periodically.
// DecideEvents and EndSession delete their own old rows.
type Pruner interface {
	// Prune deletes at most limit records that were accepted before a time, in any state, with
	// everything that belongs to them. It returns the number of deleted records; fewer than limit
	// means that none are left to delete. Then it also deletes messages put aside and duplicate
	// counts without a record, from before that time.
	Prune(ctx context.Context, before time.Time, limit int) (int, error)

	// PruneCounts deletes the per-minute counts that MinuteCounts returns, and the report IDs, from
	// before a time. No stream may deliver a report from before that time again. It also deletes
	// refusals by workflow from before that time, and further ones, oldest first, until about keep
	// rows are left. It deletes at most limit refusals in one call. It returns the number of
	// deleted refusals; fewer than limit means that none are left to delete.
	PruneCounts(ctx context.Context, before time.Time, keep, limit int) (int, error)

	// PrunePending deletes the progress steps of unrecorded executions that arrived before a time,
	// and returns how many it deleted.
	PrunePending(ctx context.Context, before time.Time) (int, error)

	// PruneAudit deletes at most limit audit entries from before a time, oldest first, and returns
	// how many it deleted.
	PruneAudit(ctx context.Context, before time.Time, limit int) (int, error)
}
