package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

var pruneTests = map[string]func(*testing.T, store.Store){
	"the oldest first, at most so many, in any state": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(10)...)
		applyBatch(t, s, store.Batch{
			Progress: []execution.Progress{runningProgress(0, epoch), succeededProgress(1, epoch,
				"")},
		})
		before := nthRecord(7).AcceptedAt
		for _, c := range []struct{ want, left int }{{3, 7}, {3, 4}, {1, 3}, {0, 3}} {
			if n := pruneRecords(t, s, before, 3); n != c.want {
				t.Errorf("pruned %d, want %d", n, c.want)
			}
			left := listRecords(t, s, store.RecordFilter{}, store.RecordPosition{}, 100)
			if len(left) != c.left || left[len(left)-1].ID != nthID(10-c.left) {
				t.Errorf("left: %q", recordIDs(left))
			}
		}
		if n := pruneRecords(t, s, epoch.Add(time.Hour), 0); n != 0 {
			t.Errorf("limit 0 pruned %d", n)
		}
	},
	"duplicates go with their record, or by age without one": func(t *testing.T, s store.Store) {
		hour := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Hour) }
		old, young := nthRecord(1), nthRecord(2)
		young.AcceptedAt = hour(20)
		applyNewRecords(t, s, old, young)
		// Record 1 is old, but its duplicates were counted recently. Record 2 is recent, but its
		// duplicates were counted long ago. IDs 3 and 4 have counts but no record.
		addDuplicates(t, s, "r1", hour(20), map[string]int64{nthID(1): 1})
		addDuplicates(t, s, "r2", hour(1), map[string]int64{nthID(2): 2, nthID(3): 3, nthID(4): 4})
		addDuplicates(t, s, "r3", hour(20), map[string]int64{nthID(4): 40})
		if n := pruneRecords(t, s, hour(10), 100); n != 1 {
			t.Errorf("pruned %d", n)
		}
		applyNewRecords(t, s, nRecords(5)...)
		got := []int64{}
		for i := range 5 {
			got = append(got, getRecord(t, s, nthID(i)).Duplicates)
		}
		if want := []int64{0, 0, 2, 0, 44}; !slices.Equal(got, want) {
			t.Errorf("duplicates %d, want %d", got, want)
		}
		// The reports r2 and r3 have already been applied, so AddDuplicates has no effect. Pruning
		// records does not delete the IDs of applied reports, because the stream may deliver the
		// reports again.
		addDuplicates(t, s, "r2", hour(20), map[string]int64{nthID(0): 5})
		addDuplicates(t, s, "r3", hour(20), map[string]int64{nthID(0): 50})
		wantDuplicates(t, s, 0, 0)
	},
	"counts without a record go when no record is left to delete": func(
		t *testing.T, s store.Store,
	) {
		applyNewRecords(t, s, nRecords(3)...)
		addDuplicates(t, s, "r1", epoch, map[string]int64{nthID(3): 3})
		addDuplicates(t, s, "r2", epoch, map[string]int64{nthID(4): 4})
		before := epoch.Add(time.Hour)
		// If a call deletes as many records as its limit allows, it keeps the counts that have no
		// record. Only the last call deletes them, so that a prune task does not read all old
		// counts again after each batch of records.
		if n := pruneRecords(t, s, before, 2); n != 2 {
			t.Errorf("pruned %d", n)
		}
		applyNewRecords(t, s, nthRecord(3))
		wantDuplicates(t, s, 3, 3)
		if n := pruneRecords(t, s, before, 3); n != 2 {
			t.Errorf("pruned %d", n)
		}
		applyNewRecords(t, s, nthRecord(4))
		wantDuplicates(t, s, 4, 0)
	},
	"while records come and go on": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(2_000)...)
		pruned := make(chan int, 4)
		inParallel(t, 4, func(worker int) error {
			total := 0
			for round := range 10 {
				if worker < 2 {
					n, err := s.Prune(t.Context(), nthRecord(1_000).AcceptedAt, 60)
					if err != nil {
						return err
					}
					total += n
					continue
				}
				batch := store.Batch{}
				counts := make(map[string]int64)
				for i := round * 150; i < round*150+500; i++ {
					batch.Progress = append(batch.Progress, runningProgress(i, epoch))
					counts[nthID(i)] = 1
				}
				if _, err := s.Apply(t.Context(), batch); err != nil {
					return err
				}
				if err := s.AddDuplicates(t.Context(), nthID(worker*100+round), epoch,
					counts); err != nil {
					return err
				}
			}
			pruned <- total
			return nil
		})
		close(pruned)
		total := 0
		for n := range pruned {
			total += n
		}
		// Two workers prune concurrently. Together, they delete each of the 1,000 old records once.
		if total != 1_000 {
			t.Errorf("pruned %d, want 1000", total)
		}
	},
}
