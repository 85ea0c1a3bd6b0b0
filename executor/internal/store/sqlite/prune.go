package sqlite

import (
	"context"
	"time"
)

// PruneRecords implements relational.Tx.
func (tx *transaction) PruneRecords(
	ctx context.Context, before time.Time, limit int,
) (pruned int64, err error) {
	const oldest = ` FROM executions WHERE accepted_at < ? ORDER BY accepted_at, id LIMIT ?`
	if _, err := tx.Exec(ctx, `DELETE FROM duplicate_counts WHERE id IN (SELECT id`+oldest+`)`,
		before, limit); err != nil {
		return 0, err
	}
	return tx.Exec(ctx, `DELETE FROM executions WHERE seq IN (SELECT seq`+oldest+`)`, before, limit)
}
