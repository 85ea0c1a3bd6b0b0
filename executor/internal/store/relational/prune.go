package relational

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Prune implements store.Pruner.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	before = store.CeilTime(before)
	return s.runPrune(ctx, "prune", PruningLock, func(tx Tx) (pruned int64, err error) {
		if limit > 0 {
			if pruned, err = tx.PruneRecords(ctx, before, limit); err != nil {
				return 0, err
			}
			if pruned == int64(limit) {
				// There may be more records to delete. Do not run the queries below after every
				// batch: the first one reads all old counts, including those whose records still
				// exist.
				return pruned, nil
			}
		}
		for _, query := range []string{
			// These counts belong to executions that were never recorded. A count with a record is
			// deleted together with the record, even if the count is old.
			`DELETE FROM duplicate_counts WHERE counted_at < ? AND NOT EXISTS (SELECT 1
				FROM executions e WHERE e.id = duplicate_counts.id)`,
			`DELETE FROM unreadable WHERE at < ?`,
		} {
			if _, err := tx.Exec(ctx, query, before); err != nil {
				return 0, err
			}
		}
		return pruned, nil
	})
}
