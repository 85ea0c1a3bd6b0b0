package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// In an upsert of SQLite the columns on the right are those from before.
const upsertSender = `INSERT INTO senders_seen (workflow_id, node_id, verified_at, handshake_at, refused_at, refused_code, refused_reason, deliveries, without_id, refused)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT DO UPDATE SET
		verified_at = max(verified_at, excluded.verified_at), handshake_at = max(handshake_at, excluded.handshake_at),
		refused_code = CASE WHEN excluded.refused_at >= refused_at THEN excluded.refused_code ELSE refused_code END,
		refused_reason = CASE WHEN excluded.refused_at >= refused_at THEN excluded.refused_reason ELSE refused_reason END,
		refused_at = max(refused_at, excluded.refused_at),
		deliveries = deliveries + excluded.deliveries, without_id = without_id + excluded.without_id, refused = refused + excluded.refused`

// AddSenders implements store.Store.
func (s *Store) AddSenders(ctx context.Context, reportID string, at time.Time, seen []store.SenderSeen) error {
	return s.write(ctx, "add senders", func(tx *sql.Tx) error {
		if fresh, err := isNewReport(ctx, tx, reportID, store.Time(at).UnixMicro()); err != nil || !fresh {
			return err
		}
		return each(ctx, tx, upsertSender, store.StorableSenders(seen), senderValues)
	})
}

func senderValues(one store.SenderSeen) []any {
	return []any{
		one.WorkflowID, one.NodeID, orNever(one.VerifiedAt), orNever(one.HandshakeAt), orNever(one.RefusedAt), one.RefusedCode, one.RefusedReason,
		one.Deliveries, one.WithoutID, one.Refused,
	}
}

const selectSenders = `SELECT workflow_id, node_id, verified_at, handshake_at, refused_at, refused_code, refused_reason, deliveries, without_id, refused FROM senders_seen `

func scanSender(rows *sql.Rows) (one store.SenderSeen, err error) {
	var verified, handshake, refused int64
	err = rows.Scan(&one.WorkflowID, &one.NodeID, &verified, &handshake, &refused, &one.RefusedCode, &one.RefusedReason, &one.Deliveries, &one.WithoutID, &one.Refused)
	one.VerifiedAt, one.HandshakeAt, one.RefusedAt = unlessNever(verified), unlessNever(handshake), unlessNever(refused)
	return one, err
}

// SenderSeen implements store.Store.
func (s *Store) SenderSeen(ctx context.Context, workflowID, nodeID string) (store.SenderSeen, error) {
	found := store.SenderSeen{WorkflowID: workflowID, NodeID: nodeID}
	err := s.read(ctx, "sender seen", func(rows *sql.Rows) (err error) {
		found, err = scanSender(rows)
		return err
	}, selectSenders+`WHERE workflow_id = ? AND node_id = ?`, store.Text(workflowID), store.Text(nodeID))
	return found, err
}

// ForgetSender implements store.Store.
func (s *Store) ForgetSender(ctx context.Context, workflowID, nodeID string) error {
	return s.write(ctx, "forget sender", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM senders_seen WHERE workflow_id = ? AND node_id = ?`, store.Text(workflowID), store.Text(nodeID))
		return err
	})
}

// orNever is 0 for the zero time.
func orNever(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func unlessNever(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return fromMicros(micros)
}
