package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// MarkRequeued implements store.Store.
func (s *Store) MarkRequeued(ctx context.Context, id, as string) (marked bool, err error) {
	err = s.write(ctx, "mark requeued", func(tx pgx.Tx) error {
		// Whoever comes second waits here for the row, and then finds that the condition no longer holds.
		result, err := tx.Exec(ctx, `UPDATE executions SET requeued_as = $2 WHERE id = $1 AND trouble = 'failed' AND requeued_as = ''`,
			store.Text(id), store.Text(as))
		marked = result.RowsAffected() > 0
		return err
	})
	return marked && err == nil, err
}
