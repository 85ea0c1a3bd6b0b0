package sqlite

import (
	"context"
	"database/sql"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// MarkRequeued implements store.Store.
func (s *Store) MarkRequeued(ctx context.Context, id, as string) (marked bool, err error) {
	err = s.write(ctx, "mark requeued", func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, `UPDATE executions SET requeued_as = ? WHERE id = ? AND status = 'failed' AND requeued_as = ''`,
			store.Text(as), store.Text(id))
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		marked = n > 0
		return err
	})
	return marked && err == nil, err
}
