package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

var listTests = map[string]func(*testing.T, store.Store){
	"the newest first, equal times by ID, over pages of any size": func(
		t *testing.T, s store.Store,
	) {
		records := nRecords(30, func(i int, r *store.Record) {
			r.AcceptedAt = epoch.Add(time.Duration(i/7) * time.Microsecond)
		})
		// IDs are ordered by their bytes, which are compared as unsigned values. Letters come after
		// digits.
		for _, odd := range []string{"f", "9", "a", "7", "8"} {
			r := nthRecord(1)
			r.ID, r.AcceptedAt = odd+r.ID[1:], epoch
			records = append(records, r)
		}
		applyNewRecords(t, s, records...)
		want := slices.Clone(records)
		slices.SortFunc(want, func(a, b store.Record) int {
			if c := b.AcceptedAt.Compare(a.AcceptedAt); c != 0 {
				return c
			}
			return strings.Compare(b.ID, a.ID)
		})
		for _, size := range []int{1, 2, 7, 34, 35, 36, 1000} {
			var got []string
			after := store.RecordPosition{}
			for {
				page := listRecords(t, s, store.RecordFilter{}, after, size)
				got = append(got, recordIDs(page)...)
				if len(page) < size {
					break
				}
				last := page[len(page)-1]
				after = store.RecordPosition{AcceptedAt: last.AcceptedAt, ID: last.ID}
			}
			if !slices.Equal(got, recordIDs(want)) {
				t.Errorf("pages of %d: %q, want %q", size, got, recordIDs(want))
			}
		}
		if none := listRecords(t, s, store.RecordFilter{}, store.RecordPosition{},
			0); len(none) != 0 {
			t.Errorf("limit 0: %d", len(none))
		}
	},
	"a page is not moved by what is newer or gone": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(6)...)
		page := listRecords(t, s, store.RecordFilter{}, store.RecordPosition{}, 3)
		after := store.RecordPosition{AcceptedAt: page[2].AcceptedAt, ID: page[2].ID}
		applyNewRecords(t, s, nthRecord(50))
		pruneRecords(t, s, nthRecord(1).AcceptedAt, 10)
		got := recordIDs(listRecords(t, s, store.RecordFilter{}, after, 3))
		if !slices.Equal(got, []string{nthID(2), nthID(1)}) {
			t.Errorf("%q", got)
		}
		// A position need not be that of a record. This one lies between records 2 and 3.
		between := store.RecordPosition{AcceptedAt: nthRecord(2).AcceptedAt.Add(time.Millisecond)}
		got = recordIDs(listRecords(t, s, store.RecordFilter{}, between, 1))
		if !slices.Equal(got, []string{nthID(2)}) {
			t.Errorf("%q", got)
		}
	},
	"every combination of filters, with pages": func(t *testing.T, s store.Store) {
		records := nRecords(60, func(i int, r *store.Record) {
			r.AcceptedAt = epoch.Add(time.Duration(i/3) * time.Second)
			r.WorkflowID = []string{"a", "b"}[i%2]
			r.AccountID = []string{"acme", "other", "acme"}[i/4%3]
			r.Source = execution.Sources[i/2%2]
			r.DeliveryID = []string{"", "d", "it's %_ ü"}[i%3]
			if i%5 == 4 {
				r.Status = execution.Rejected
			}
		})
		applyNewRecords(t, s, records...)
		for i := range records {
			switch r := &records[i]; {
			case r.Status == execution.Rejected:
			case i%5 == 1:
				applyBatch(
					t,
					s,
					store.Batch{
						Progress: []execution.Progress{withQueueAndWorkflowOf(*r, runningProgress(i,
							epoch))},
					},
				)
				r.Status = execution.Running
			case i%5 == 2:
				applyBatch(t, s, store.Batch{
					Progress: []execution.Progress{
						withQueueAndWorkflowOf(*r,
							failedProgress(i, epoch, []string{
								"Why? %_ it is so", "%_ IT",
								"x%x it",
							}[i%3])),
					},
				})
				r.Status, r.Error = execution.Failed, []string{
					"Why? %_ it is so", "%_ IT", "x%x it",
				}[i%3]
			}
		}
		slices.Reverse(records)
		for n, filter := range filterCombinations() {
			var want []string
			for _, r := range records {
				if matchesFilter(filter, r) {
					want = append(want, r.ID)
				}
			}
			var got []string
			after := store.RecordPosition{}
			for {
				page := listRecords(t, s, filter, after, 25)
				got = append(got, recordIDs(page)...)
				if len(page) < 25 {
					break
				}
				after = store.RecordPosition{AcceptedAt: page[24].AcceptedAt, ID: page[24].ID}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%+v: %q, want %q", filter, got, want)
			}
			if n%5 != 0 {
				// ListOldest uses the same conditions as List, so test it with only every fifth
				// combination of filters. Together, these combinations still include every pair of
				// filter values.
				continue
			}
			slices.Reverse(want)
			if got := listOldest(t, s, filter, 25); !slices.Equal(got, want) {
				t.Fatalf("%+v, the oldest first: %q, want %q", filter, got, want)
			}
		}
	},
	"accounts of few records, and of many origins": func(t *testing.T, s store.Store) {
		records, err := AddAccountRecords(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(records)
		for _, account := range []string{
			AccountOneWorkflow, AccountTwoWorkflows,
			AccountMovedWorkflow, AccountManyNodes,
		} {
			for _, filter := range []store.RecordFilter{
				{AccountID: account},
				{AccountID: account, WorkflowID: "moved"},
				{AccountID: account, Source: execution.SourceRerun},
				{AccountID: account, Since: epoch},
				{AccountID: account, Status: execution.Failed},
				{AccountID: account, DeliveryID: records[7].DeliveryID},
			} {
				var want []string
				for _, r := range records {
					if matchesFilter(filter, r) {
						want = append(want, r.ID)
					}
				}
				got := recordIDs(listRecords(t, s, filter, store.RecordPosition{}, 2_000))
				if !slices.Equal(got, want) {
					t.Errorf("%+v: %q, want %q", filter, got, want)
				}
				slices.Reverse(want)
				if got := listOldest(t, s, filter, 300); !slices.Equal(got, want) {
					t.Errorf("%+v, the oldest first: %q, want %q", filter, got, want)
				}
			}
		}
	},
	"bounds finer than a microsecond": func(t *testing.T, s store.Store) {
		r := nthRecord(1)
		r.AcceptedAt = epoch
		applyNewRecords(t, s, r)
		for _, c := range []struct {
			filter store.RecordFilter
			want   int
		}{
			{store.RecordFilter{Since: epoch}, 1},
			{store.RecordFilter{Since: epoch.Add(1)}, 0},
			{store.RecordFilter{Until: epoch}, 0},
			{store.RecordFilter{Until: epoch.Add(1)}, 1},
		} {
			if got := len(listRecords(t, s, c.filter, store.RecordPosition{}, 5)); got != c.want {
				t.Errorf("%+v: %d, want %d", c.filter, got, c.want)
			}
		}
		if n := pruneRecords(t, s, epoch, 5); n != 0 {
			t.Errorf("pruned %d", n)
		}
		if n := pruneRecords(t, s, epoch.Add(1), 5); n != 1 {
			t.Errorf("pruned %d", n)
		}
	},
}

