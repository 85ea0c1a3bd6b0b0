package executor

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	pruneEvery = 10 * time.Minute
	// pruneBatch and prunePause keep what is recorded meanwhile from waiting for long: a database that has one writer
	// at a time records between two batches.
	pruneBatch = 500
	prunePause = 20 * time.Millisecond
)

// countsRetention is how long is kept what is counted by the minute. Reports stay in their
// stream for a day, and must be known for longer.
const countsRetention = 7 * 24 * time.Hour

// prune deletes what is past its retention, from now on.
func (e *executor) prune(ctx context.Context) {
	records, c := e.records, e.config
	e.pruning(ctx, "records", func(ctx context.Context) (int, error) {
		return records.Prune(ctx, time.Now().Add(-c.Retention), pruneBatch)
	})
	// Reports whose starts have expired without being recorded.
	e.pruning(ctx, "reports of unknown executions", func(ctx context.Context) (int, error) {
		return records.PruneEarly(ctx, time.Now().Add(-c.StreamMaxAge))
	})
	e.pruning(ctx, "refusals", func(ctx context.Context) (int, error) {
		return records.PruneCounts(ctx, time.Now().Add(-countsRetention), store.MaxRefusals, pruneBatch)
	})
	if c.AuditRetention > 0 {
		e.pruning(ctx, "entries of the audit", func(ctx context.Context) (int, error) {
			return records.PruneAudit(ctx, time.Now().Add(-c.AuditRetention), pruneBatch)
		})
	}
}

// pruning begins to delete now and then, batch by batch.
func (e *executor) pruning(ctx context.Context, what string, batch func(context.Context) (int, error)) {
	e.Go(ctx, func(ctx context.Context) { pruning(ctx, what, e.Log, func() (int, error) { return batch(ctx) }) })
}

// pruning deletes now and then, batch by batch.
func pruning(ctx context.Context, what string, log logrus.FieldLogger, batch func() (int, error)) {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		deleted := 0
		for more := true; more && ctx.Err() == nil; {
			n, err := batch()
			if err != nil && ctx.Err() == nil {
				log.WithError(err).Warn("old " + what + " were not deleted; it is tried again later")
			}
			deleted += n
			if more = err == nil && n == pruneBatch; more {
				select {
				case <-ctx.Done():
				case <-time.After(prunePause):
				}
			}
		}
		if deleted > 0 {
			log.WithField(what, deleted).Info("old " + what + " deleted")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
