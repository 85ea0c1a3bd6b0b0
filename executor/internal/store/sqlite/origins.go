package sqlite

import (
	"context"
	"database/sql"
	"maps"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// numbers are those of an origin in the dictionaries.
type numbers struct{ workflow, origin int64 }

// maxRemembered bounds how many origins a process remembers. Past it, it begins anew.
const maxRemembered = 100_000

// origins are the numbers that this process knows. Only transactions that write use them, and those come one after the
// other; rows of the dictionaries are never changed or deleted.
type origins struct {
	committed map[store.Origin]numbers
}

// lookup are the numbers of origins within one transaction: what it adds is known to others once it is committed.
type lookup struct {
	known *origins
	added map[store.Origin]numbers
}

func (o *origins) begin() *lookup { return &lookup{known: o} }

// commit is to be called once the transaction is committed.
func (l *lookup) commit() {
	if len(l.added) == 0 {
		return
	}
	if l.known.committed == nil || len(l.known.committed)+len(l.added) > maxRemembered {
		l.known.committed = make(map[store.Origin]numbers)
	}
	maps.Copy(l.known.committed, l.added)
}

// of returns the numbers of an origin, which are new if it is.
func (l *lookup) of(ctx context.Context, tx *sql.Tx, origin store.Origin) (numbers, error) {
	if n, known := l.known.committed[origin]; known {
		return n, nil
	}
	if n, known := l.added[origin]; known {
		return n, nil
	}
	var n numbers
	if _, err := tx.ExecContext(ctx, `INSERT INTO workflows (workflow_id) VALUES (?) ON CONFLICT DO NOTHING`, origin.WorkflowID); err != nil {
		return n, err
	}
	if err := tx.QueryRowContext(ctx, `SELECT workflow FROM workflows WHERE workflow_id = ?`, origin.WorkflowID).Scan(&n.workflow); err != nil {
		return n, err
	}
	row := []any{n.workflow, origin.NodeID, origin.AccountID, origin.Queue, string(origin.Source), origin.TokenID, origin.Sender, origin.Verified}
	if _, err := tx.ExecContext(ctx, `INSERT INTO origins (workflow, node_id, account_id, queue, source, token_id, sender, verified)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, row...); err != nil {
		return n, err
	}
	if err := tx.QueryRowContext(ctx, `SELECT origin FROM origins WHERE workflow = ? AND node_id = ? AND account_id = ? AND queue = ?
		AND source = ? AND token_id = ? AND sender = ? AND verified = ?`, row...).Scan(&n.origin); err != nil {
		return n, err
	}
	if l.added == nil {
		l.added = make(map[store.Origin]numbers)
	}
	l.added[origin] = n
	return n, nil
}
