package relational

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var auditTable = table[store.AuditEntry]{
	name: "audit",
	columns: "id, at, actor_kind, actor_id, actor_name, action, account_id, workflow_id, " +
		"node_id, changes",
	fields: func(e *store.AuditEntry) []any {
		return []any{
			&e.ID,
			timeField{&e.At},
			&e.ActorKind, &e.ActorID, &e.ActorName, &e.Action, &e.AccountID,
			&e.WorkflowID, &e.NodeID, &e.Changes,
		}
	},
	onConflict:  "ON CONFLICT DO NOTHING",
	backupOrder: "at, id",
	partRows:    func(p *store.BackupPart) *[]store.AuditEntry { return &p.Audit },
}

// AddAudit implements store.AuditLog.
func (s *Store) AddAudit(ctx context.Context, entries []store.AuditEntry) error {
	return s.db.Write(ctx, "add audit",
		func(tx Tx) error { return auditTable.insert(ctx, tx, entries) })
}

// ListAudit implements store.AuditLog.
func (s *Store) ListAudit(
	ctx context.Context, filter store.AuditFilter, after store.AuditPosition, limit int,
) ([]store.AuditEntry, error) {
	var where Where
	if filter.Actor != "" {
		where.Add(`? IN (actor_id, actor_name, actor_kind)`, store.SanitizeText(filter.Actor))
	}
	where.AddEquals(`account_id`, filter.AccountID)
	where.AddEquals(`workflow_id`, filter.WorkflowID)
	where.AddTimeRange(`at`, filter.Since, filter.Until)
	if after != (store.AuditPosition{}) {
		where.Add(`(at, id) < (?, ?)`, store.StoredTime(after.At), store.SanitizeText(after.ID))
	}
	return Collect(ctx, s.db, "list audit", auditTable.scan,
		auditTable.selectClause()+where.String()+` ORDER BY at DESC, id DESC LIMIT ?`,
		append(where.Args, max(limit, 0))...)
}

// PruneAudit implements store.Pruner.
func (s *Store) PruneAudit(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.runPrune(ctx, "prune audit", PruningLock, func(tx Tx) (int64, error) {
		return tx.Exec(ctx,
			`DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < ? ORDER BY at LIMIT ?)`,
			store.CeilTime(before), max(limit, 0))
	})
}
