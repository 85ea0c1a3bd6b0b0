package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	insertRecord = `INSERT INTO executions (` + columns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

	insertUnreadable = `INSERT INTO unreadable (stream_sequence, subject, reason, at)
		VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`

	updateRecord = `UPDATE executions SET status = ?, started_at = coalesce(?, started_at),
		finished_at = coalesce(?, finished_at), error = coalesce(nullif(?, ''), error), output = coalesce(?, output)
		WHERE id = ?`

	upsertTokenUse = `INSERT INTO token_uses (token_id, last_used_at) VALUES (?, ?)
		ON CONFLICT DO UPDATE SET last_used_at = excluded.last_used_at
		WHERE excluded.last_used_at > token_uses.last_used_at`
)

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, batch store.Batch) (store.Applied, error) {
	if len(batch.New)+len(batch.Progress)+len(batch.Unreadable)+len(batch.Recovered) == 0 {
		return store.Applied{}, nil
	}
	batch = batch.Storable()
	var applied store.Applied
	err := s.write(ctx, "apply", func(tx *sql.Tx) error {
		inserted, err := insertNew(ctx, tx, batch.New)
		if err != nil {
			return err
		}
		if err := each(ctx, tx, insertUnreadable, batch.Unreadable, func(u store.Unreadable) []any {
			return []any{store.Sequence(u.StreamSequence), u.Subject, u.Reason, u.At.UnixMicro()}
		}); err != nil {
			return err
		}
		if err := each(ctx, tx, `DELETE FROM unreadable WHERE stream_sequence = ? AND (subject LIKE 'executions.progress.%') = ?`, batch.Recovered, func(key store.MessageKey) []any {
			return []any{store.Sequence(key.StreamSequence), key.Progress}
		}); err != nil {
			return err
		}
		kept, err := takeKept(ctx, tx, batch.New)
		if err != nil {
			return err
		}
		steps := store.Steps(kept, batch.Progress)
		standing, err := standingOf(ctx, tx, store.StepIDs(steps))
		if err != nil {
			return err
		}
		moves, unknown, foreign := store.Advance(standing, steps)
		if err := each(ctx, tx, updateRecord, moves, func(m store.Move) []any {
			return []any{string(m.Status), micros(m.StartedAt), micros(m.FinishedAt), m.Error, m.Output, m.ID}
		}); err != nil {
			return err
		}
		applied = store.Applied{Changed: store.Changed(inserted, moves), Unknown: unknown, Foreign: foreign}
		if len(unknown) > 0 {
			if applied.Dropped, err = keep(ctx, tx, batch.Progress, unknown); err != nil {
				return err
			}
		}
		if err := addMinutes(ctx, tx, store.AcceptedMinutes(inserted)); err != nil {
			return err
		}
		return each(ctx, tx, upsertTokenUse, store.TokenUses(inserted), func(u store.TokenUse) []any {
			return []any{u.TokenID, u.At.UnixMicro()}
		})
	})
	if err != nil {
		return store.Applied{}, err
	}
	return applied, nil
}

func insertNew(ctx context.Context, tx *sql.Tx, records []store.Record) (inserted []store.Record, err error) {
	if len(records) == 0 {
		return nil, nil
	}
	statement, err := tx.PrepareContext(ctx, insertRecord)
	if err != nil {
		return nil, err
	}
	defer func() { _ = statement.Close() }()
	for _, r := range records {
		result, err := statement.ExecContext(ctx, values(r)...)
		if err != nil {
			return nil, err
		}
		if n, err := result.RowsAffected(); err != nil {
			return nil, err
		} else if n > 0 {
			inserted = append(inserted, r)
		}
	}
	err = each(ctx, tx, moveRecord, store.Again(records, inserted), func(r store.Record) []any {
		sequence := store.Sequence(r.StreamSequence)
		return []any{sequence, r.ID, sequence}
	})
	return inserted, err
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

func standingOf(ctx context.Context, tx *sql.Tx, ids []string) (map[string]store.Standing, error) {
	standing := make(map[string]store.Standing, len(ids))
	if len(ids) == 0 {
		return standing, nil
	}
	rows, err := tx.QueryContext(ctx, `SELECT id, status, queue, workflow_id FROM executions WHERE id IN (SELECT value FROM json_each(?))`, list(ids))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		var at store.Standing
		if err := rows.Scan(&id, &at.Status, &at.Queue, &at.WorkflowID); err != nil {
			return nil, err
		}
		standing[id] = at
	}
	return standing, rows.Err()
}

// list is a JSON array for json_each: SQLite has no array parameters.
func list(texts []string) string {
	array, err := json.Marshal(texts)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(array)
}
