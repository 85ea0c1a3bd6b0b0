package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

var countByTimeTests = map[string]func(*testing.T, store.Store){
	"by steps that begin where 1970 says": func(t *testing.T, s store.Store) {
		record(t, s, nRecords(150)...) // one per second from 12:00:00.123456
		got := countByTime(t, s, store.Filter{}, time.Minute)
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
		if got := countByTime(t, s, store.Filter{}, 24*time.Hour); len(got) != 1 ||
			got[0].Records != 150 || !got[0].At.Equal(epoch.Truncate(24*time.Hour)) {
			t.Errorf("a day: %v", got)
		}
	},
	"what the filter shows, without empty steps": func(t *testing.T, s store.Store) {
		record(t, s, nRecords(10, func(i int, r *store.Record) {
			r.AcceptedAt = epoch.Add(time.Duration(i) * time.Hour)
			r.WorkflowID = []string{"a", "b"}[i%2]
			if i > 6 {
				r.Status = execution.Rejected
			}
		})...)
		for _, c := range []struct {
			filter store.Filter
			hours  []int
		}{
			{store.Filter{WorkflowID: "a"}, []int{0, 2, 4, 6, 8}},
			{
				store.Filter{
					WorkflowID: "a",
					Since:      epoch.Add(3 * time.Hour),
					Until:      epoch.Add(8 * time.Hour),
				}, []int{4, 6},
			},
			{store.Filter{Status: execution.Rejected}, []int{7, 8, 9}},
			{store.Filter{Status: execution.Rejected, WorkflowID: "b"}, []int{7, 9}},
			{store.Filter{WorkflowID: "none"}, nil},
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
	t *testing.T, s store.Store, filter store.Filter, step time.Duration,
) []store.IntervalCount {
	t.Helper()
	counts, err := s.CountByTime(t.Context(), filter, step)
	if err != nil {
		t.Fatalf("CountByTime: %v", err)
	}
	return counts
}
