package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

var concurrentTests = map[string]func(*testing.T, store.Store){
	"overlapping batches": func(t *testing.T, s store.Store) {
		testOverlappingBatches(t, s, s, s,
			s)
	},
	"overlapping large batches": func(t *testing.T, s store.Store) {
		all := nRecords(1_000, setIDFromDelivery)
		var mu sync.Mutex
		var changed []string
		inParallel(t, 4, func(int) error {
			for range 8 {
				order := rand.Perm(len(all)) // #nosec G404 -- a test's order
				var batch store.Batch
				for _, i := range order[:250] {
					batch.NewRecords = append(batch.NewRecords, all[i])
				}
				applied, err := s.Apply(t.Context(), batch)
				if err != nil {
					return err
				}
				mu.Lock()
				changed = append(changed, applied.ChangedIDs...)
				mu.Unlock()
			}
			return nil
		})
		wantSameElements(t, "changed", changed,
			slices.Compact(slices.Sorted(slices.Values(changed))))
		if records, err := s.List(t.Context(), store.RecordFilter{}, store.RecordPosition{},
			2*len(all)); err != nil || len(records) != len(changed) {
			t.Errorf("%d records, %d inserted, %v", len(records), len(changed), err)
		}
	},
	"ranges are merged and forgotten": func(t *testing.T, s store.Store) {
		const ranges, kept = 200, 100
		for round := range 10 {
			stream := fmt.Sprint("stream-", round)
			for n := range uint64(ranges) {
				once := handledRange(stream, 2*n+1, 2*n+1)
				// Add each range twice. There are so many duplicate ranges that HandledRanges not
				// only merges the ranges that it returns, but also replaces the rows in the
				// database with the merged ranges.
				applyBatch(t, s, store.Batch{Handled: []store.HandledRange{once, once}})
			}
			inParallel(t, 4, func(worker int) error {
				if worker == 0 {
					return s.ForgetHandled(t.Context(), stream, "then", 2*kept)
				}
				got, err := s.HandledRanges(t.Context(), stream, "then")
				if err == nil && len(got) != ranges && len(got) != kept {
					err = fmt.Errorf("%d ranges, want %d or %d", len(got), ranges, kept)
				}
				return err
			})
			got, err := s.HandledRanges(t.Context(), stream, "then")
			if err != nil || len(got) != kept {
				t.Errorf("%d ranges after all, want %d; %v", len(got), kept, err)
			}
		}
	},
	"reading while writing": func(t *testing.T, s store.Store) {
		inParallel(t, 4, func(worker int) error {
			for i := range 20 {
				if worker == 0 {
					if _, err := s.Apply(t.Context(),
						store.Batch{NewRecords: nRecords(20 * (i + 1))}); err != nil {
						return err
					}
					continue
				}
				records, err := s.List(t.Context(), store.RecordFilter{}, store.RecordPosition{},
					1_000)
				if err != nil {
					return err
				}
				if len(records)%20 != 0 {
					return fmt.Errorf("saw %d records: half a batch", len(records))
				}
			}
			return nil
		})
	},
}

// testOverlappingBatches makes all stores apply the same messages concurrently, each store in
// different batches and in a different order. In total, the stores must change each record exactly
// as often as a single store that applies the messages alone.
func testOverlappingBatches(t *testing.T, stores ...store.Store) {
	t.Helper()
	const n, rounds = 300, 2
	var mu sync.Mutex
	changes := make(map[string]int) // by batch kind and ID
	count := func(kind string, changed []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range changed {
			changes[kind+id]++
		}
	}
	inParallel(t, len(stores), func(worker int) error {
		s := stores[worker]
		for range rounds {
			order := rand.Perm(n) // #nosec G404 -- a test's order
			for start := 0; start < n; start += 75 {
				var fresh, steps, aside store.Batch
				for _, i := range order[start : start+75] {
					fresh.NewRecords = append(fresh.NewRecords, nthRecord(i))
					steps.Progress = append(steps.Progress, runningProgress(i, epoch),
						succeededProgress(i, epoch, "1"))
					//nolint:gosec // positive
					aside.PutAside = append(aside.PutAside, store.AsideMessage{
						StreamSequence: uint64(i) + 1,
						At:             epoch,
					})
				}
				fresh.PutAside = aside.PutAside
				applied, err := s.Apply(t.Context(), fresh)
				if err != nil {
					return err
				}
				count("new", applied.ChangedIDs)
				// This batch repeats the records and messages of the previous batch, and adds
				// steps. 20 of the steps belong to random records, which other workers may be
				// inserting at the same time.
				steps.NewRecords, steps.PutAside = fresh.NewRecords, fresh.PutAside
				for range 20 {
					// #nosec G404 -- a test's order.
					steps.Progress = append(steps.Progress, runningProgress(rand.IntN(n), epoch))
				}
				applied, err = s.Apply(t.Context(), steps)
				if err != nil {
					return err
				}
				if len(applied.ChangedIDs) > 95 {
					return fmt.Errorf("changed %d", len(applied.ChangedIDs))
				}
			}
		}
		return nil
	})
	for i := range n {
		if c := changes["new"+nthID(i)]; c != 1 {
			t.Errorf("record %d was new %d times", i, c)
		}
	}
	done := listRecords(t, stores[0], store.RecordFilter{Status: execution.Succeeded},
		store.RecordPosition{}, 2*n)
	if len(done) != n {
		t.Errorf("%d of %d succeeded", len(done), n)
	}
}

// inParallel calls the function do n times concurrently, with the numbers 0 to n-1, and fails the
// test if a call returns an error.
func inParallel(t *testing.T, n int, do func(worker int) error) {
	t.Helper()
	var all sync.WaitGroup
	for worker := range n {
		all.Go(func() {
			if err := do(worker); err != nil {
				t.Errorf("worker %d: %v", worker, err)
			}
		})
	}
	all.Wait()
}
