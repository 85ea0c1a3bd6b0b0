package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

type openFunc = func(ctx context.Context) (store.Store, error)

var sharedDatabaseTests = map[string]func(*testing.T, openFunc){
	"everything is there after reopening": func(t *testing.T, open openFunc) {
		first := mustOpen(t, open)
		want := nthRecord(1)
		applyNewRecords(t, first, want)
		applyBatch(t, first, store.Batch{
			Progress: []execution.Progress{failedProgress(1, epoch, "why")},
			PutAside: []store.AsideMessage{{StreamSequence: 7, At: epoch}},
		})
		markRequeued(t, first, nthID(1), "again", true)
		addDuplicates(t, first, "report", epoch, map[string]int64{nthID(1): 3, nthID(2): 4})
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		second := closeAtEnd(t, mustOpen(t, open))
		want.Status, want.FinishedAt, want.Error, want.Duplicates, want.RequeuedAs =
			execution.Failed, epoch, "why", 3, "again"
		wantRecord(t, getRecord(t, second, nthID(1)), want)
		addDuplicates(t, second, "report", epoch, map[string]int64{nthID(1): 3})
		applyNewRecords(t, second, nthRecord(2))
		wantDuplicates(t, second, 1, 3)
		wantDuplicates(t, second, 2, 4)
		if found, err := second.ListAside(t.Context(), store.AsideFilter{},
			store.AsidePosition{}, 5); err != nil || len(found) != 1 {
			t.Errorf("put aside: %v, %v", found, err)
		}
		used, err := second.TokensLastUsed(t.Context(), []string{"token"})
		if err != nil || !used["token"].Equal(nthRecord(2).AcceptedAt) {
			t.Errorf("used: %v, %v", used, err)
		}
	},
	"what one returned the other sees": func(t *testing.T, open openFunc) {
		first, other := closeAtEnd(t, mustOpen(t, open)), closeAtEnd(t, mustOpen(t, open))
		for i := range 20 {
			applyNewRecords(t, first, nthRecord(i))
			wantRecord(t, getRecord(t, other, nthID(i)), nthRecord(i))
			first, other = other, first
		}
	},
	"overlapping batches of two": func(t *testing.T, open openFunc) {
		first, other := closeAtEnd(t, mustOpen(t, open)), closeAtEnd(t, mustOpen(t, open))
		testOverlappingBatches(t, first, other, first, other)
	},
	"starts and their reports at once": func(t *testing.T, open openFunc) {
		first, other := closeAtEnd(t, mustOpen(t, open)), closeAtEnd(t, mustOpen(t, open))
		testConcurrentReports(t, first, other)
	},
	"two meet the same new workflows in opposite orders": func(t *testing.T, open openFunc) {
		const batches, size = 20, 50
		stores := []store.Store{closeAtEnd(t, mustOpen(t, open)), closeAtEnd(t, mustOpen(t, open))}
		inParallel(t, len(stores), func(worker int) error {
			for b := range batches {
				batch := store.Batch{NewRecords: nRecords(size, func(i int, r *store.Record) {
					place := i
					if worker == 1 {
						place = size - 1 - i
					}
					n := b*size + place
					*r = nthRecord(n)
					r.ID = nthID(worker*batches*size + n)
					r.WorkflowID, r.TokenID = fmt.Sprint("workflow ", n), fmt.Sprint("token ", n%7)
				})}
				if _, err := stores[worker].Apply(t.Context(), batch); err != nil {
					return err
				}
			}
			return nil
		})
		counts := map[string]int{}
		for _, r := range listRecords(t, stores[0], store.RecordFilter{}, store.RecordPosition{},
			3*batches*size) {
			counts[r.WorkflowID]++
		}
		for n := range batches * size {
			if found := counts[fmt.Sprint("workflow ", n)]; found != 2 {
				t.Fatalf("%d records of workflow %d", found, n)
			}
		}
	},
	"of two that requeue at once one does": func(t *testing.T, open openFunc) {
		first, other := closeAtEnd(t, mustOpen(t, open)), closeAtEnd(t, mustOpen(t, open))
		testConcurrentRequeues(t, first, other, first, other)
	},
	"eight open an empty database at once": func(t *testing.T, open openFunc) {
		inParallel(t, 8, func(worker int) error {
			s, err := open(t.Context())
			if err != nil {
				return err
			}
			if _, err := s.Apply(t.Context(),
				store.Batch{NewRecords: []store.Record{nthRecord(worker)}}); err != nil {
				return err
			}
			return s.Close()
		})
		if found := listRecords(t, closeAtEnd(t, mustOpen(t, open)), store.RecordFilter{},
			store.RecordPosition{},
			100); len(found) != 8 {
			t.Errorf("%d records", len(found))
		}
	},
}

func mustOpen(t *testing.T, open openFunc) store.Store {
	t.Helper()
	s, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
