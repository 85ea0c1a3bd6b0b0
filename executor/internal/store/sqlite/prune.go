package sqlite

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Prune implements store.Store.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	bound := store.Bound(before).UnixMicro()
	const oldest = ` FROM executions WHERE accepted_at < ? ORDER BY accepted_at, id LIMIT ?`
	var pruned int64
	err := s.write(ctx, "prune", func(tx transaction) error {
		if limit > 0 {
			if _, err := tx.ExecContext(ctx, `DELETE FROM duplicate_counts WHERE id IN (SELECT id`+oldest+`)`, bound, limit); err != nil {
				return err
			}
			result, err := tx.ExecContext(ctx, `DELETE FROM executions WHERE seq IN (SELECT seq`+oldest+`)`, bound, limit)
			if err != nil {
				return err
			}
			if pruned, err = result.RowsAffected(); err != nil {
				return err
			}
		}
		for _, query := range []string{
			// Of a record that never came. One with a record goes with it, however old the count is.
			`DELETE FROM duplicate_counts WHERE counted_at < ? AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.id = duplicate_counts.id)`,
			`DELETE FROM duplicate_reports WHERE reported_at < ?`,
			`DELETE FROM unreadable WHERE at < ?`,
		} {
			if _, err := tx.ExecContext(ctx, query, bound); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return int(pruned), nil
}
