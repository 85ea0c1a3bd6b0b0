package executor

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/retry"
)

const (
	pruneInterval = 10 * time.Minute
	// minPruneBatch and maxPruneBatch limit the number of rows deleted in one batch. SQLite has a
	// single writer, so nothing can be recorded while a batch is deleted: if a batch takes longer
	// than maxPruneBatchDuration, the next one is smaller. PostgreSQL can record during a batch, so
	// its batches always have the maximum size, however long they take. They often take longer than
	// maxPruneBatchDuration, because of the round trips and because a batch waits for the batch of
	// another executor.
	maxPruneBatch         = 500
	minPruneBatch         = 20
	maxPruneBatchDuration = 25 * time.Millisecond
	prunePause            = 20 * time.Millisecond
)

// nextBatchSize returns the maximum number of rows of the next batch, given the limit and the
// duration of the last batch.
func nextBatchSize(limit int, took time.Duration) int {
	switch {
	case took > maxPruneBatchDuration:
		return max(minPruneBatch, limit/2)
	case took < maxPruneBatchDuration/2:
		return min(maxPruneBatch, limit*2)
	default:
		return limit
	}
}

// countsRetention is how long per-minute counts and the IDs of applied reports are kept. It must
// exceed the day for which a report stays in its stream: if the report were delivered again after
// its ID was deleted, it would be counted twice.
const countsRetention = 7 * 24 * time.Hour

// startPruneTasks starts one task for each kind of data that is deleted when its retention has
// passed.
func (e *executor) startPruneTasks(ctx context.Context, pruner store.Pruner) {
	c := e.config
	e.startPruneTask(ctx, "records", func(ctx context.Context, limit int) (int, error) {
		return pruner.Prune(ctx, time.Now().Add(-c.Retention), limit)
	})
	// PrunePending deletes reports that are still waiting for the record of their execution. The
	// start messages of these executions have expired, so there will be no record.
	e.startPruneTask(ctx, "reports of unknown executions",
		func(ctx context.Context, _ int) (int, error) {
			return pruner.PrunePending(ctx, time.Now().Add(-c.StreamMaxAge))
		})
	e.startPruneTask(ctx, "refusals", func(ctx context.Context, limit int) (int, error) {
		return pruner.PruneCounts(ctx, time.Now().Add(-countsRetention), store.MaxRefusalRows,
			limit)
	})
	if c.AuditRetention > 0 {
		e.startPruneTask(ctx, "entries of the audit",
			func(ctx context.Context, limit int) (int, error) {
				return pruner.PruneAudit(ctx, time.Now().Add(-c.AuditRetention), limit)
			})
	}
}

// startPruneTask starts a goroutine that calls batch every pruneInterval, and repeats the call
// after a short pause while batch deletes as many rows as limit allows. batch returns the number of
// rows that it has deleted. Log lines call these rows by the name in the parameter what, such as
// "records".
func (e *executor) startPruneTask(
	ctx context.Context, what string, batch func(ctx context.Context, limit int) (int, error),
) {
	singleWriter := !isPostgres(e.config.DatabaseURL)
	e.Go(ctx, func(ctx context.Context) {
		pruneLoop(ctx, what, e.Log, singleWriter, func(limit int) (int, error) {
			return batch(ctx, limit)
		})
	})
}

// pruneLoop calls batch every pruneInterval until ctx is done, and repeats the call after a short
// pause while batch deletes as many rows as limit allows. If singleWriter is true, nothing can be
// recorded while a batch is deleted, so pruneLoop lowers limit after a slow batch. Log lines call
// the rows by the name in the parameter what, such as "records".
func pruneLoop(
	ctx context.Context, what string, log logrus.FieldLogger, singleWriter bool,
	batch func(limit int) (int, error),
) {
	limit := maxPruneBatch
	retry.Every(ctx, pruneInterval, func() {
		deleted := 0
		for more := true; more && ctx.Err() == nil; {
			began := time.Now()
			n, err := batch(limit)
			if err != nil && ctx.Err() == nil {
				log.WithError(err).Warn("could not delete old " + what + "; retrying later")
			}
			deleted += n
			more = err == nil && n == limit
			if singleWriter {
				limit = nextBatchSize(limit, time.Since(began))
			}
			if more {
				retry.Sleep(ctx, prunePause)
			}
		}
		if deleted > 0 {
			log.WithField(what, deleted).Info("old " + what + " deleted")
		}
	})
}
