package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	selectOldest = `SELECT id FROM executions WHERE accepted_at < $1 ORDER BY accepted_at, id LIMIT $2`

	// Lock the rows in the order of their IDs, as Apply does, so that the two cannot deadlock.
	lockOldest = `SELECT id FROM executions WHERE id = ANY ($1) ORDER BY id FOR UPDATE`
)

// PruneRecords implements relational.Tx.
func (tx transaction) PruneRecords(
	ctx context.Context, before time.Time, limit int,
) (pruned int64, err error) {
	ids, err := queryRows(ctx, tx, pgx.RowTo[[]byte], selectOldest, before, limit)
	if err != nil {
		return 0, err
	}
	for _, query := range []string{
		lockOldest, `DELETE FROM executions WHERE id = ANY ($1)`,
		`DELETE FROM duplicate_counts WHERE id = ANY ($1)`,
	} {
		if _, err := tx.Tx.Exec(ctx, query, ids); err != nil {
			return 0, err
		}
	}
	return int64(len(ids)), nil
}
