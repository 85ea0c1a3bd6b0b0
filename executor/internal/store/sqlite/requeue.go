package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	// 4 is failed: see statusCode.
	markRequeued = `UPDATE executions SET requeued_as = ? WHERE id = ? AND status = 4 AND requeued_as IS NULL RETURNING 1`

	dismissRecord = `UPDATE executions SET dismissed_at = ?
		WHERE id = ? AND status = 4 AND requeued_as IS NULL AND dismissed_at IS NULL RETURNING 1`

	dismissMessage = `UPDATE unreadable SET dismissed_at = ?
		WHERE stream_sequence = ? AND (subject LIKE 'executions.progress.%') = ? AND dismissed_at IS NULL RETURNING stream_sequence`
)

// MarkRequeued implements store.Store.
func (s *Store) MarkRequeued(ctx context.Context, requeued []store.Requeue) (marked []string, err error) {
	if len(requeued) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "mark requeued", func(tx *sql.Tx) error {
		done, err := changed(ctx, tx, markRequeued, requeued, func(r store.Requeue) []any { return []any{store.Text(r.As), keyOf(r.ID)} })
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
	err = s.write(ctx, "dismiss", func(tx *sql.Tx) (err error) {
		dismissed, err = changed(ctx, tx, dismissRecord, ids, func(id string) []any { return []any{micros, keyOf(id)} })
		if err != nil {
			return err
		}
		of, err = changed(ctx, tx, dismissMessage, messages, func(key store.MessageKey) []any {
			return []any{micros, store.Sequence(key.StreamSequence), key.Progress}
		})
		if err != nil {
			return err
		}
		return each(ctx, tx, insertAudit, store.DismissedEntries(dismissed, of, audit), auditValues)
	})
	if err != nil {
		return nil, nil, err
	}
	return dismissed, of, nil
}

// CountDeadLetters implements store.Store.
func (s *Store) CountDeadLetters(ctx context.Context, limit int) (n int, err error) {
	err = s.read(ctx, "count dead letters", func(rows *sql.Rows) error { return rows.Scan(&n) },
		`SELECT count(*) FROM (
			SELECT 1 FROM executions WHERE status = 4 AND requeued_as IS NULL AND dismissed_at IS NULL
			UNION ALL SELECT 1 FROM unreadable WHERE dismissed_at IS NULL LIMIT ?)`, limit)
	return n, err
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
