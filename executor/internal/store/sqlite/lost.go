package sqlite

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// 1, 2 and 4 are queued, running and failed: see statusCode.
const (
	endLost = `UPDATE executions SET status = 4, finished_after = ? - accepted_at, error = ?
		WHERE id = ? AND stream_sequence = ? AND status IN (1, 2) RETURNING 1`
	moveRecord = `UPDATE executions SET stream_sequence = ? WHERE id = ? AND status IN (1, 2) AND stream_sequence <> ?`
)

// EndLost implements store.Store.
func (s *Store) EndLost(ctx context.Context, lost []store.Lost, at time.Time, reason string) (ended []string, err error) {
	if len(lost) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "end lost", func(tx transaction) error {
		done, err := changed(ctx, tx.Tx, endLost, lost, func(l store.Lost) []any {
			return []any{store.Time(at).UnixMicro(), store.Text(reason), store.IDKey(l.ID), store.Sequence(l.StreamSequence)}
		})
		for _, l := range done {
			ended = append(ended, l.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}
