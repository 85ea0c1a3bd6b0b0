package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	insertAudit = `INSERT INTO audit (id, at, actor_kind, actor_id, actor_name, action, account_id, workflow_id, node_id, changes)
		SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[])
		ON CONFLICT DO NOTHING`

	selectAudit = `SELECT id, at, actor_kind, actor_id, actor_name, action, account_id, workflow_id, node_id, changes FROM audit `
)

// AddAudit implements store.Store.
func (s *Store) AddAudit(ctx context.Context, entries []store.AuditEntry) error {
	if len(entries) == 0 {
		return nil
	}
	return s.write(ctx, "add audit", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertAudit, auditArrays(entries)...)
		return err
	})
}

func auditArrays(entries []store.AuditEntry) []any {
	text := func(of func(store.AuditEntry) string) []string {
		return column(entries, func(e store.AuditEntry) string { return of(e.Storable()) })
	}
	return []any{
		text(func(e store.AuditEntry) string { return e.ID }),
		column(entries, func(e store.AuditEntry) time.Time { return e.Storable().At }),
		text(func(e store.AuditEntry) string { return e.ActorKind }),
		text(func(e store.AuditEntry) string { return e.ActorID }),
		text(func(e store.AuditEntry) string { return e.ActorName }),
		text(func(e store.AuditEntry) string { return e.Action }),
		text(func(e store.AuditEntry) string { return e.AccountID }),
		text(func(e store.AuditEntry) string { return e.WorkflowID }),
		text(func(e store.AuditEntry) string { return e.NodeID }),
		text(func(e store.AuditEntry) string { return e.Changes }),
	}
}

func scanAudit(row pgx.CollectableRow) (e store.AuditEntry, err error) {
	err = row.Scan(&e.ID, &e.At, &e.ActorKind, &e.ActorID, &e.ActorName, &e.Action, &e.AccountID, &e.WorkflowID, &e.NodeID, &e.Changes)
	e.At = e.At.UTC()
	return e, err
}

// ListAudit implements store.Store.
func (s *Store) ListAudit(ctx context.Context, filter store.AuditFilter, after store.AuditPosition, limit int) ([]store.AuditEntry, error) {
	terms, args := []string{`true`}, []any{max(limit, 0)}
	add := func(term string, values ...any) {
		numbers := make([]any, len(values))
		for i := range values {
			numbers[i] = len(args) + 1 + i
		}
		terms, args = append(terms, fmt.Sprintf(term, numbers...)), append(args, values...)
	}
	if actor := store.Text(filter.Actor); actor != "" {
		add(`$%d IN (actor_id, actor_name, actor_kind)`, actor)
	}
	if filter.AccountID != "" {
		add(`account_id = $%d`, store.Text(filter.AccountID))
	}
	if filter.WorkflowID != "" {
		add(`workflow_id = $%d`, store.Text(filter.WorkflowID))
	}
	if !filter.Since.IsZero() {
		add(`at >= $%d`, store.Bound(filter.Since))
	}
	if !filter.Until.IsZero() {
		add(`at < $%d`, store.Bound(filter.Until))
	}
	if after != (store.AuditPosition{}) {
		add(`(at, id) < ($%d, $%d)`, store.Time(after.At), store.Text(after.ID))
	}
	return read(ctx, s, "list audit", scanAudit, selectAudit+`WHERE `+strings.Join(terms, ` AND `)+` ORDER BY at DESC, id DESC LIMIT $1`, args...)
}

// PruneAudit implements store.Store.
func (s *Store) PruneAudit(ctx context.Context, before time.Time, limit int) (pruned int, err error) {
	err = s.write(ctx, "prune audit", func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, `DELETE FROM audit WHERE id = ANY (ARRAY (SELECT id FROM audit WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED))`,
			store.Bound(before), max(limit, 0))
		pruned = int(done.RowsAffected())
		return err
	})
	return pruned, err
}
