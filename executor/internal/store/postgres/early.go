package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

const (
	// Who records shares the lock with all others that do; who keeps a step whose execution is
	// not recorded has it alone. So either he sees the record, which is committed, or the one
	// who records it sees the step. It is taken before any row is locked.
	lockEarly = `SELECT missing, CASE WHEN missing THEN pg_advisory_xact_lock($2)::text ELSE pg_advisory_xact_lock_shared($2)::text END
		FROM (SELECT EXISTS (SELECT FROM unnest($1::text[]) AS named (id)
			WHERE NOT EXISTS (SELECT FROM executions e WHERE e.id = named.id)) AS missing OFFSET 0) AS looked`

	takeEarly = `DELETE FROM early_progress WHERE execution_id = ANY ($1)
		RETURNING position, execution_id, queue, workflow_id, status, at, started_at, error, output`

	haveEarly = `SELECT position, execution_id, queue, workflow_id, status FROM early_progress WHERE execution_id = ANY ($1)`

	insertEarly = `INSERT INTO early_progress (position, execution_id, queue, workflow_id, status, at, started_at, error, output)
		SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[], $8::text[], $9::bytea[])
		ON CONFLICT DO NOTHING`
)

// lockForEarly makes this transaction and those of other executors see what each keeps or
// records. It says whether steps may be kept.
func lockForEarly(ctx context.Context, tx pgx.Tx, batch store.Batch) (alone bool, err error) {
	if len(batch.New)+len(batch.Progress) == 0 {
		return false, nil
	}
	var locked string
	err = tx.QueryRow(ctx, lockEarly, store.EarlyIDs(batch), int64(earlyLock)).Scan(&alone, &locked)
	return alone, err
}

// takeKept returns what was kept for records that are there now, and keeps it no longer.
func takeKept(ctx context.Context, tx pgx.Tx, records []store.Record) (kept []store.Early, err error) {
	if len(records) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, takeEarly, store.NewIDs(records))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanEarly)
}

func scanEarly(row pgx.CollectableRow) (e store.Early, err error) {
	var started *time.Time
	err = row.Scan(&e.Position, &e.ID, &e.Queue, &e.WorkflowID, &e.Status, &e.At, &started, &e.Error, &e.Output)
	if started != nil {
		e.StartedAt = *started
	}
	return e, err
}

func earlyArrays(kept []store.Early) []any {
	return []any{
		column(kept, func(e store.Early) int64 { return e.Position }),
		column(kept, func(e store.Early) string { return e.ID }),
		column(kept, func(e store.Early) string { return e.Queue }),
		column(kept, func(e store.Early) string { return e.WorkflowID }),
		column(kept, func(e store.Early) string { return string(e.Status) }),
		column(kept, func(e store.Early) time.Time { return e.At }),
		column(kept, func(e store.Early) *time.Time { return optional(e.StartedAt) }),
		column(kept, func(e store.Early) string { return e.Error }),
		column(kept, func(e store.Early) []byte { return e.Output }),
	}
}

// keep keeps the steps of executions that are not recorded, and returns how many were dropped.
func keep(ctx context.Context, tx pgx.Tx, steps []execution.Progress, unknown []string) (dropped int, err error) {
	rows, err := tx.Query(ctx, haveEarly, store.Texts(unknown))
	if err != nil {
		return 0, err
	}
	have, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e store.Early, err error) {
		err = row.Scan(&e.Position, &e.ID, &e.Queue, &e.WorkflowID, &e.Status)
		return e, err
	})
	if err != nil {
		return 0, err
	}
	var last int64
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(position), 0) FROM early_progress`).Scan(&last); err != nil {
		return 0, err
	}
	kept, dropped := store.Keep(steps, unknown, have, last)
	if len(kept) == 0 {
		return dropped, nil
	}
	if _, err := tx.Exec(ctx, insertEarly, earlyArrays(kept)...); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, `DELETE FROM early_progress WHERE position <= $1`, kept[len(kept)-1].Position-store.MaxEarly)
	return dropped + int(tag.RowsAffected()), err
}

// PruneEarly implements store.Store.
func (s *Store) PruneEarly(ctx context.Context, before time.Time) (pruned int, err error) {
	err = s.write(ctx, "prune early progress", func(tx pgx.Tx) error {
		// Alone, as who keeps: two that delete rows in orders of their own wait in a circle.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(earlyLock)); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `DELETE FROM early_progress WHERE kept_at < $1`, store.Bound(before))
		pruned = int(tag.RowsAffected())
		return err
	})
	return pruned, err
}
