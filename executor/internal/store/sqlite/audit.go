package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	insertAudit = `INSERT INTO audit (id, at, actor_kind, actor_id, actor_name, action, account_id, workflow_id, node_id, changes)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

	selectAudit = `SELECT id, at, actor_kind, actor_id, actor_name, action, account_id, workflow_id, node_id, changes FROM audit `
)

// AddAudit implements store.Store.
func (s *Store) AddAudit(ctx context.Context, entries []store.AuditEntry) error {
	return s.write(ctx, "add audit", func(tx *sql.Tx) error { return each(ctx, tx, insertAudit, entries, auditValues) })
}

func auditValues(e store.AuditEntry) []any {
	e = e.Storable()
	return []any{e.ID, e.At.UnixMicro(), e.ActorKind, e.ActorID, e.ActorName, e.Action, e.AccountID, e.WorkflowID, e.NodeID, e.Changes}
}

func scanAudit(rows *sql.Rows) (e store.AuditEntry, err error) {
	var at int64
	err = rows.Scan(&e.ID, &at, &e.ActorKind, &e.ActorID, &e.ActorName, &e.Action, &e.AccountID, &e.WorkflowID, &e.NodeID, &e.Changes)
	e.At = fromMicros(at)
	return e, err
}

// ListAudit implements store.Store.
func (s *Store) ListAudit(ctx context.Context, filter store.AuditFilter, after store.AuditPosition, limit int) ([]store.AuditEntry, error) {
	terms, args := []string{`true`}, []any{}
	add := func(term string, values ...any) {
		terms, args = append(terms, term), append(args, values...)
	}
	if actor := store.Text(filter.Actor); actor != "" {
		add(`? IN (actor_id, actor_name, actor_kind)`, actor)
	}
	if filter.AccountID != "" {
		add(`account_id = ?`, store.Text(filter.AccountID))
	}
	if filter.WorkflowID != "" {
		add(`workflow_id = ?`, store.Text(filter.WorkflowID))
	}
	if !filter.Since.IsZero() {
		add(`at >= ?`, store.Bound(filter.Since).UnixMicro())
	}
	if !filter.Until.IsZero() {
		add(`at < ?`, store.Bound(filter.Until).UnixMicro())
	}
	if after != (store.AuditPosition{}) {
		add(`(at, id) < (?, ?)`, store.Time(after.At).UnixMicro(), store.Text(after.ID))
	}
	var found []store.AuditEntry
	err := s.read(ctx, "list audit", func(rows *sql.Rows) error {
		e, err := scanAudit(rows)
		found = append(found, e)
		return err
	}, selectAudit+`WHERE `+strings.Join(terms, ` AND `)+` ORDER BY at DESC, id DESC LIMIT ?`, append(args, max(limit, 0))...)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// PruneAudit implements store.Store.
func (s *Store) PruneAudit(ctx context.Context, before time.Time, limit int) (pruned int, err error) {
	err = s.write(ctx, "prune audit", func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, `DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < ? ORDER BY at LIMIT ?)`,
			store.Bound(before).UnixMicro(), max(limit, 0))
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		pruned = int(n)
		return err
	})
	return pruned, err
}
