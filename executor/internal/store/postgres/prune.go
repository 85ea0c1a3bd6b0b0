package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/tables"
)

const (
	oldest = `SELECT id FROM executions WHERE accepted_at < $1 ORDER BY accepted_at, id LIMIT $2`

	// In the order of IDs, as Apply locks them.
	lockOldest = `SELECT id FROM executions WHERE id = ANY ($1) ORDER BY id FOR UPDATE`
)

// Prune implements store.Store.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	before = store.Bound(before)
	pruned := 0
	err := s.write(ctx, "prune", func(tx transaction) error {
		if err := tx.Lock(ctx, tables.Pruning, true); err != nil {
			return err
		}
		ids, err := updated(ctx, tx.Tx, pgx.RowTo[string], oldest, before, max(limit, 0))
		if err != nil {
			return err
		}
		pruned = len(ids)
		for _, statement := range []struct {
			query string
			arg   any
		}{
			{lockOldest, ids},
			{`DELETE FROM executions WHERE id = ANY ($1)`, ids},
			{`DELETE FROM duplicate_counts WHERE execution_id = ANY ($1)`, ids},
			// Of a record that never came. One with a record goes with it, however old the count is.
			{`DELETE FROM duplicate_counts WHERE counted_at < $1 AND NOT EXISTS (SELECT 1 FROM executions WHERE id = execution_id)`, before},
			{`DELETE FROM duplicate_reports WHERE reported_at < $1`, before},
			{`DELETE FROM unreadable WHERE at < $1`, before},
		} {
			if _, err := tx.Tx.Exec(ctx, statement.query, statement.arg); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return pruned, nil
}
