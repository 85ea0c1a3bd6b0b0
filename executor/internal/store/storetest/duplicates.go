package storetest

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var duplicateTests = map[string]func(*testing.T, store.Store){
	"before and after the record": func(t *testing.T, s store.Store) {
		addDuplicates(t, s, "early", epoch, map[string]int64{nthID(1): 2, nthID(9): 4})
		applyNewRecords(t, s, nthRecord(1), nthRecord(2))
		addDuplicates(t, s, "late", epoch, map[string]int64{nthID(1): 3, nthID(2): 1})
		wantDuplicates(t, s, 1, 5)
		wantDuplicates(t, s, 2, 1)
		applyNewRecords(t, s, nthRecord(1), nthRecord(9)) // a redelivery does not reset the counts
		wantDuplicates(t, s, 1, 5)
		wantDuplicates(t, s, 9, 4)
	},
	"a report is applied once": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nthRecord(1))
		for range 3 {
			addDuplicates(t, s, "report", epoch, map[string]int64{nthID(1): 2})
		}
		addDuplicates(t, s, "report", epoch.Add(time.Hour), map[string]int64{nthID(1): 50})
		wantDuplicates(t, s, 1, 2)
		addDuplicates(t, s, "empty", epoch, nil)
		addDuplicates(t, s, "empty", epoch, map[string]int64{nthID(1): 50})
		wantDuplicates(t, s, 1, 2)
	},
	"thousands in one report": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(20)...)
		counts := make(map[string]int64)
		for i := range 5_000 {
			counts[nthID(i)] = int64(i) + 1
		}
		addDuplicates(t, s, "report", epoch, counts)
		wantDuplicates(t, s, 19, 20)
	},
	"reports at the same time": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(20)...)
		const reporters, reports = 4, 10
		inParallel(t, reporters, func(reporter int) error {
			for n := range reports {
				counts := make(map[string]int64)
				for i := range 20 {
					counts[nthID(i)] = 1
				}
				// Two reporters add each report, which must be counted only once.
				if err := s.AddDuplicates(t.Context(), fmt.Sprint(reporter/2, n), epoch,
					counts); err != nil {
					return err
				}
			}
			return nil
		})
		for i := range 20 {
			wantDuplicates(t, s, i, reporters/2*reports)
		}
	},
}

func wantDuplicates(t *testing.T, s store.Store, n int, want int64) {
	t.Helper()
	if got := getRecord(t, s, nthID(n)).Duplicates; got != want {
		t.Errorf("record %d: %d duplicates, want %d", n, got, want)
	}
	for _, r := range listRecords(t, s, store.RecordFilter{}, store.RecordPosition{},
		math.MaxInt32) {
		if r.ID == nthID(n) && r.Duplicates != want {
			t.Errorf("record %d in the list: %d duplicates, want %d", n, r.Duplicates, want)
		}
	}
}
