package storetest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

var deadLetterTests = map[string]func(*testing.T, store.Store){
	"what failed, until it is requeued, and what could not be decoded": func(t *testing.T, s store.Store) {
		records := several(6, func(i int, r *store.Record) { r.WorkflowID = []string{"a", "b"}[i%2] })
		records[5].Status = execution.Rejected
		record(t, s, records...)
		// 0, 1 and 2 fail; 3 and 4 do not. The messages come between them, one at the time of 1.
		apply(t, s, store.Batch{
			Progress: []execution.Progress{
				of(records[0], failed(0, epoch, "")), of(records[1], failed(1, epoch, "")), of(records[2], failed(2, epoch, "")),
				of(records[3], succeeded(3, epoch, "")), of(records[4], running(4, epoch)),
			},
			Unreadable: []store.Unreadable{
				{StreamSequence: 11, Subject: "executions.start.q.a.n", At: records[1].AcceptedAt},
				{StreamSequence: 12, Subject: "executions.start.q.b.n", At: records[1].AcceptedAt},
				{StreamSequence: 13, Subject: "executions.start.q.b.n", At: records[4].AcceptedAt},
			},
		})
		for workflow, want := range map[string][]string{
			"":  {"13", id(2), id(1), "12", "11", id(0)},
			"a": {id(2), "11", id(0)},
			"b": {"13", id(1), "12"},
			"c": nil,
		} {
			for size := 1; size <= 7; size++ {
				if got := deadLetters(t, s, workflow, size); !slices.Equal(got, want) {
					t.Errorf("workflow %q, pages of %d: %q, want %q", workflow, size, got, want)
				}
			}
		}

		markRequeued(t, s, id(1), "again", true)
		markRequeued(t, s, id(1), "once more", false)
		for _, alive := range []string{id(3), id(4), id(5), id(99), ""} {
			markRequeued(t, s, alive, "again", false)
		}
		if got, want := deadLetters(t, s, "", 2), []string{"13", id(2), "12", "11", id(0)}; !slices.Equal(got, want) {
			t.Errorf("after a requeue: %q, want %q", got, want)
		}
		want := records[1]
		want.Status, want.FinishedAt, want.RequeuedAs = execution.Failed, epoch, "again"
		wantRecord(t, get(t, s, id(1)), want)
		want = records[3]
		want.Status, want.FinishedAt = execution.Succeeded, epoch
		wantRecord(t, get(t, s, id(3)), want)
		// What comes late does not undo it.
		apply(t, s, store.Batch{New: []store.Record{records[1]}, Progress: []execution.Progress{of(records[1], succeeded(1, epoch, ""))}})
		if got := get(t, s, id(1)); got.RequeuedAs != "again" || got.Status != execution.Failed {
			t.Errorf("%+v", got)
		}
	},
	"of many that requeue at once one does": func(t *testing.T, s store.Store) { requeueAtOnce(t, s, s, s, s) },
}

// requeueAtOnce lets each store, at the same time, requeue the same records.
func requeueAtOnce(t *testing.T, stores ...store.Store) {
	t.Helper()
	const n = 30
	record(t, stores[0], several(n)...)
	for i := range n {
		apply(t, stores[0], store.Batch{Progress: []execution.Progress{failed(i, epoch, "")}})
	}
	var marked [n]atomic.Int32
	inParallel(t, len(stores), func(worker int) error {
		for i := range n {
			won, err := stores[worker].MarkRequeued(t.Context(), id(i), fmt.Sprint("by ", worker))
			if err != nil {
				return err
			}
			if won {
				marked[i].Add(1)
				if got, err := stores[worker].Get(t.Context(), id(i)); err != nil || got.RequeuedAs != fmt.Sprint("by ", worker) {
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
	if left := deadLetters(t, stores[0], "", n); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

func markRequeued(t *testing.T, s store.Store, id, as string, want bool) {
	t.Helper()
	if marked, err := s.MarkRequeued(t.Context(), id, as); err != nil || marked != want {
		t.Errorf("MarkRequeued %s: %v, %v", id, marked, err)
	}
}

// deadLetters reads the whole list by pages: an ID for each record, a sequence for each
// message. Of a page's last one, what the order depends on is all that is kept.
func deadLetters(t *testing.T, s store.Store, workflowID string, size int) (names []string) {
	t.Helper()
	var last store.DeadLetter
	before := time.Time{}
	for {
		page, err := store.DeadLetters(t.Context(), s, store.DeadLetterFilter{WorkflowID: workflowID}, last, size)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page {
			if !before.IsZero() && d.At().After(before) {
				t.Errorf("%v after %v", d.At(), before)
			}
			before = d.At()
			if d.Record != nil {
				names = append(names, d.Record.ID)
				last = store.DeadLetter{Record: &store.Record{ID: d.Record.ID, AcceptedAt: d.Record.AcceptedAt}}
			} else {
				names = append(names, fmt.Sprint(d.Message.StreamSequence))
				last = store.DeadLetter{Message: &store.Unreadable{StreamSequence: d.Message.StreamSequence, At: d.Message.At}}
			}
		}
		if len(page) < size {
			return names
		}
	}
}
