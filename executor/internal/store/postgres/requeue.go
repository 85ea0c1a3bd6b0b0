package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/tables"
)

// Whoever comes second waits for the row, and then finds that the condition no longer holds. Rows are
// locked in the order of IDs, as Apply locks them.
const (
	markRequeued = `UPDATE executions e SET requeued_as = m.requeued_as
		FROM (SELECT e.id, n.requeued_as FROM executions e JOIN unnest($1::text[], $2::text[]) AS n (id, requeued_as) USING (id)
			WHERE e.trouble = 'failed' AND e.requeued_as = '' ORDER BY e.id FOR NO KEY UPDATE OF e) AS m
		WHERE e.id = m.id RETURNING e.id`

	dismissRecords = `UPDATE executions e SET dismissed_at = $2
		FROM (SELECT id FROM executions
			WHERE id = ANY ($1) AND trouble = 'failed' AND requeued_as = '' AND dismissed_at IS NULL ORDER BY id FOR NO KEY UPDATE) AS m
		WHERE e.id = m.id RETURNING e.id`

	dismissMessages = `UPDATE unreadable u SET dismissed_at = $3
		FROM (SELECT u.stream_sequence, u.subject, n.progress
			FROM unreadable u JOIN unnest($1::bigint[], $2::boolean[]) AS n (stream_sequence, progress) USING (stream_sequence)
			WHERE (u.subject LIKE 'executions.progress.%') = n.progress AND u.dismissed_at IS NULL
			ORDER BY u.stream_sequence, u.subject FOR NO KEY UPDATE OF u) AS m
		WHERE u.stream_sequence = m.stream_sequence AND u.subject = m.subject RETURNING u.stream_sequence, m.progress`
)

// MarkRequeued implements store.Store.
func (s *Store) MarkRequeued(ctx context.Context, requeued []store.Requeue) (marked []string, err error) {
	if len(requeued) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "mark requeued", func(tx transaction) (err error) {
		marked, err = updated(ctx, tx.Tx, pgx.RowTo[string], markRequeued,
			column(requeued, func(r store.Requeue) string { return store.Text(r.ID) }),
			column(requeued, func(r store.Requeue) string { return store.Text(r.As) }))
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
	err = s.write(ctx, "dismiss", func(tx transaction) (err error) {
		if dismissed, err = updated(ctx, tx.Tx, pgx.RowTo[string], dismissRecords, store.Texts(ids), store.Time(at)); err != nil {
			return err
		}
		if len(messages) > 0 {
			of, err = updated(ctx, tx.Tx, messageKey, dismissMessages,
				column(messages, func(key store.MessageKey) int64 { return store.Sequence(key.StreamSequence) }),
				column(messages, func(key store.MessageKey) bool { return key.Progress }), store.Time(at))
			if err != nil {
				return err
			}
		}
		return tables.AddAudit(ctx, tx, store.DismissedEntries(dismissed, of, audit))
	})
	if err != nil {
		return nil, nil, err
	}
	return dismissed, of, nil
}

func messageKey(row pgx.CollectableRow) (key store.MessageKey, err error) {
	var sequence int64
	err = row.Scan(&sequence, &key.Progress)
	key.StreamSequence = uint64(sequence) //nolint:gosec // written by store.Sequence, never negative
	return key, err
}

// updated runs a statement and reads what it returns.
func updated[T any](ctx context.Context, tx pgx.Tx, row pgx.RowToFunc[T], query string, args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, row)
}
