package executor

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/postgres"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
	"github.com/hookstart/hookstart/shared/execution"
)

// BenchmarkApplyBesidePruning measures how much longer recording a batch takes during pruning. It
// records a batch of 250 every 50 ms while 1,000,000 old records are being deleted, and then the
// same number of batches without pruning. With -short, there are 50,000 old records.
func BenchmarkApplyBesidePruning(b *testing.B) {
	for _, database := range []struct {
		name string
		open func(b *testing.B) (store.Store, error)
	}{
		{"SQLite", func(b *testing.B) (store.Store, error) {
			b.Helper()
			return sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "executions.db"))
		}},
		{"PostgreSQL", func(b *testing.B) (store.Store, error) {
			b.Helper()
			return postgres.Open(b.Context(), pgtest.NewDatabase(b))
		}},
	} {
		b.Run(database.name, func(b *testing.B) {
			old := 1_000_000
			if testing.Short() {
				old = 50_000
			}
			for b.Loop() {
				records, err := database.open(b)
				if err != nil {
					b.Fatal(err)
				}
				if err := storetest.Fill(b.Context(), records, old); err != nil {
					b.Fatal(err)
				}
				beside, took := besidePruning(b, records, old)
				alone := appliedUntil(b, records, len(beside), nil)
				b.ReportMetric(took.Seconds(), "pruning-s")
				report(b, "beside", beside)
				report(b, "alone", alone)
				if err := records.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// besidePruning deletes the given number of old records while it records batches. It returns the
// durations of these batches, and how long the deletion took.
func besidePruning(
	b *testing.B, records store.Store, old int,
) (batches []time.Duration, took time.Duration) {
	b.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	before := time.Now().Add(-time.Hour)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	_, singleWriter := records.(*sqlite.Store)
	pruned := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(pruned)
		deleted := 0
		pruneLoop(ctx, "records", log, singleWriter, func(limit int) (int, error) {
			n, err := records.Prune(ctx, before, limit)
			if deleted += n; deleted >= old {
				cancel()
			}
			return n, err
		})
	}()
	batches = appliedUntil(b, records, 0, pruned)
	return batches, time.Since(began)
}

// appliedUntil records one batch every 50 ms and returns how long each of them took. It stops when
// done is closed or, if done is nil, after count batches.
func appliedUntil(
	b *testing.B, records store.Store, count int, done <-chan struct{},
) (took []time.Duration) {
	b.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return took
		case <-tick.C:
		}
		if done == nil && len(took) == count {
			return took
		}
		batch := freshBatch()
		began := time.Now()
		if _, err := records.Apply(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
}

// freshBatch returns a batch of 250 executions that have just been accepted.
func freshBatch() (batch store.Batch) {
	for range 250 {
		delivery := uuid.NewString()
		batch.NewRecords = append(batch.NewRecords, store.Record{
			ID:             execution.IDForDelivery("workflow", "node", delivery),
			AccountID:      "account",
			WorkflowID:     "workflow",
			NodeID:         "node",
			Queue:          "default",
			Source:         execution.SourceWebhook,
			Status:         execution.Queued,
			DeliveryID:     delivery,
			AcceptedAt:     time.Now(),
			RecordedAt:     time.Now(),
			BodyBytes:      1024,
			StreamSequence: 1,
		})
	}
	return batch
}

func report(b *testing.B, name string, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	for q, unit := range map[int]string{50: "p50", 99: "p99", 100: "max"} {
		at := took[(len(took)-1)*q/100]
		b.ReportMetric(float64(at.Microseconds())/1000, fmt.Sprintf("%s-%s-ms", name, unit))
	}
}
