package executor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hookstart/hookstart/shared/ops/logtest"
)

// If a database has a single writer, new records must wait while a batch is deleted. In a slow
// database, pruning therefore deletes small batches.
func TestPruningTakesSmallBatchesOfASlowDatabase(t *testing.T) {
	perRow := func(row time.Duration) (limit int, took time.Duration) {
		limit = maxPruneBatch
		for range 100 {
			limit = nextBatchSize(limit, time.Duration(limit)*row)
		}
		return limit, time.Duration(limit) * row
	}
	if limit, _ := perRow(10 * time.Microsecond); limit != maxPruneBatch {
		t.Errorf("a fast database deletes %d at once", limit)
	}
	if limit, took := perRow(time.Millisecond); took > maxPruneBatchDuration {
		t.Errorf("a slow database deletes %d at once, in %v", limit, took)
	}
	if limit, _ := perRow(time.Second); limit != minPruneBatch {
		t.Errorf("a very slow database deletes %d at once", limit)
	}
}

// If the database can record while a batch is deleted, pruning always deletes large batches, even
// if they take long.
func TestPruningTakesLargeBatchesBesideOtherWriters(t *testing.T) {
	t.Parallel()
	for singleWriter, want := range map[bool]int{false: maxPruneBatch, true: minPruneBatch} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			batches := 0
			pruneLoop(ctx, "records", logtest.Discard(), singleWriter,
				func(limit int) (int, error) {
					<-time.After(2 * maxPruneBatchDuration) // round trips
					if batches++; batches == 20 {
						if limit != want {
							t.Errorf("single writer %v: deletes %d at once", singleWriter, limit)
						}
						cancel()
					}
					return limit, nil
				})
		})
	}
}
