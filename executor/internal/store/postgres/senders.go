package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const upsertSenders = `INSERT INTO senders_seen AS s (workflow_id, node_id, verified_at, handshake_at, refused_at, refused_code, refused_reason, deliveries, without_id, refused)
	SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[])
	ON CONFLICT (workflow_id, node_id) DO UPDATE SET
		verified_at = greatest(s.verified_at, excluded.verified_at), handshake_at = greatest(s.handshake_at, excluded.handshake_at),
		refused_code = CASE WHEN excluded.refused_at >= coalesce(s.refused_at, excluded.refused_at) THEN excluded.refused_code ELSE s.refused_code END,
		refused_reason = CASE WHEN excluded.refused_at >= coalesce(s.refused_at, excluded.refused_at) THEN excluded.refused_reason ELSE s.refused_reason END,
		refused_at = greatest(s.refused_at, excluded.refused_at),
		deliveries = s.deliveries + excluded.deliveries, without_id = s.without_id + excluded.without_id, refused = s.refused + excluded.refused`

// AddSenders implements store.Store.
func (s *Store) AddSenders(ctx context.Context, reportID string, at time.Time, seen []store.SenderSeen) error {
	seen = store.StorableSenders(seen)
	return s.write(ctx, "add senders", func(tx pgx.Tx) error {
		if fresh, err := isNewReport(ctx, tx, reportID, store.Time(at)); err != nil || !fresh {
			return err
		}
		_, err := tx.Exec(ctx, upsertSenders, senderArrays(seen)...)
		return err
	})
}

func senderArrays(seen []store.SenderSeen) []any {
	text := func(of func(store.SenderSeen) string) []string { return column(seen, of) }
	moment := func(of func(store.SenderSeen) time.Time) []*time.Time {
		return column(seen, func(one store.SenderSeen) *time.Time { return optional(of(one)) })
	}
	number := func(of func(store.SenderSeen) int64) []int64 { return column(seen, of) }
	return []any{
		text(func(one store.SenderSeen) string { return one.WorkflowID }), text(func(one store.SenderSeen) string { return one.NodeID }),
		moment(func(one store.SenderSeen) time.Time { return one.VerifiedAt }), moment(func(one store.SenderSeen) time.Time { return one.HandshakeAt }),
		moment(func(one store.SenderSeen) time.Time { return one.RefusedAt }),
		text(func(one store.SenderSeen) string { return one.RefusedCode }), text(func(one store.SenderSeen) string { return one.RefusedReason }),
		number(func(one store.SenderSeen) int64 { return one.Deliveries }), number(func(one store.SenderSeen) int64 { return one.WithoutID }),
		number(func(one store.SenderSeen) int64 { return one.Refused }),
	}
}

const selectSenders = `SELECT workflow_id, node_id, verified_at, handshake_at, refused_at, refused_code, refused_reason, deliveries, without_id, refused FROM senders_seen `

func scanSender(row pgx.CollectableRow) (one store.SenderSeen, err error) {
	var verified, handshake, refused *time.Time
	err = row.Scan(&one.WorkflowID, &one.NodeID, &verified, &handshake, &refused, &one.RefusedCode, &one.RefusedReason, &one.Deliveries, &one.WithoutID, &one.Refused)
	for into, at := range map[*time.Time]*time.Time{&one.VerifiedAt: verified, &one.HandshakeAt: handshake, &one.RefusedAt: refused} {
		if at != nil {
			*into = at.UTC()
		}
	}
	return one, err
}

// SenderSeen implements store.Store.
func (s *Store) SenderSeen(ctx context.Context, workflowID, nodeID string) (store.SenderSeen, error) {
	found, err := read(ctx, s, "sender seen", scanSender, selectSenders+`WHERE workflow_id = $1 AND node_id = $2`, store.Text(workflowID), store.Text(nodeID))
	if err != nil || len(found) == 0 {
		return store.SenderSeen{WorkflowID: workflowID, NodeID: nodeID}, err
	}
	return found[0], nil
}

// ForgetSender implements store.Store.
func (s *Store) ForgetSender(ctx context.Context, workflowID, nodeID string) error {
	return s.write(ctx, "forget sender", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM senders_seen WHERE workflow_id = $1 AND node_id = $2`, store.Text(workflowID), store.Text(nodeID))
		return err
	})
}
