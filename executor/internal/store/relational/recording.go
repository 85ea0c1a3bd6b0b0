package relational

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Apply implements store.Recording.
func (s *Store) Apply(ctx context.Context, batch store.Batch) (store.ApplyResult, error) {
	if len(batch.NewRecords)+len(batch.Progress)+len(batch.PutAside)+len(batch.RecoveredAside)+
		len(batch.Audit)+len(batch.Handled) == 0 {
		return store.ApplyResult{}, nil
	}
	batch = batch.Sanitized()
	if err := s.db.EnsureOrigins(ctx, "apply", batch.NewRecords); err != nil {
		return store.ApplyResult{}, err
	}
	return write(ctx, s, "apply", func(tx Tx) (store.ApplyResult, error) {
		return s.apply(ctx, tx, batch)
	})
}

// apply records a batch. It acquires locks in the order that package postgres documents.
func (s *Store) apply(
	ctx context.Context, tx Tx, batch store.Batch,
) (applied store.ApplyResult, err error) {
	mayKeepPending, err := tx.LockPendingProgress(ctx, batch)
	if err != nil {
		return applied, err
	}
	inserted, err := tx.InsertNew(ctx, batch.NewRecords)
	if err != nil {
		return applied, err
	}
	kept, err := takePending(ctx, tx, batch.NewRecords)
	if err != nil {
		return applied, err
	}
	if err := storeAsideAndAudit(ctx, tx, batch); err != nil {
		return applied, err
	}
	steps := store.OrderProgress(kept, batch.Progress)
	var moves []store.StateUpdate
	if len(steps) > 0 {
		standing, err := tx.LockCurrentStates(ctx, store.ProgressExecutionIDs(steps))
		if err != nil {
			return applied, err
		}
		moves, applied.UnrecordedIDs, applied.MismatchedIDs = store.ComputeStateUpdates(standing,
			steps)
		failures := store.FailuresFromUpdates(standing, moves)
		if err := s.storeFailureCauses(ctx, tx, failures); err != nil {
			return applied, err
		}
	}
	if len(moves) > 0 {
		if err := tx.UpdateStates(ctx, moves); err != nil {
			return applied, err
		}
	}
	applied.ChangedIDs = store.ChangedIDs(inserted, moves)
	if mayKeepPending && len(applied.UnrecordedIDs) > 0 {
		if applied.DroppedProgress, err = storePendingProgress(ctx, tx, batch.Progress,
			applied.UnrecordedIDs); err != nil {
			return applied, err
		}
	}
	if err := tx.AddMinutes(ctx, store.AcceptedMinuteCounts(inserted)); err != nil {
		return applied, err
	}
	if err := handledRangeTable.insert(ctx, tx, batch.Handled); err != nil {
		return applied, err
	}
	// Store the token uses last, because other executors wait until this transaction releases the
	// rows of frequently used tokens.
	return applied, tokenUseTable.insert(ctx, tx, store.LatestTokenUses(inserted))
}

// EndLostExecutions implements store.Recording.
func (s *Store) EndLostExecutions(
	ctx context.Context, lost []store.LostExecution, at time.Time, reason string,
) (ended []string, err error) {
	if len(lost) == 0 {
		return nil, nil
	}
	at, reason = store.StoredTime(at), store.SanitizeText(reason)
	return write(ctx, s, "end lost", func(tx Tx) (ended []string, err error) {
		if ended, err = tx.EndLostExecutions(ctx, lost, at, reason); err != nil ||
			s.failureCause == nil || len(ended) == 0 {
			return ended, err
		}
		standing, err := tx.LockCurrentStates(ctx, ended)
		if err != nil {
			return nil, err
		}
		return ended, s.storeFailureCauses(ctx, tx,
			store.LostExecutionFailures(standing, ended, at, reason))
	})
}
