package relational

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// RequestCancel implements store.Cancellations.
func (s *Store) RequestCancel(
	ctx context.Context, ids []string, at time.Time, entry func(id string) store.AuditEntry,
) (requested []string, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return write(ctx, s, "request cancel", func(tx Tx) (requested []string, err error) {
		// LockCurrentStates locks the records, in the same order as in all other transactions.
		standing, err := tx.LockCurrentStates(ctx, ids)
		if err != nil {
			return nil, err
		}
		var going []string
		for id, now := range standing {
			if !now.Status.Final() {
				going = append(going, id)
			}
		}
		if len(going) == 0 {
			return nil, nil
		}
		if err := tx.Query(ctx, func(row Row) error {
			var id []byte
			err := row.Scan(&id)
			requested = append(requested, store.DecodeID(id))
			return err
		}, `UPDATE executions SET cancel_requested_at = ?
			WHERE id = ANY (?::bytea[]) AND cancel_requested_at IS NULL
			RETURNING id`, store.StoredTime(at), ExecutionIDs(going)); err != nil {
			return nil, err
		}
		if entry == nil {
			return requested, nil
		}
		entries := make([]store.AuditEntry, len(requested))
		for i, id := range requested {
			entries[i] = entry(id)
		}
		return requested, auditTable.insert(ctx, tx, entries)
	})
}

// Cancel implements store.Cancellations.
func (s *Store) Cancel(
	ctx context.Context, ids []string, at time.Time,
) (canceled []string, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	at = store.StoredTime(at)
	return write(ctx, s, "cancel", func(tx Tx) (canceled []string, err error) {
		standing, err := tx.LockCurrentStates(ctx, ids)
		if err != nil {
			return nil, err
		}
		var moves []store.StateUpdate
		for id, now := range standing {
			if now.Status == execution.Queued {
				moves = append(moves, store.StateUpdate{
					ID:         id,
					Status:     execution.Canceled,
					FinishedAt: at,
					CanceledAt: at,
				})
				canceled = append(canceled, id)
			}
		}
		if len(moves) == 0 {
			return nil, nil
		}
		return canceled, tx.UpdateStates(ctx, moves)
	})
}