// listOldest reads a whole list, oldest first, size records at a time, and returns the IDs.
func listOldest(t *testing.T, s store.Store, filter store.RecordFilter, size int) (all []string) {
	t.Helper()
	after := store.RecordPosition{}
	for {
		page, err := s.ListOldest(t.Context(), filter, after, size)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, recordIDs(page)...)
		if len(page) < size {
			return all
		}
		after = store.RecordPosition{AcceptedAt: page[size-1].AcceptedAt, ID: page[size-1].ID}
	}
}

func filterCombinations() []store.RecordFilter {
	filters := []store.RecordFilter{{}}
	add := func(set ...func(*store.RecordFilter)) {
		for _, f := range slices.Clone(filters) {
			for _, change := range set {
				with := f
				change(&with)
				filters = append(filters, with)
			}
		}
	}
	add(func(f *store.RecordFilter) {
		f.AccountID = "acme"
	}, func(f *store.RecordFilter) { f.AccountID = "none" })
	add(func(f *store.RecordFilter) {
		f.WorkflowID = "a"
	}, func(f *store.RecordFilter) { f.WorkflowID = "none" })
	add(func(f *store.RecordFilter) {
		f.Status = execution.Queued
	}, func(f *store.RecordFilter) { f.Status = execution.Running },
		func(f *store.RecordFilter) {
			f.Status = execution.Failed
		}, func(f *store.RecordFilter) { f.Status = execution.Rejected })
	add(func(f *store.RecordFilter) { f.Source = execution.SourceRerun })
	add(func(f *store.RecordFilter) {
		f.DeliveryID = "d"
	}, func(f *store.RecordFilter) { f.DeliveryID = "it's %_ ü" },
		func(f *store.RecordFilter) { f.DeliveryPrefix = "it's %_ " })
	add(func(f *store.RecordFilter) { f.Reason = "%_ it" })
	add(func(f *store.RecordFilter) { f.Since = epoch.Add(5 * time.Second) })
	add(func(f *store.RecordFilter) { f.Until = epoch.Add(15 * time.Second) })
	return filters
}

