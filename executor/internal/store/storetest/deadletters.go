package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

var deadLetterTests = map[string]func(*testing.T, store.Store){
	"what failed, until it is requeued, and what could not be decoded": func(
		t *testing.T, s store.Store,
	) {
		records := nRecords(6, func(i int, r *store.Record) {
			r.WorkflowID = []string{"a", "b"}[i%2]
		})
		records[5].Status = execution.Rejected
		applyNewRecords(t, s, records...)
		// Records 0, 1 and 2 fail; records 3 and 4 do not. Messages 11 and 12 have the same time as
		// record 1, and message 13 has the same time as record 4.
		applyBatch(t, s, store.Batch{
			Progress: []execution.Progress{
				withQueueAndWorkflowOf(
					records[0],
					failedProgress(0, epoch, ""),
				),
				withQueueAndWorkflowOf(records[1], failedProgress(1, epoch, "")),
				withQueueAndWorkflowOf(records[2], failedProgress(2, epoch, "")),
				withQueueAndWorkflowOf(
					records[3],
					succeededProgress(3, epoch, ""),
				),
				withQueueAndWorkflowOf(records[4], runningProgress(4, epoch)),
			},
			PutAside: []store.AsideMessage{
				{StreamSequence: 11, Subject: "executions.start.q.a.n", At: records[1].AcceptedAt},
				{StreamSequence: 12, Subject: "executions.start.q.b.n", At: records[1].AcceptedAt},
				{StreamSequence: 13, Subject: "executions.start.q.b.n", At: records[4].AcceptedAt},
			},
		})
		for workflow, want := range map[string][]string{
			"":  {"13", nthID(2), nthID(1), "12", "11", nthID(0)},
			"a": {nthID(2), "11", nthID(0)},
			"b": {"13", nthID(1), "12"},
			"c": nil,
		} {
			for size := 1; size <= 7; size++ {
				if got := listDeadLetters(t, s, store.DeadLetterFilter{WorkflowID: workflow},
					size); !slices.Equal(got, want) {
					t.Errorf("workflow %q, pages of %d: %q, want %q", workflow, size, got, want)
				}
			}
		}

		markRequeued(t, s, nthID(1), "again", true)
		markRequeued(t, s, nthID(1), "once more", false)
		for _, alive := range []string{nthID(3), nthID(4), nthID(5), nthID(99), ""} {
			markRequeued(t, s, alive, "again", false)
		}
		if got, want := listDeadLetters(t, s, store.DeadLetterFilter{}, 2), []string{
			"13", nthID(2), "12", "11", nthID(0),
		}; !slices.Equal(got, want) {
			t.Errorf("after a requeue: %q, want %q", got, want)
		}
		want := records[1]
		want.Status, want.FinishedAt, want.RequeuedAs = execution.Failed, epoch, "again"
		wantRecord(t, getRecord(t, s, nthID(1)), want)
		want = records[3]
		want.Status, want.FinishedAt = execution.Succeeded, epoch
		wantRecord(t, getRecord(t, s, nthID(3)), want)
		// A redelivered start message and a late progress report change neither the status of the
		// failed execution nor its RequeuedAs.
		applyBatch(t, s, store.Batch{
			NewRecords: []store.Record{records[1]},
			Progress: []execution.Progress{withQueueAndWorkflowOf(records[1], succeededProgress(1,
				epoch, ""))},
		})
		if got := getRecord(t, s, nthID(1)); got.RequeuedAs != "again" ||
			got.Status != execution.Failed {
			t.Errorf("%+v", got)
		}
	},
	"filtered by account, workflow, reason and time": testFilteredDeadLetters,
	"dismissed ones leave the list, and stay as they are": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(6)...)
		applyBatch(t, s, store.Batch{
			Progress: []execution.Progress{
				failedProgress(0, epoch, "why"), failedProgress(1, epoch, "why"), failedProgress(2,
					epoch, "why"),
				succeededProgress(3, epoch, ""),
			},
			PutAside: []store.AsideMessage{
				{StreamSequence: 11, Subject: "executions.start.q.wf.n", At: epoch},
				{StreamSequence: 11, Subject: "executions.progress.q.wf.n", At: epoch},
				{StreamSequence: 12, Subject: "executions.start.q.wf.n", At: epoch},
			},
		})
		wantCount := func(limit, want int) {
			t.Helper()
			if n, err := s.CountDeadLetters(t.Context(), limit); err != nil || n != want {
				t.Errorf("%d dead letters, want %d; %v", n, want, err)
			}
		}
		wantCount(100, 6)
		wantCount(4, 4)
		at := epoch.Add(time.Hour)
		dismiss := func(ids []string, messages []store.MessageKey) ([]string, []store.MessageKey) {
			t.Helper()
			dismissed, messageKeys, err := s.Dismiss(t.Context(), ids, messages, at, dismissalEntry)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(dismissed)
			return dismissed, messageKeys
		}
		report := store.MessageKey{StreamSequence: 11, Progress: true}
		all := []string{nthID(1), nthID(0), nthID(3), nthID(4), nthID(99)}
		got, messageKeys := dismiss(all, []store.MessageKey{report, {StreamSequence: 99}})
		if !slices.Equal(got, []string{nthID(0), nthID(1)}) ||
			!slices.Equal(messageKeys, []store.MessageKey{report}) {
			t.Errorf("dismissed %q, %v", got, messageKeys)
		}
		if got, messageKeys = dismiss(all, []store.MessageKey{report}); len(got)+
			len(messageKeys) != 0 {
			t.Errorf("again: %q, %v", got, messageKeys)
		}
		wantCount(100, 3)
		// The audit log has one entry for each of the three dismissed dead letters.
		entries := listAuditIDs(t, s, store.AuditFilter{})
		slices.Sort(entries)
		if want := []string{
			dismissalEntry("", report).ID, dismissalEntry(nthID(0), store.MessageKey{}).ID,
			dismissalEntry(nthID(1), store.MessageKey{}).ID,
		}; !slices.Equal(entries, want) {
			t.Errorf("in the audit: %q, want %q", entries, want)
		}
		if got, want := listDeadLetters(t, s, store.DeadLetterFilter{}, 2),
			[]string{nthID(2), "12", "11"}; !slices.Equal(got, want) {
			t.Errorf("left: %q, want %q", got, want)
		}
		want := nthRecord(0)
		want.Status, want.Error, want.FinishedAt, want.DismissedAt = execution.Failed, "why", epoch,
			at
		wantRecord(t, getRecord(t, s, nthID(0)), want)
		if u, err := s.GetAside(t.Context(), report); err != nil ||
			u.Subject != "executions.progress.q.wf.n" {
			t.Errorf("%+v, %v", u, err)
		}
		// If a dismissed message is put aside again, it does not become a dead letter again.
		applyBatch(t, s, store.Batch{
			PutAside: []store.AsideMessage{
				{StreamSequence: 11, Subject: "executions.progress.q.wf.n", At: epoch},
			},
		})
		wantCount(100, 3)
		// A dismissed dead letter can still be requeued; a requeued one cannot be dismissed.
		markRequeued(t, s, nthID(0), "again", true)
		markRequeued(t, s, nthID(2), "again", true)
		if got, _ = dismiss([]string{nthID(0), nthID(2)}, nil); len(got) != 0 {
			t.Errorf("dismissed %q", got)
		}
		wantCount(100, 2)
	},
	"a replay says of what": func(t *testing.T, s store.Store) {
		want := nthRecord(1)
		want.Source, want.ReplayOf, want.DeliveryID, want.TokenID = execution.SourceRerun, nthID(
			0,
		), "", ""
		applyNewRecords(t, s, want)
		wantRecord(t, getRecord(t, s, nthID(1)), want)
	},
	"of many that requeue at once one does": func(t *testing.T, s store.Store) {
		testConcurrentRequeues(t, s, s, s, s)
	},
}

