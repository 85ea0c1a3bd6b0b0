package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	insertUnreadable = `INSERT INTO unreadable (stream_sequence, subject, reason, at)
		VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`

	upsertTokenUse = `INSERT INTO token_uses (token_id, last_used_at) VALUES (?, ?)
		ON CONFLICT DO UPDATE SET last_used_at = excluded.last_used_at
		WHERE excluded.last_used_at > token_uses.last_used_at`
)

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, batch store.Batch) (store.Applied, error) {
	if len(batch.New)+len(batch.Progress)+len(batch.Unreadable)+len(batch.Recovered)+len(batch.Audit) == 0 {
		return store.Applied{}, nil
	}
	batch = batch.Storable()
	var known *lookup
	var applied store.Applied
	err := s.write(ctx, "apply", func(tx *sql.Tx) error {
		known = s.origins.begin()
		inserted, err := insertNew(ctx, tx, known, batch.New)
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
		if err := each(ctx, tx, insertAudit, batch.Audit, auditValues); err != nil {
			return err
		}
		kept, err := takeKept(ctx, tx, batch.New)
		if err != nil {
			return err
		}
		steps := store.Steps(kept, batch.Progress)
		standing, seqs, err := standingOf(ctx, tx, store.StepIDs(steps))
		if err != nil {
			return err
		}
		moves, unknown, foreign := store.Advance(standing, steps)
		if err := update(ctx, tx, moves, seqs); err != nil {
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
	known.commit()
	return applied, nil
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
	rows, err := tx.QueryContext(ctx, `SELECT e.seq, e.id, e.status, o.queue, w.workflow_id
		FROM executions e CROSS JOIN origins o ON o.origin = e.origin CROSS JOIN workflows w ON w.workflow = e.workflow
		WHERE e.id IN (SELECT unhex(value) FROM json_each(?))`, keyList(ids))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var (
			seq, status int64
			key         []byte
			at          store.Standing
		)
		if err := rows.Scan(&seq, &key, &status, &at.Queue, &at.WorkflowID); err != nil {
			return nil, nil, err
		}
		id := idOf(key)
		at.Status = statusOf(status)
		standing[id], seqs[id] = at, seq
	}
	return standing, seqs, rows.Err()
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
		array = hex.AppendEncode(array, keyOf(id))
		array = append(array, '"')
	}
	return string(append(array, ']'))
}

// micros is a time that may be absent.
func micros(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: !t.IsZero()}
}

// list is a JSON array for json_each: SQLite has no array parameters.
func list(texts []string) string {
	array, err := json.Marshal(texts)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(array)
}
