package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	endLost = `UPDATE executions SET status = 'failed', finished_at = ?, error = ?
		WHERE id = ? AND stream_sequence = ? AND status IN ('queued', 'running') RETURNING id`

	moveRecord = `UPDATE executions SET stream_sequence = ? WHERE id = ? AND status IN ('queued', 'running') AND stream_sequence <> ?`
)

// EndLost implements store.Store.
func (s *Store) EndLost(ctx context.Context, lost []store.Lost, at time.Time, reason string) (ended []string, err error) {
	if len(lost) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "end lost", func(tx *sql.Tx) error {
		statement, err := tx.PrepareContext(ctx, endLost)
		if err != nil {
			return err
		}
		defer func() { _ = statement.Close() }()
		for _, l := range lost {
			var id string
			err := statement.QueryRowContext(ctx, store.Time(at).UnixMicro(), store.Text(reason), store.Text(l.ID), store.Sequence(l.StreamSequence)).Scan(&id)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			ended = append(ended, id)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}
