package storetest

import (
	"reflect"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var filteredRequestTests = map[string]func(*testing.T, store.Store){
	"reports add up, each counts once, and the newest requests stay": func(
		t *testing.T, s store.Store,
	) {
		requests := func(from, to int) (all []store.FilteredRequest) {
			for n := to; n > from; n-- {
				all = append(all, store.FilteredRequest{
					At:         epoch.Add(time.Duration(n) * time.Second),
					DeliveryID: nthID(n),
					Place:      "ptr:/a",
				})
			}
			return all
		}
		add := func(report string, filtered ...store.FilteredSummary) {
			t.Helper()
			if err := s.AddFilteredRequests(t.Context(), report, epoch, filtered); err != nil {
				t.Fatal(err)
			}
		}
		want := func(count int64, last []store.FilteredRequest) {
			t.Helper()
			expected := store.FilteredSummary{
				WorkflowID: "wf",
				NodeID:     "node",
				Count:      count,
				Last:       last,
			}
			if got, err := s.FilteredSummary(t.Context(), "wf", "node"); err != nil ||
				!reflect.DeepEqual(got, expected) {
				t.Errorf("%+v, %v; want %+v", got, err, expected)
			}
		}
		want(0, nil)
		add("none")
		add(
			"one",
			store.FilteredSummary{
				WorkflowID: "wf",
				NodeID:     "node",
				Count:      3,
				Last:       requests(0, 3),
			},
			store.FilteredSummary{WorkflowID: "wf", NodeID: "other", Count: 1},
		)
		want(3, requests(0, 3))
		add("two", store.FilteredSummary{
			WorkflowID: "wf",
			NodeID:     "node",
			Count:      30,
			Last:       requests(3, 18),
		}, store.FilteredSummary{
			WorkflowID: "wf", NodeID: "node", Count: 1, Last: requests(18, 19),
		})
		want(34, requests(0, 19))
		add("two", store.FilteredSummary{WorkflowID: "wf", NodeID: "node", Count: 9})
		want(34, requests(0, 19))
		add("three", store.FilteredSummary{
			WorkflowID: "wf",
			NodeID:     "node",
			Count:      2,
			Last:       requests(19, 21),
		})
		want(36, requests(1, 21))
		const total = 3 + 1 + 30 + 1 + 2 // of all nodes
		if got, err := s.MinuteCounts(t.Context(), epoch); err != nil || len(got) != 1 ||
			!got[0].Minute.Equal(epoch.Truncate(time.Minute)) ||
			got[0].Kind != store.KindFiltered || got[0].Count != total {
			t.Errorf("by minute: %+v, %v; want %d", got, err, total)
		}
		add("odd", store.FilteredSummary{
			WorkflowID: "wf",
			NodeID:     "odd",
			Count:      1,
			Last:       []store.FilteredRequest{{At: epoch, DeliveryID: "a\x00\xff", Place: "<&>"}},
		})
		if got, err := s.FilteredSummary(t.Context(), "wf", "odd"); err != nil ||
			len(got.Last) != 1 ||
			got.Last[0].DeliveryID != store.SanitizeText("a\x00\xff") ||
			got.Last[0].Place != "<&>" {
			t.Errorf("%+v, %v", got, err)
		}
	},
}
