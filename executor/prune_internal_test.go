package executor

import (
	"testing"
	"time"
)

// If the database is slow, pruning deletes small batches, because new records wait while a batch is
// deleted.
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
