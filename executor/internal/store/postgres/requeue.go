package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// These statements lock the rows in the order of their IDs, as Apply does. If two callers run the
// same statement, the second one waits for a row lock, then finds that the condition is no longer
// met, and does not change the row. 1, 2, 4 and 6 are the codes of queued, running, failed and
// canceled: see relational.StatusCode.
const (
	lockLost = `SELECT e.id, e.accepted_at FROM executions e
		JOIN unnest($1::bytea[], $2::bigint[]) AS l (id, stream_sequence) USING (id)
		WHERE e.status IN (1, 2) AND e.stream_sequence = l.stream_sequence ORDER BY e.id
		FOR NO KEY UPDATE OF e`

	endLost = `UPDATE executions e SET status = 4, finished_after = l.after, error = $3
		FROM unnest($1::bytea[], $2::bigint[]) AS l (id, after) WHERE e.id = l.id`

	updateSequences = `UPDATE executions e SET stream_sequence = m.stream_sequence
		FROM (SELECT e.id, n.stream_sequence FROM executions e
		JOIN unnest($1::bytea[], $2::bigint[]) AS n (id, stream_sequence) USING (id)
			WHERE e.status IN (1, 2) AND e.stream_sequence <> n.stream_sequence ORDER BY e.id
			FOR NO KEY UPDATE OF e) AS m
		WHERE e.id = m.id`

	markRequeued = `UPDATE executions e SET requeued_as = m.requeued_as
		FROM (SELECT e.id, n.requeued_as FROM executions e
		JOIN unnest($1::bytea[], $2::text[]) AS n (id, requeued_as) USING (id)
			WHERE e.status IN (4, 6) AND e.requeued_as IS NULL ORDER BY e.id
			FOR NO KEY UPDATE OF e) AS m
		WHERE e.id = m.id RETURNING e.id`

	dismissRecords = `UPDATE executions e SET dismissed_at = $2
		FROM (SELECT id FROM executions
			WHERE id = ANY ($1) AND trouble = 4 AND requeued_as IS NULL AND dismissed_at IS NULL
			ORDER BY id FOR NO KEY UPDATE) AS m
		WHERE e.id = m.id RETURNING e.id`

	dismissMessages = `UPDATE unreadable u SET dismissed_at = $3
		FROM (SELECT u.stream_sequence, u.subject, n.prefix
			FROM unreadable u JOIN unnest($1::bigint[], $2::text[]) AS n (stream_sequence, prefix)
			USING (stream_sequence)
			WHERE CASE WHEN u.subject LIKE 'executions.progress.%' THEN 'executions.progress.'
				WHEN u.subject LIKE 'executions.queue.%' OR u.subject LIKE 'executions.reports.%'
					THEN substr(u.subject, 1, length(n.prefix))
				ELSE '-' END = n.prefix AND u.dismissed_at IS NULL
			ORDER BY u.stream_sequence, u.subject FOR NO KEY UPDATE OF u) AS m
		WHERE u.stream_sequence = m.stream_sequence AND u.subject = m.subject
		RETURNING u.stream_sequence, m.prefix`
)

// EndLostExecutions implements relational.Tx.
func (tx transaction) EndLostExecutions(
	ctx context.Context, lost []store.LostExecution, at time.Time, reason string,
) (ended []string, err error) {
	var ids [][]byte
	var after []int64
	_, err = queryRows(
		ctx,
		tx,
		func(row pgx.CollectableRow) (none struct{}, err error) {
			var id []byte
			var accepted time.Time
			err = row.Scan(&id, &accepted)
			ids, after = append(ids, id), append(after, at.UnixMicro()-accepted.UnixMicro())
			return none, err
		},
		lockLost,
		mapSlice(lost, func(l store.LostExecution) []byte { return store.EncodeID(l.ID) }),
		mapSlice(lost,
			func(l store.LostExecution) int64 { return store.StoredSequence(l.StreamSequence) }),
	)
	if err != nil {
		return nil, err
	}
	_, err = tx.Tx.Exec(ctx, endLost, ids, after, reason)
	return mapSlice(ids, store.DecodeID), err
}

// MarkRequeued implements relational.Tx.
func (tx transaction) MarkRequeued(
	ctx context.Context, requeued []store.Requeue,
) (marked []string, err error) {
	ids, err := queryRows(ctx, tx, pgx.RowTo[[]byte], markRequeued,
		mapSlice(requeued, func(r store.Requeue) []byte { return store.EncodeID(r.ID) }),
		mapSlice(requeued, func(r store.Requeue) string {
			return store.SanitizeText(r.ReplacementID)
		}))
	return mapSlice(ids, store.DecodeID), err
}

// Dismiss implements relational.Tx.
func (tx transaction) Dismiss(
	ctx context.Context, ids []string, messages []store.MessageKey, at time.Time,
) (dismissed []string, messageKeys []store.MessageKey, err error) {
	taken, err := queryRows(ctx, tx, pgx.RowTo[[]byte], dismissRecords, encodeIDs(ids), at)
	dismissed = mapSlice(taken, store.DecodeID)
	if err != nil || len(messages) == 0 {
		return dismissed, nil, err
	}
	messageKeys, err = queryRows(ctx, tx, scanMessageKey, dismissMessages,
		mapSlice(messages, func(key store.MessageKey) int64 {
			return store.StoredSequence(key.StreamSequence)
		}),
		mapSlice(messages, store.MessageKey.SubjectPrefix), at)
	return dismissed, messageKeys, err
}

func scanMessageKey(row pgx.CollectableRow) (key store.MessageKey, err error) {
	var sequence int64
	var prefix string
	err = row.Scan(&sequence, &prefix)
	//nolint:gosec // written by store.StoredSequence, never negative
	return store.MessageKeyFromPrefix(uint64(sequence), prefix), err
}

// queryRows runs a statement and returns the rows of its result, each of them converted by the
// function row.
func queryRows[T any](
	ctx context.Context, tx transaction, row pgx.RowToFunc[T], query string, args ...any,
) ([]T, error) {
	rows, err := tx.Tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, row)
}
