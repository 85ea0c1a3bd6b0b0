package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// 1, 2, 4 and 6 are the codes of queued, running, failed and canceled: see relational.StatusCode.
const (
	endLost = `UPDATE executions SET status = 4, finished_after = ? - accepted_at, error = ?
		WHERE id = ? AND stream_sequence = ? AND status IN (1, 2) RETURNING 1`

	updateSequence = `UPDATE executions SET stream_sequence = ? WHERE id = ? AND status IN (1, 2)
		AND stream_sequence <> ?`

	markRequeued = `UPDATE executions SET requeued_as = ? WHERE id = ? AND status IN (4, 6)
		AND requeued_as IS NULL RETURNING 1`

	dismissRecord = `UPDATE executions SET dismissed_at = ?
		WHERE id = ? AND status = 4 AND requeued_as IS NULL AND dismissed_at IS NULL RETURNING 1`

	dismissMessage = `UPDATE unreadable SET dismissed_at = ?
		WHERE ` + relational.MessageKeyCondition + ` AND dismissed_at IS NULL RETURNING stream_sequence`
)

// EndLostExecutions implements relational.Tx.
func (tx *transaction) EndLostExecutions(
	ctx context.Context, lost []store.LostExecution, at time.Time, reason string,
) (ended []string, err error) {
	done, err := execReturning(ctx, tx.Tx, endLost, lost, func(l store.LostExecution) []any {
		return []any{
			at.UnixMicro(),
			reason,
			store.EncodeID(l.ID),
			store.StoredSequence(l.StreamSequence),
		}
	})
	for _, l := range done {
		ended = append(ended, l.ID)
	}
	return ended, err
}

// MarkRequeued implements relational.Tx.
func (tx *transaction) MarkRequeued(
	ctx context.Context, requeued []store.Requeue,
) (marked []string, err error) {
	done, err := execReturning(ctx, tx.Tx, markRequeued, requeued, func(r store.Requeue) []any {
		return []any{store.SanitizeText(r.ReplacementID), store.EncodeID(r.ID)}
	})
	for _, r := range done {
		marked = append(marked, r.ID)
	}
	return marked, err
}

// Dismiss implements relational.Tx.
func (tx *transaction) Dismiss(
	ctx context.Context, ids []string, messages []store.MessageKey, at time.Time,
) (dismissed []string, messageKeys []store.MessageKey, err error) {
	dismissed, err = execReturning(ctx, tx.Tx, dismissRecord, ids, func(id string) []any {
		return []any{at.UnixMicro(), store.EncodeID(id)}
	})
	if err != nil {
		return nil, nil, err
	}
	messageKeys, err = execReturning(ctx, tx.Tx, dismissMessage, messages,
		func(key store.MessageKey) []any {
			return append([]any{at.UnixMicro()}, relational.MessageKeyArgs(key)...)
		})
	return dismissed, messageKeys, err
}

// execReturning runs a statement with a RETURNING clause for each item, and returns the items for
// which the statement returned a row.
func execReturning[T any](
	ctx context.Context, tx *sql.Tx, query string, items []T, args func(T) []any,
) (done []T, err error) {
	if len(items) == 0 {
		return nil, nil
	}
	statement, err := tx.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = statement.Close() }()
	for _, item := range items {
		var value any
		err := statement.QueryRowContext(ctx, args(item)...).Scan(&value)
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