func matchesFilter(f store.RecordFilter, r store.Record) bool {
	return (f.AccountID == "" || f.AccountID == r.AccountID) &&
		(f.WorkflowID == "" || f.WorkflowID == r.WorkflowID) &&
		(f.Status == "" || f.Status == r.Status) &&
		(f.Source == "" || f.Source == r.Source) &&
		(f.DeliveryID == "" || f.DeliveryID == r.DeliveryID) &&
		strings.HasPrefix(r.DeliveryID, f.DeliveryPrefix) && strings.Contains(r.Error, f.Reason) &&
		!r.AcceptedAt.Before(f.Since) && (f.Until.IsZero() || r.AcceptedAt.Before(f.Until))
}

var countByTimeTests = map[string]func(*testing.T, store.Store){
	"by steps that begin where 1970 says": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(150)...) // one per second from 12:00:00.123456
		got := countByTime(t, s, store.RecordFilter{}, time.Minute)
		noon := epoch.Truncate(time.Hour)
		want := []store.IntervalCount{
			{At: noon, Records: 60}, {At: noon.Add(time.Minute), Records: 60}, {
				At:      noon.Add(2 * time.Minute),
				Records: 30,
			},
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if got := countByTime(t, s, store.RecordFilter{}, 24*time.Hour); len(got) != 1 ||
			got[0].Records != 150 || !got[0].At.Equal(epoch.Truncate(24*time.Hour)) {
			t.Errorf("a day: %v", got)
		}
	},
	"what the filter shows, without empty steps": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(10, func(i int, r *store.Record) {
			r.AcceptedAt = epoch.Add(time.Duration(i) * time.Hour)
			r.WorkflowID = []string{"a", "b"}[i%2]
			if i > 6 {
				r.Status = execution.Rejected
			}
		})...)
		for _, c := range []struct {
			filter store.RecordFilter
			hours  []int
		}{
			{store.RecordFilter{WorkflowID: "a"}, []int{0, 2, 4, 6, 8}},
			{
				store.RecordFilter{
					WorkflowID: "a",
					Since:      epoch.Add(3 * time.Hour),
					Until:      epoch.Add(8 * time.Hour),
				}, []int{4, 6},
			},
			{store.RecordFilter{Status: execution.Rejected}, []int{7, 8, 9}},
			{store.RecordFilter{Status: execution.Rejected, WorkflowID: "b"}, []int{7, 9}},
			{store.RecordFilter{WorkflowID: "none"}, nil},
		} {
			var want []store.IntervalCount
			for _, h := range c.hours {
				want = append(want, store.IntervalCount{
					At:      epoch.Truncate(time.Hour).Add(time.Duration(h) * time.Hour),
					Records: 1,
				})
			}
			if got := countByTime(t, s, c.filter, time.Hour); !slices.Equal(got, want) {
				t.Errorf("%+v: %v, want %v", c.filter, got, want)
			}
		}
	},
}

func countByTime(
	t *testing.T, s store.Store, filter store.RecordFilter, step time.Duration,
) []store.IntervalCount {
	t.Helper()
	counts, err := s.CountByTime(t.Context(), filter, step)
	if err != nil {
		t.Fatalf("CountByTime: %v", err)
	}
	return counts
}
