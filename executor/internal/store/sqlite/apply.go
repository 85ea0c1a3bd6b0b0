package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/tables"
)

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, batch store.Batch) (store.Applied, error) {
	if len(batch.New)+len(batch.Progress)+len(batch.Unreadable)+len(batch.Recovered)+len(batch.Audit) == 0 {
		return store.Applied{}, nil
	}
	batch = batch.Storable()
	var applied store.Applied
	err := s.write(ctx, "apply", func(tx transaction) error {
		inserted, err := insertNew(ctx, tx, batch.New)
		if err != nil {
			return err
		}
		if err := tables.PutAside(ctx, tx, batch); err != nil {
			return err
		}
		kept, err := takeKept(ctx, tx, batch.New)
		if err != nil {
			return err
		}
		steps := store.Steps(kept, batch.Progress)
		standing, seqs, err := standingOf(ctx, tx.Tx, store.StepIDs(steps))
		if err != nil {
			return err
		}
		moves, unknown, foreign := store.Advance(standing, steps)
		if err := update(ctx, tx.Tx, moves, seqs); err != nil {
			return err
		}
		applied = store.Applied{Changed: store.Changed(inserted, moves), Unknown: unknown, Foreign: foreign}
		if len(unknown) > 0 {
			if applied.Dropped, err = tables.KeepEarly(ctx, tx, batch.Progress, unknown); err != nil {
				return err
			}
		}
		if err := tx.AddMinutes(ctx, store.AcceptedMinutes(inserted)); err != nil {
			return err
		}
		return tables.AddTokenUses(ctx, tx, store.TokenUses(inserted))
	})
	if err != nil {
		return store.Applied{}, err
	}
	return applied, nil
}

// takeKept returns what was kept for records that are there now, and keeps it no longer.
// Transactions that write come one after the other, so no step and no record is missed.
func takeKept(ctx context.Context, tx transaction, records []store.Record) ([]store.Early, error) {
	if len(records) == 0 {
		return nil, nil
	}
	// There is hardly ever one.
	var some bool
	if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM early_progress)`).Scan(&some); err != nil || !some {
		return nil, err
	}
	return tables.TakeEarly(ctx, tx, records)
}

// each runs a statement once per item, prepared once.
func each[T any](ctx context.Context, tx *sql.Tx, query string, items []T, args func(T) []any) error {
	if len(items) == 0 {
		return nil
	}
	statement, err := tx.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = statement.Close() }()
	for _, item := range items {
		if _, err := statement.ExecContext(ctx, args(item)...); err != nil {
			return err
		}
	}
	return nil
}

// standingOf returns how records stand, and their rows, by ID.
func standingOf(ctx context.Context, tx *sql.Tx, ids []string) (standing map[string]store.Standing, seqs map[string]int64, err error) {
	standing, seqs = make(map[string]store.Standing, len(ids)), make(map[string]int64, len(ids))
	if len(ids) == 0 {
		return standing, seqs, nil
	}
	err = eachRow(ctx, tx, func(row tables.Row) error {
		var (
			seq, status int64
			key         []byte
			at          store.Standing
		)
		if err := row.Scan(&seq, &key, &status, &at.Queue, &at.WorkflowID); err != nil {
			return err
		}
		id := store.IDOf(key)
		at.Status = statusOf(status)
		standing[id], seqs[id] = at, seq
		return nil
	}, `SELECT e.seq, e.id, e.status, o.queue, w.workflow_id
		FROM executions e CROSS JOIN origins o ON o.origin = e.origin CROSS JOIN workflows w ON w.workflow = e.workflow
		WHERE e.id IN (SELECT unhex(value) FROM json_each(?))`, keyList(ids))
	return standing, seqs, err
}

// keyList is a JSON array of the keys of IDs, in hex: SQLite has no array parameters.
func keyList(ids []string) string {
	array := make([]byte, 0, 2+len(ids)*35)
	array = append(array, '[')
	for i, id := range ids {
		if i > 0 {
			array = append(array, ',')
		}
		array = append(array, '"')
		array = hex.AppendEncode(array, store.IDKey(id))
		array = append(array, '"')
	}
	return string(append(array, ']'))
}

// micros is a time that may be absent.
func micros(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: !t.IsZero()}
}
