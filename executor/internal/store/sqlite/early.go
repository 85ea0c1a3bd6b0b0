package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

const (
	takeEarly = `DELETE FROM early_progress WHERE execution_id IN (SELECT value FROM json_each(?))
		RETURNING position, execution_id, queue, workflow_id, status, at, started_at, error, output`

	haveEarly = `SELECT position, execution_id, queue, workflow_id, status, at, started_at, error, NULL FROM early_progress
		WHERE execution_id IN (SELECT value FROM json_each(?))`

	insertEarly = `INSERT INTO early_progress (position, execution_id, queue, workflow_id, status, at, started_at, error, output, kept_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
)

// takeKept returns what was kept for records that are there now, and keeps it no longer.
// Transactions that write come one after the other, so no step and no record is missed.
func takeKept(ctx context.Context, tx *sql.Tx, records []store.Record) ([]store.Early, error) {
	if len(records) == 0 {
		return nil, nil
	}
	// There is hardly ever one.
	var some bool
	if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM early_progress)`).Scan(&some); err != nil || !some {
		return nil, err
	}
	return earlyOf(ctx, tx, takeEarly, store.NewIDs(records))
}

func earlyOf(ctx context.Context, tx *sql.Tx, query string, ids []string) (found []store.Early, err error) {
	rows, err := tx.QueryContext(ctx, query, list(ids))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var e store.Early
		var at int64
		var started sql.NullInt64
		if err := rows.Scan(&e.Position, &e.ID, &e.Queue, &e.WorkflowID, &e.Status, &at, &started, &e.Error, &e.Output); err != nil {
			return nil, err
		}
		e.At = fromMicros(at)
		if started.Valid {
			e.StartedAt = fromMicros(started.Int64)
		}
		found = append(found, e)
	}
	return found, rows.Err()
}

// keep keeps the steps of executions that are not recorded, and returns how many were dropped.
func keep(ctx context.Context, tx *sql.Tx, steps []execution.Progress, unknown []string) (dropped int, err error) {
	have, err := earlyOf(ctx, tx, haveEarly, store.Texts(unknown))
	if err != nil {
		return 0, err
	}
	var last int64
	if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(position), 0) FROM early_progress`).Scan(&last); err != nil {
		return 0, err
	}
	kept, dropped := store.Keep(steps, unknown, have, last)
	if len(kept) == 0 {
		return dropped, nil
	}
	now := time.Now().UnixMicro()
	if err := each(ctx, tx, insertEarly, kept, func(e store.Early) []any {
		return []any{e.Position, e.ID, e.Queue, e.WorkflowID, string(e.Status), e.At.UnixMicro(), micros(e.StartedAt), e.Error, e.Output, now}
	}); err != nil {
		return 0, err
	}
	result, err := tx.ExecContext(ctx, `DELETE FROM early_progress WHERE position <= ?`, kept[len(kept)-1].Position-store.MaxEarly)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return dropped + int(n), err
}

// PruneEarly implements store.Store.
func (s *Store) PruneEarly(ctx context.Context, before time.Time) (int, error) {
	var pruned int64
	err := s.write(ctx, "prune early progress", func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, `DELETE FROM early_progress WHERE kept_at < ?`, store.Bound(before).UnixMicro())
		if err != nil {
			return err
		}
		pruned, err = result.RowsAffected()
		return err
	})
	return int(pruned), err
}
