package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// epochMinute is epoch truncated to the minute: 12:00 UTC.
var epochMinute = epoch.Truncate(time.Minute)

// nthMinuteRefusals returns a RefusalCount with n refusals in the minute that begins m minutes
// after noon. The last refusal came s seconds after the start of that minute.
func nthMinuteRefusals(workflow, code string, m, s int, n int64) store.RefusalCount {
	minute := epochMinute.Add(time.Duration(m) * time.Minute)
	return store.RefusalCount{
		WorkflowID: workflow, Code: code, Minute: minute, Count: n,
		Last: store.RefusedRequest{
			At:        minute.Add(time.Duration(s) * time.Second),
			BodyBytes: int64(s),
			UserAgent: fmt.Sprintf("agent/%d.%d", m, s),
		},
	}
}

var refusalCountTests = map[string]func(*testing.T, store.Store){
	"refusals by workflow and code, with the last request": func(t *testing.T, s store.Store) {
		addRefusals(t, s, "r1", nthMinuteRefusals("a", "token_invalid", 0, 30, 3),
			nthMinuteRefusals("b", "token_invalid", 0, 40, 1),
			nthMinuteRefusals("", "workflow_not_found", 0, 1, 9))
		addRefusals(t, s, "r2", nthMinuteRefusals("a", "json_invalid", 1, 10, 2),
			nthMinuteRefusals("a", "token_invalid", 2, 5, 4))
		addRefusals(t, s, "late", nthMinuteRefusals("a", "token_invalid", 0, 20, 10),
			nthMinuteRefusals("a", "json_invalid", 1, 50, 1))
		want := []store.RefusalSum{
			{Code: "token_invalid", Count: 17, Last: nthMinuteRefusals("a", "", 2, 5, 0).Last},
			{Code: "json_invalid", Count: 3, Last: nthMinuteRefusals("a", "", 1, 50, 0).Last},
		}
		wantRefusals(t, s, "a", epochMinute, want...)
		wantRefusals(t, s, "a", epochMinute.Add(time.Minute+time.Second), store.RefusalSum{
			Code:  "token_invalid",
			Count: 4,
			Last:  want[0].Last,
		}, want[1])
		wantRefusals(t, s, "", epochMinute, store.RefusalSum{
			Code:  "workflow_not_found",
			Count: 9,
			Last:  nthMinuteRefusals("", "", 0, 1, 0).Last,
		})
		wantRefusals(t, s, "none", epochMinute)
		wantRefusals(t, s, "a", epochMinute.Add(time.Hour))
	},
	"refusals of all workflows, the last first, by pages": func(t *testing.T, s store.Store) {
		addRefusals(t, s, "r1", nthMinuteRefusals("a", "token_invalid", 0, 30, 3),
			nthMinuteRefusals("b", "token_invalid", 2, 40, 1),
			nthMinuteRefusals("", "workflow_not_found", 1, 1, 9))
		addRefusals(t, s, "r2", nthMinuteRefusals("b", "json_invalid", 2, 40, 2),
			nthMinuteRefusals("a", "token_invalid", 1, 1, 4),
			nthMinuteRefusals("B", "json_invalid", 2, 40, 6))
		sum := func(workflow, code string, m, s int, n int64) store.WorkflowRefusalSum {
			return store.WorkflowRefusalSum{
				WorkflowID: workflow,
				RefusalSum: store.RefusalSum{
					Code:  code,
					Count: n,
					Last:  nthMinuteRefusals(workflow, code, m, s, n).Last,
				},
			}
		}
		all := []store.WorkflowRefusalSum{
			sum("b", "token_invalid", 2, 40, 1), sum("b", "json_invalid", 2, 40, 2),
			sum("B", "json_invalid", 2, 40, 6),
			sum("a", "token_invalid", 1, 1, 7), sum("", "workflow_not_found", 1, 1, 9),
		}
		for limit := range len(all) + 2 {
			var after store.RefusalPosition
			for at := 0; at <= len(all); at++ {
				got, err := s.AllRefusals(t.Context(), epochMinute, after, limit)
				if want := all[at:min(at+limit, len(all))]; err != nil || !slices.Equal(got, want) {
					t.Errorf("%d after %+v\n got %+v, %v\nwant %+v", limit, after, got, err, want)
				}
				if at < len(all) {
					after = store.RefusalPosition{
						LastAt:     all[at].Last.At,
						WorkflowID: all[at].WorkflowID,
						Code:       all[at].Code,
					}
				}
			}
		}
		later := []store.WorkflowRefusalSum{
			all[0], all[1], all[2], sum("a", "token_invalid", 1, 1, 4), all[4],
		}
		if got, err := s.AllRefusals(t.Context(), epochMinute.Add(90*time.Second),
			store.RefusalPosition{}, 9); err != nil || !slices.Equal(got, later) {
			t.Errorf("since the next minute: %+v, %v", got, err)
		}
	},
	"a report of refusals is applied once": func(t *testing.T, s store.Store) {
		for range 3 {
			addRefusals(t, s, "report", nthMinuteRefusals("a", "token_invalid", 0, 30, 3))
		}
		wantRefusals(t, s, "a", epochMinute, store.RefusalSum{
			Code:  "token_invalid",
			Count: 3,
			Last:  nthMinuteRefusals("a", "", 0, 30, 0).Last,
		})
		wantMinuteCounts(t, s, epochMinute, nthMinuteCount(0, "refused:token_invalid", 3))
	},
	"one key twice in a report": func(t *testing.T, s store.Store) {
		addRefusals(t, s, "report", nthMinuteRefusals("a", "rate_limited", 0, 40, 1),
			nthMinuteRefusals("a", "rate_limited", 0, 30, 2))
		wantRefusals(t, s, "a", epochMinute, store.RefusalSum{
			Code:  "rate_limited",
			Count: 3,
			Last:  nthMinuteRefusals("a", "", 0, 40, 0).Last,
		})
		wantMinuteCounts(t, s, epochMinute, nthMinuteCount(0, "refused:rate_limited", 3))
	},
	"hostile texts": func(t *testing.T, s store.Store) {
		r := nthMinuteRefusals("a", "token_invalid", 0, 1, 1)
		r.Last.UserAgent = "a\x00b\xff"
		addRefusals(t, s, "r\x00", r)
		addRefusals(t, s, "empty")
		sums, err := s.Refusals(t.Context(), "a", epochMinute)
		if err != nil || len(sums) != 1 || sums[0].Last.UserAgent != "a\ufffdb\ufffd" {
			t.Errorf("%+v, %v", sums, err)
		}
	},
	"by the minute: accepted once, no reruns, no rejections": func(t *testing.T, s store.Store) {
		records := nRecords(100, func(i int, r *store.Record) {
			switch i {
			case 1:
				r.Source = execution.SourceRerun
			case 2:
				r.Status = execution.Rejected
			}
		})
		applyNewRecords(t, s, records...)
		applyNewRecords(t, s, records...)
		addDuplicates(t, s, "d1", epoch, map[string]int64{nthID(1): 2, nthID(2): 3})
		addDuplicates(t, s, "d1", epoch, map[string]int64{nthID(1): 2, nthID(2): 3})
		addDuplicates(t, s, "d2", epoch.Add(time.Minute), map[string]int64{nthID(1): 1})
		addRefusals(t, s, "r", nthMinuteRefusals("a", "token_invalid", 1, 1, 2),
			nthMinuteRefusals("b", "token_invalid", 1, 1, 5),
			nthMinuteRefusals("", "not_found", 1, 1, 1))
		// The records are one second apart, and the first one is 0.123 seconds after the start of
		// the first minute. So the first minute has 60 records and the second has 40. Two of the
		// first 60 do not count as accepted: the rerun and the rejection.
		wantMinuteCounts(t, s, epochMinute, nthMinuteCount(0, "accepted", 58),
			nthMinuteCount(0, "deduplicated", 5),
			nthMinuteCount(1, "accepted", 40), nthMinuteCount(1, "deduplicated", 1),
			nthMinuteCount(1, "refused:not_found", 1),
			nthMinuteCount(1, "refused:token_invalid", 7))
		wantMinuteCounts(t, s, epochMinute.Add(90*time.Second),
			nthMinuteCount(1, "accepted", 40), nthMinuteCount(1, "deduplicated", 1),
			nthMinuteCount(1, "refused:not_found", 1),
			nthMinuteCount(1, "refused:token_invalid", 7))
	},
	"pruned by age, and down to a number": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nthRecord(0), nthRecord(300))
		var all []store.RefusalCount
		for m := range 10 {
			all = append(all, nthMinuteRefusals("a", "token_invalid", m, 0, 1),
				nthMinuteRefusals("b", "token_invalid", m, 0, 1))
		}
		addRefusals(t, s, "r", all...)
		at := func(m int) time.Time { return epochMinute.Add(time.Duration(m) * time.Minute) }
		for _, c := range []struct{ before, keep, limit, want, left int }{
			{0, 100, 100, 0, 20}, {2, 100, 3, 3, 17}, {2, 100, 3, 1, 16}, {2, 100, 3, 0, 16}, {
				2, 6, 0, 0, 16,
			}, {2, 6, 100, 10, 6}, {2, 6, 100, 0, 6},
		} {
			n, err := s.PruneCounts(t.Context(), at(c.before), c.keep, c.limit)
			if err != nil || n != c.want {
				t.Errorf("%+v: pruned %d, %v", c, n, err)
			}
			left := int64(0)
			for _, workflow := range []string{"a", "b"} {
				sums, err := s.Refusals(t.Context(), workflow, epochMinute)
				if err != nil || len(sums) != 1 {
					t.Fatalf("%+v: %+v, %v", c, sums, err)
				}
				left += sums[0].Count
			}
			if left != int64(c.left) {
				t.Errorf("%+v: left %d", c, left)
			}
		}
		counts, err := s.MinuteCounts(t.Context(), time.Time{})
		if err != nil || len(counts) != 9 || !counts[0].Minute.Equal(at(2)) {
			t.Errorf("%v, %v", counts, err)
		}
		// PruneCounts also deletes the ID of the report "r", so the report can be applied again.
		if _, err := s.PruneCounts(t.Context(), at(10), 100, 100); err != nil {
			t.Fatal(err)
		}
		addRefusals(t, s, "r", nthMinuteRefusals("c", "token_invalid", 11, 0, 1))
		wantMinuteCounts(t, s, epochMinute, nthMinuteCount(11, "refused:token_invalid", 1))
	},
	"reports and batches at the same time": func(t *testing.T, s store.Store) {
		const workers, rounds = 4, 10
		inParallel(t, workers, func(worker int) error {
			for n := range rounds {
				batch := store.Batch{}
				for i := range 20 {
					batch.NewRecords = append(batch.NewRecords, nthRecord((worker*rounds+n)*20+i))
					batch.NewRecords[i].AcceptedAt = epoch
				}
				if _, err := s.Apply(t.Context(), batch); err != nil {
					return err
				}
				var report []store.RefusalCount
				for i := range 20 {
					report = append(report,
						nthMinuteRefusals(fmt.Sprint("w", (i*7+worker)%20), "token_invalid", 0, i,
							1))
				}
				// Two workers add each report, which must be counted only once.
				if err := s.AddRefusals(t.Context(), fmt.Sprint("r", worker/2, n), epoch,
					report); err != nil {
					return err
				}
				if _, err := s.PruneCounts(t.Context(), epochMinute, 1000, 5); err != nil {
					return err
				}
			}
			return nil
		})
		wantMinuteCounts(t, s, epochMinute, nthMinuteCount(0, "accepted", workers*rounds*20),
			nthMinuteCount(0, "refused:token_invalid", workers/2*rounds*20))
	},
}

func nthMinuteCount(m int, kind string, n int64) store.MinuteCount {
	minute := epochMinute.Add(time.Duration(m) * time.Minute)
	return store.MinuteCount{Minute: minute, Kind: kind, Count: n}
}

func addRefusals(t *testing.T, s store.Store, report string, refusals ...store.RefusalCount) {
	t.Helper()
	if err := s.AddRefusals(t.Context(), report, epoch, refusals); err != nil {
		t.Fatalf("AddRefusals: %v", err)
	}
}

func wantRefusals(
	t *testing.T, s store.Store, workflow string, since time.Time, want ...store.RefusalSum,
) {
	t.Helper()
	got, err := s.Refusals(t.Context(), workflow, since)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("refusals of %q\n got %+v, %v\nwant %+v", workflow, got, err, want)
	}
}

func wantMinuteCounts(t *testing.T, s store.Store, since time.Time, want ...store.MinuteCount) {
	t.Helper()
	got, err := s.MinuteCounts(t.Context(), since)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("minutes since %s\n got %v, %v\nwant %v", since, got, err, want)
	}
}
