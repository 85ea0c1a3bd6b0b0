package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/tables"
)

const (
	// 4 is failed: see statusCode.
	markRequeued = `UPDATE executions SET requeued_as = ? WHERE id = ? AND status = 4 AND requeued_as IS NULL RETURNING 1`

	dismissRecord = `UPDATE executions SET dismissed_at = ?
		WHERE id = ? AND status = 4 AND requeued_as IS NULL AND dismissed_at IS NULL RETURNING 1`

	dismissMessage = `UPDATE unreadable SET dismissed_at = ?
		WHERE ` + tables.HasKey + ` AND dismissed_at IS NULL RETURNING stream_sequence`
)

// MarkRequeued implements store.Store.
func (s *Store) MarkRequeued(ctx context.Context, requeued []store.Requeue) (marked []string, err error) {
	if len(requeued) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "mark requeued", func(tx transaction) error {
		done, err := changed(ctx, tx.Tx, markRequeued, requeued, func(r store.Requeue) []any { return []any{store.Text(r.As), store.IDKey(r.ID)} })
		for _, r := range done {
			marked = append(marked, r.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return marked, nil
}

// Dismiss implements store.Store.
func (s *Store) Dismiss(ctx context.Context, ids []string, messages []store.MessageKey, at time.Time, audit func(id string, message store.MessageKey) store.AuditEntry) (dismissed []string, of []store.MessageKey, err error) {
	if len(ids)+len(messages) == 0 {
		return nil, nil, nil
	}
	micros := store.Time(at).UnixMicro()
	err = s.write(ctx, "dismiss", func(tx transaction) (err error) {
		dismissed, err = changed(ctx, tx.Tx, dismissRecord, ids, func(id string) []any { return []any{micros, store.IDKey(id)} })
		if err != nil {
			return err
		}
		of, err = changed(ctx, tx.Tx, dismissMessage, messages, func(key store.MessageKey) []any {
			return []any{micros, store.Sequence(key.StreamSequence), key.Progress}
		})
		if err != nil {
			return err
		}
		return tables.AddAudit(ctx, tx, store.DismissedEntries(dismissed, of, audit))
	})
	if err != nil {
		return nil, nil, err
	}
	return dismissed, of, nil
}

// changed runs a statement that returns something once per item, and returns those items for which
// it did, each once.
func changed[T any](ctx context.Context, tx *sql.Tx, query string, items []T, args func(T) []any) (done []T, err error) {
	if len(items) == 0 {
		return nil, nil
	}
	statement, err := tx.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = statement.Close() }()
	for _, item := range items {
		var of any
		err := statement.QueryRowContext(ctx, args(item)...).Scan(&of)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		done = append(done, item)
	}
	return done, nil
}