// testConcurrentRequeues makes all stores mark the same records as requeued at the same time. For
// each record, only one of the calls may succeed.
func testConcurrentRequeues(t *testing.T, stores ...store.Store) {
	t.Helper()
	const n = 30
	applyNewRecords(t, stores[0], nRecords(n)...)
	for i := range n {
		applyBatch(t, stores[0], progressBatch(failedProgress(i, epoch, "")))
	}
	var marked [n]atomic.Int32
	inParallel(t, len(stores), func(worker int) error {
		for i := range n {
			// Each call marks two records. Half of the workers pass the two in the opposite order,
			// which must not cause a deadlock.
			mark := []store.Requeue{
				{ID: nthID(i), ReplacementID: fmt.Sprint("by ", worker)}, {
					ID:            nthID((i + 1) % n),
					ReplacementID: fmt.Sprint("by ", worker),
				},
			}
			if worker%2 == 1 {
				slices.Reverse(mark)
			}
			won, err := stores[worker].MarkRequeued(t.Context(), mark)
			if err != nil {
				return err
			}
			for _, won := range won {
				i := slices.IndexFunc(nRecords(n), func(r store.Record) bool { return r.ID == won })
				marked[i].Add(1)
				if got, err := stores[worker].Get(t.Context(), nthID(i)); err != nil ||
					got.RequeuedAs != fmt.Sprint("by ", worker) {
					return fmt.Errorf("%d: %+v, %w", i, got, err)
				}
			}
		}
		return nil
	})
	for i := range n {
		if got := marked[i].Load(); got != 1 {
			t.Errorf("record %d was requeued %d times", i, got)
		}
	}
	if left := listDeadLetters(t, stores[0], store.DeadLetterFilter{}, n); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

func markRequeued(t *testing.T, s store.Store, id, as string, want bool) {
	t.Helper()
	marked, err := s.MarkRequeued(t.Context(), []store.Requeue{{ID: id, ReplacementID: as}})
	if err != nil || (len(marked) == 1) != want || want && marked[0] != id {
		t.Errorf("MarkRequeued %s: %v, %v", id, marked, err)
	}
}

// listDeadLetters reads the whole list of dead letters in pages of the given size. It returns the
// ID of each record and the stream sequence of each message. To request the next page, it passes
// only those fields of the last dead letter that determine its position.
func listDeadLetters(
	t *testing.T, s store.Store, filter store.DeadLetterFilter, size int,
) (names []string) {
	t.Helper()
	var last store.DeadLetter
	before := time.Time{}
	for {
		page, err := store.ListDeadLetters(t.Context(), s, filter, last, size)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page {
			if !before.IsZero() && d.SortTime().After(before) {
				t.Errorf("%v after %v", d.SortTime(), before)
			}
			before = d.SortTime()
			if d.Record != nil {
				names = append(names, d.Record.ID)
				last = store.DeadLetter{
					Record: &store.Record{ID: d.Record.ID, AcceptedAt: d.Record.AcceptedAt},
				}
			} else {
				names = append(names, fmt.Sprint(d.Message.StreamSequence))
				last = store.DeadLetter{
					Message: &store.AsideMessage{
						StreamSequence: d.Message.StreamSequence,
						At:             d.Message.At,
					},
				}
			}
		}
		if len(page) < size {
			return names
		}
	}
}

func testFilteredDeadLetters(t *testing.T, s store.Store) {
	records := nRecords(12, func(i int, r *store.Record) {
		r.AccountID, r.WorkflowID = []string{"x", "y"}[i%2], []string{"a", "b", "c"}[i%3]
	})
	applyNewRecords(t, s, records...)
	reasons := []string{"timed out: 5 %", "the disk is full"}
	var batch store.Batch
	for i, r := range records {
		batch.Progress = append(batch.Progress, withQueueAndWorkflowOf(r, failedProgress(i, epoch,
			reasons[i/2%2])))
	}
	batch.PutAside = []store.AsideMessage{
		{
			StreamSequence: 3,
			Subject:        "executions.start.q.a.n",
			Reason:         "garbage: 5 %",
			At:             records[3].AcceptedAt,
		},
		{
			StreamSequence: 8,
			Subject:        "executions.start.q.b.n",
			Reason:         "garbage",
			At:             records[8].AcceptedAt,
		},
	}
	applyBatch(t, s, batch)
	for _, f := range []store.DeadLetterFilter{
		{},
		{AccountID: "x"},
		{WorkflowID: "a"},
		{AccountID: "y", WorkflowID: "b"},
		{Reason: "5 %"},
		{Reason: "DISK"},
		{Reason: "disk"},
		{Since: records[3].AcceptedAt},
		{Until: records[8].AcceptedAt},
		{Since: records[3].AcceptedAt.Add(1), Until: records[8].AcceptedAt.Add(1)},
		{WorkflowID: "b", Reason: "full", Since: records[2].AcceptedAt, AccountID: "x"},
	} {
		var want []string
		within := func(at time.Time) bool {
			return !at.Before(f.Since) && (f.Until.IsZero() || at.Before(f.Until))
		}
		for i, r := range slices.Backward(records) {
			if (f.AccountID == "" || f.AccountID == r.AccountID) &&
				(f.WorkflowID == "" || f.WorkflowID == r.WorkflowID) &&
				strings.Contains(reasons[i/2%2], f.Reason) && within(r.AcceptedAt) {
				want = append(want, r.ID)
			}
			for _, u := range batch.PutAside {
				if u.At.Equal(r.AcceptedAt) && f.AccountID == "" &&
					(f.WorkflowID == "" || strings.Contains(u.Subject, "q."+f.WorkflowID+".")) &&
					strings.Contains(u.Reason, f.Reason) && within(u.At) {
					want = append(want, fmt.Sprint(u.StreamSequence))
				}
			}
		}
		for _, size := range []int{1, 3, 100} {
			if got := listDeadLetters(t, s, f, size); !slices.Equal(got, want) {
				t.Errorf("%+v, pages of %d: %q, want %q", f, size, got, want)
			}
		}
	}
}
