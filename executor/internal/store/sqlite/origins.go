package sqlite

import (
	"context"
	"database/sql"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// originLookup finds the row numbers of origins within one transaction, and adds missing origins.
// It adds the new origins to the cache only after the transaction has been committed: if the
// transaction is rolled back, their rows do not exist, so no other transaction may use their row
// numbers.
type originLookup struct {
	cache      *relational.OriginCache
	generation uint64 // the cache's generation before the transaction
	added      map[store.Origin]relational.OriginRowIDs
}

// cacheAdded adds the new origins to the cache. Call it after the transaction has been committed.
func (l *originLookup) cacheAdded() { l.cache.Add(l.generation, l.added) }

// findOrAdd returns the row numbers of an origin, and adds the origin if it is new.
func (l *originLookup) findOrAdd(
	ctx context.Context, tx *sql.Tx, origin store.Origin,
) (relational.OriginRowIDs, error) {
	if n, ok := l.cache.Find(origin); ok {
		return n, nil
	}
	if n, ok := l.added[origin]; ok {
		return n, nil
	}
	var n relational.OriginRowIDs
	if _, err := tx.ExecContext(ctx,
		`INSERT INTO workflows (workflow_id) VALUES (?) ON CONFLICT DO NOTHING`,
		origin.WorkflowID); err != nil {
		return n, err
	}
	if err := tx.QueryRowContext(ctx, `SELECT workflow FROM workflows WHERE workflow_id = ?`,
		origin.WorkflowID).Scan(&n.Workflow); err != nil {
		return n, err
	}
	row := []any{
		n.Workflow, origin.NodeID, origin.AccountID, origin.Queue, string(origin.Source),
		origin.TokenID, origin.Sender, origin.Verified,
	}
	if _, err := tx.ExecContext(ctx,
		`INSERT INTO origins (workflow, node_id, account_id, queue, source, token_id, sender,
			verified)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, row...); err != nil {
		return n, err
	}
	if err := tx.QueryRowContext(ctx,
		`SELECT origin FROM origins WHERE workflow = ? AND node_id = ? AND account_id = ?
			AND queue = ?
		AND source = ? AND token_id = ? AND sender = ?
		AND verified = ?`, row...).Scan(&n.Origin); err != nil {
		return n, err
	}
	if l.added == nil {
		l.added = make(map[store.Origin]relational.OriginRowIDs)
	}
	l.added[origin] = n
	return n, nil
}

// EnsureOrigins implements relational.Database. It does nothing: transactions add origins
// themselves.
func (s *Store) EnsureOrigins(context.Context, string, []store.Record) error { return nil }
