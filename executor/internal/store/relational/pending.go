package relational

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

var pendingProgressTable = table[store.PendingProgress]{
	name: "early_progress",
	columns: "position, execution_id, queue, workflow_id, status, at, started_at, error, output, " +
		"attempt, kept_at",
	fields: func(e *store.PendingProgress) []any {
		keptAt := time.Now() // the time to write; a time that is read is discarded
		return []any{
			&e.Position, &e.ID, &e.Queue, &e.WorkflowID, (*string)(&e.Status),
			timeField{&e.At},
			nullableTimeField{timeField{&e.StartedAt}},
			&e.Error, &e.Output,
			intField{&e.Attempt},
			timeField{&keptAt},
		}
	},
	onConflict:  "ON CONFLICT DO NOTHING",
	backupOrder: "position",
	partRows:    func(p *store.BackupPart) *[]store.PendingProgress { return &p.Pending },
}

// takePending returns the progress steps that were kept for executions that are now recorded, and
// deletes them from the table.
func takePending(
	ctx context.Context, tx Tx, records []store.Record,
) (kept []store.PendingProgress, err error) {
	if len(records) == 0 {
		return nil, nil
	}
	if exist, err := tx.MayHavePendingProgress(ctx); err != nil || !exist {
		return nil, err
	}
	err = tx.Query(ctx, func(row Row) error {
		step, err := pendingProgressTable.scan(row)
		kept = append(kept, step)
		return err
	}, `DELETE FROM early_progress WHERE execution_id = ANY (?) RETURNING `+pendingProgressTable.columns,
		store.RecordIDs(records))
	return kept, err
}

// storePendingProgress stores progress steps of executions that are not recorded yet, and returns
// how many steps it dropped.
func storePendingProgress(
	ctx context.Context, tx Tx, steps []execution.Progress, unknown []string,
) (dropped int, err error) {
	var have []store.PendingProgress
	if err := tx.Query(ctx, func(row Row) error {
		var e store.PendingProgress
		err := row.Scan(&e.Position, &e.ID, &e.Queue, &e.WorkflowID, (*string)(&e.Status))
		have = append(have, e)
		return err
	},
		`SELECT position, execution_id, queue, workflow_id, status FROM early_progress
			WHERE execution_id = ANY (?)`, store.SanitizeTexts(unknown)); err != nil {
		return 0, err
	}
	var last int64
	if err := tx.Query(ctx, func(row Row) error {
		return row.Scan(&last)
	}, `SELECT coalesce(max(position), 0) FROM early_progress`); err != nil {
		return 0, err
	}
	kept, dropped := store.SelectPending(steps, unknown, have, last)
	if len(kept) == 0 {
		return dropped, nil
	}
	if err := pendingProgressTable.insert(ctx, tx, kept); err != nil {
		return 0, err
	}
	n, err := tx.Exec(ctx, `DELETE FROM early_progress WHERE position <= ?`,
		kept[len(kept)-1].Position-store.MaxPendingSteps)
	return dropped + int(n), err
}

// PrunePending implements store.Pruner.
func (s *Store) PrunePending(ctx context.Context, before time.Time) (int, error) {
	// runPrune acquires PendingProgressLock exclusively, as do all transactions that call
	// storePendingProgress. The statement below and storePendingProgress both delete rows of
	// early_progress. Without the lock, they could deadlock by deleting the same rows in different
	// orders.
	return s.runPrune(ctx, "prune early", PendingProgressLock, func(tx Tx) (int64, error) {
		return tx.Exec(ctx, `DELETE FROM early_progress WHERE kept_at < ?`, store.CeilTime(before))
	})
}
