package relational

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// senderActivityTable is the table of sender activity, by node. In its ON CONFLICT clause, each
// assignment reads the row as it was before the update, so the order of the assignments does not
// matter.
var senderActivityTable = table[store.SenderActivity]{
	name: "senders_seen",
	columns: "workflow_id, node_id, verified_at, handshake_at, refused_at, refused_code, " +
		"refused_reason, deliveries, without_id, refused",
	fields: func(s *store.SenderActivity) []any {
		verified, handshake, refused := optionalTimeField{
			timeField{&s.VerifiedAt},
		}, optionalTimeField{
			timeField{&s.HandshakeAt},
		}, optionalTimeField{
			timeField{&s.RefusedAt},
		}
		return []any{
			&s.WorkflowID, &s.NodeID, verified, handshake, refused, &s.RefusedCode,
			&s.RefusedReason, &s.Deliveries, &s.WithoutID, &s.Refused,
		}
	},
	onConflict: `ON CONFLICT (workflow_id, node_id) DO UPDATE SET
		verified_at = greatest(senders_seen.verified_at, excluded.verified_at),
		handshake_at = greatest(senders_seen.handshake_at, excluded.handshake_at),
		refused_code = CASE WHEN excluded.refused_at >= coalesce(senders_seen.refused_at,
		excluded.refused_at) THEN excluded.refused_code ELSE senders_seen.refused_code END,
		refused_reason = CASE WHEN excluded.refused_at >= coalesce(senders_seen.refused_at,
		excluded.refused_at) THEN excluded.refused_reason ELSE senders_seen.refused_reason END,
		refused_at = greatest(senders_seen.refused_at, excluded.refused_at),
		deliveries = senders_seen.deliveries + excluded.deliveries,
		without_id = senders_seen.without_id + excluded.without_id,
		refused = senders_seen.refused + excluded.refused`,
	backupOrder: "workflow_id, node_id",
	partRows:    func(p *store.BackupPart) *[]store.SenderActivity { return &p.Senders },
}

// AddSenderActivity implements store.Reports.
func (s *Store) AddSenderActivity(
	ctx context.Context, reportID string, at time.Time, seen []store.SenderActivity,
) error {
	seen = store.StorableSenderActivity(seen)
	return s.applyReportOnce(ctx, "add senders", reportID, at, func(tx Tx) error {
		return senderActivityTable.insert(ctx, tx, seen)
	})
}

// SenderActivity implements store.Senders.
func (s *Store) SenderActivity(
	ctx context.Context, workflowID, nodeID string,
) (store.SenderActivity, error) {
	found, err := Collect(
		ctx,
		s.db,
		"sender seen",
		senderActivityTable.scan,
		senderActivityTable.selectClause()+`WHERE workflow_id = ? AND node_id = ?`,
		store.SanitizeText(workflowID),
		store.SanitizeText(nodeID),
	)
	if err != nil || len(found) == 0 {
		return store.SenderActivity{WorkflowID: workflowID, NodeID: nodeID}, err
	}
	return found[0], nil
}

// RefusedSenders implements store.Senders.
func (s *Store) RefusedSenders(ctx context.Context) ([]store.SenderActivity, error) {
	return Collect(ctx, s.db, "senders refused", senderActivityTable.scan,
		senderActivityTable.selectClause()+`WHERE refused > 0 ORDER BY workflow_id, node_id`)
}

// ForgetSender implements store.Senders.
func (s *Store) ForgetSender(ctx context.Context, workflowID, nodeID string) error {
	return s.db.Write(ctx, "forget sender", func(tx Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM senders_seen WHERE workflow_id = ? AND node_id = ?`,
			store.SanitizeText(workflowID), store.SanitizeText(nodeID))
		return err
	})
}

// ForgetWorkflowReports implements store.Senders. The transactions that add reports lock the rows
// in a different order, so ForgetWorkflowReports acquires a lock that makes them wait.
func (s *Store) ForgetWorkflowReports(ctx context.Context, workflowID string) error {
	return s.db.Write(ctx, "forget workflow", func(tx Tx) error {
		if err := tx.Lock(ctx, PruningLock, true); err != nil {
			return err
		}
		for _, table := range []string{"senders_seen", "filtered", "refusals"} {
			if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE workflow_id = ?`,
				store.SanitizeText(workflowID)); err != nil {
				return err
			}
		}
		return nil
	})
}
