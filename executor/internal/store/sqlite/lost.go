package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// 1, 2 and 4 are queued, running and failed: see statusCode.
const (
	endLost = `UPDATE executions SET status = 4, finished_after = ? - accepted_at, error = ?
		WHERE id = ? AND stream_sequence = ? AND status IN (1, 2) RETURNING id`
	moveRecord = `UPDATE executions SET stream_sequence = ? WHERE id = ? AND status IN (1, 2) AND stream_sequence <> ?`
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
			var key []byte
			err := statement.QueryRowContext(ctx, store.Time(at).UnixMicro(), store.Text(reason), keyOf(l.ID), store.Sequence(l.StreamSequence)).Scan(&key)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			ended = append(ended, idOf(key))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}
