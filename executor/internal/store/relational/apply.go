package relational

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, batch store.Batch) (store.Applied, error) {
	if len(batch.New)+len(batch.Progress)+len(batch.PutAside)+len(batch.Recovered)+
		len(batch.Audit)+len(batch.Handled) == 0 {
		return store.Applied{}, nil
	}
	batch = batch.Sanitized()
	if err := s.db.Prepare(ctx, "apply", batch.New); err != nil {
		return store.Applied{}, err
	}
	return write(ctx, s, "apply", func(tx Tx) (store.Applied, error) {
		return s.apply(ctx, tx, batch)
	})
}

// apply acquires locks in the order documented in package postgres.
func (s *Store) apply(
	ctx context.Context, tx Tx, batch store.Batch,
) (applied store.Applied, err error) {
	mayKeepPending, err := tx.LockPending(ctx, batch)
	if err != nil {
		return applied, err
	}
	inserted, err := tx.InsertNew(ctx, batch.New)
	if err != nil {
		return applied, err
	}
	kept, err := takePending(ctx, tx, batch.New)
	if err != nil {
		return applied, err
	}
	if err := storeAside(ctx, tx, batch); err != nil {
		return applied, err
	}
	steps := store.OrderSteps(kept, batch.Progress)
	var moves []store.StateUpdate
	if len(steps) > 0 {
		standing, err := tx.CurrentStates(ctx, store.ProgressIDs(steps))
		if err != nil {
			return applied, err
		}
		moves, applied.Unknown, applied.Foreign = store.ApplyProgress(standing, steps)
		if err := s.storeCauses(ctx, tx, store.Failures(standing, moves)); err != nil {
			return applied, err
		}
	}
	if len(moves) > 0 {
		if err := tx.UpdateStates(ctx, moves); err != nil {
			return applied, err
		}
	}
	applied.Changed = store.ChangedIDs(inserted, moves)
	if mayKeepPending && len(applied.Unknown) > 0 {
		if applied.Dropped, err = keepPending(ctx, tx, batch.Progress,
			applied.Unknown); err != nil {
			return applied, err
		}
	}
	if err := tx.AddMinutes(ctx, store.AcceptedMinutes(inserted)); err != nil {
		return applied, err
	}
	if err := handledRangeTable.insert(ctx, tx, batch.Handled); err != nil {
		return applied, err
	}
	// Do this last, because executors wait for each other on the rows of frequently used tokens.
	return applied, tokenUseTable.insert(ctx, tx, store.TokenUses(inserted))
}

// EndLost implements store.Store.
func (s *Store) EndLost(
	ctx context.Context, lost []store.LostExecution, at time.Time, reason string,
) (ended []string, err error) {
	if len(lost) == 0 {
		return nil, nil
	}
	at, reason = store.StoredTime(at), store.SanitizeText(reason)
	return write(ctx, s, "end lost", func(tx Tx) (ended []string, err error) {
		if ended, err = tx.EndLost(ctx, lost, at, reason); err != nil || s.failure == nil ||
			len(ended) == 0 {
			return ended, err
		}
		standing, err := tx.CurrentStates(ctx, ended)
		if err != nil {
			return nil, err
		}
		return ended, s.storeCauses(ctx, tx,
			store.LostExecutionFailures(standing, ended, at, reason))
	})
}

// MarkRequeued implements store.Store.
func (s *Store) MarkRequeued(
	ctx context.Context, requeued []store.Requeue,
) (marked []string, err error) {
	if len(requeued) == 0 {
		return nil, nil
	}
	return write(ctx, s, "mark requeued", func(tx Tx) ([]string, error) {
		return tx.MarkRequeued(ctx, requeued)
	})
}

// Dismiss implements store.Store.
func (s *Store) Dismiss(
	ctx context.Context, ids []string, messages []store.MessageKey, at time.Time, entry func(
		id string, message store.MessageKey,
	) store.AuditEntry,
) (dismissed []string, messageKeys []store.MessageKey, err error) {
	if len(ids)+len(messages) == 0 {
		return nil, nil, nil
	}
	err = s.db.Write(ctx, "dismiss", func(tx Tx) (err error) {
		if dismissed, messageKeys, err = tx.Dismiss(ctx, ids, messages,
			store.StoredTime(at)); err != nil {
			return err
		}
		return auditTable.insert(ctx, tx, store.DismissedEntries(dismissed, messageKeys, entry))
	})
	if err != nil {
		return nil, nil, err
	}
	return dismissed, messageKeys, nil
}

// Prune implements store.Store.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	before = store.CeilTime(before)
	return s.prune(ctx, "prune", PruningLock, func(tx Tx) (pruned int64, err error) {
		if limit > 0 {
			if pruned, err = tx.PruneRecords(ctx, before, limit); err != nil {
				return 0, err
			}
		}
		for _, query := range []string{
			// These counts belong to executions that were never recorded. A count that has a record
			// is deleted together with the record, however old the count is.
			`DELETE FROM duplicate_counts WHERE counted_at < ? AND NOT EXISTS (SELECT 1
				FROM executions e WHERE e.id = duplicate_counts.id)`,
			`DELETE FROM duplicate_reports WHERE reported_at < ?`,
			`DELETE FROM unreadable WHERE at < ?`,
		} {
			if _, err := tx.Exec(ctx, query, before); err != nil {
				return 0, err
			}
		}
		return pruned, nil
	})
}
