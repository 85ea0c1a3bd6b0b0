package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	// In the order of IDs, as Apply locks them.
	lockLost = `SELECT e.id FROM executions e JOIN unnest($1::text[], $2::bigint[]) AS l (id, stream_sequence) USING (id)
		WHERE e.status IN ('queued', 'running') AND e.stream_sequence = l.stream_sequence ORDER BY e.id FOR NO KEY UPDATE OF e`

	endLost = `UPDATE executions SET status = 'failed', finished_at = $2, error = $3 WHERE id = ANY ($1)`

	moveRecords = `UPDATE executions e SET stream_sequence = m.stream_sequence
		FROM (SELECT e.id, n.stream_sequence FROM executions e JOIN unnest($1::text[], $2::bigint[]) AS n (id, stream_sequence) USING (id)
			WHERE e.status IN ('queued', 'running') AND e.stream_sequence <> n.stream_sequence ORDER BY e.id FOR NO KEY UPDATE OF e) AS m
		WHERE e.id = m.id`
)

// EndLost implements store.Store.
func (s *Store) EndLost(ctx context.Context, lost []store.Lost, at time.Time, reason string) (ended []string, err error) {
	if len(lost) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "end lost", func(tx transaction) (err error) {
		if ended, err = updated(ctx, tx.Tx, pgx.RowTo[string], lockLost,
			column(lost, func(l store.Lost) string { return store.Text(l.ID) }),
			column(lost, func(l store.Lost) int64 { return store.Sequence(l.StreamSequence) })); err != nil {
			return err
		}
		_, err = tx.Tx.Exec(ctx, endLost, ended, store.Time(at), store.Text(reason))
		return err
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}
