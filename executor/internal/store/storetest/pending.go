package storetest

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

func progressBatch(steps ...execution.Progress) store.Batch { return store.Batch{Progress: steps} }

// fullProgress returns a progress step of the n-th execution with the given status. Every field of
// the step is set.
func fullProgress(t *testing.T, n int, status execution.Status) execution.Progress {
	t.Helper()
	var step execution.Progress
	fillFields(t, reflect.ValueOf(&step).Elem())
	step.ID, step.Queue, step.WorkflowID, step.Status = nthID(n), "default", "workflow", status
	return step
}

var pendingStepTests = map[string]func(*testing.T, store.Store){
	"a step that comes before its record is applied with it": func(t *testing.T, s store.Store) {
		applied := applyBatch(t, s,
			progressBatch(runningProgress(1, epoch), succeededProgress(1, epoch.Add(time.Second), `"x"`),
				runningProgress(2, epoch)))
		wantSameElements(t, "unknown", applied.UnrecordedIDs, []string{nthID(1), nthID(2)})
		applyBatch(t, s,
			progressBatch(failedProgress(1, epoch.Add(2*time.Second), "late"),
				failedProgress(3, epoch.Add(3*time.Second), "bad \x00\xff")))
		// Execution 3 has already ended with the failed step above, so this step is ignored.
		applyBatch(t, s, progressBatch(succeededProgress(3, epoch.Add(4*time.Second), "1")))
		// The pending steps, which arrived before their records, are applied first. The steps of
		// this batch are applied after them.
		applied = applyBatch(t, s, store.Batch{
			NewRecords: nRecords(4),
			Progress: []execution.Progress{
				succeededProgress(2, epoch.Add(5*time.Second), "2"), runningProgress(3, epoch),
			},
		})
		wantSameElements(t, "changed", applied.ChangedIDs,
			[]string{nthID(0), nthID(1), nthID(2), nthID(3)})
		wantSameElements(t, "unknown", applied.UnrecordedIDs, nil)
		want := nRecords(4)
		want[1].Status, want[1].StartedAt, want[1].FinishedAt, want[1].Output = execution.Succeeded,
			epoch, epoch.Add(time.Second), []byte(`"x"`)
		want[2].Status, want[2].StartedAt, want[2].FinishedAt, want[2].Output = execution.Succeeded,
			epoch, epoch.Add(5*time.Second), []byte("2")
		want[3].Status, want[3].FinishedAt, want[3].Error = execution.Failed,
			epoch.Add(3*time.Second), "bad \uFFFD\uFFFD"
		for i, r := range want {
			wantRecord(t, getRecord(t, s, nthID(i)), r)
		}
		// Pending steps are deleted when their records arrive.
		if n := prunePending(t, s); n != 0 {
			t.Errorf("%d are still kept", n)
		}
	},
	"it keeps the number of its attempt": func(t *testing.T, s store.Store) {
		step := succeededProgress(1, epoch, "1")
		step.Attempt = 2
		applyBatch(t, s, progressBatch(step))
		applyBatch(t, s, store.Batch{NewRecords: []store.Record{nthRecord(1)}})
		want := nthRecord(1)
		want.Status, want.FinishedAt, want.Output, want.Attempts = execution.Succeeded, epoch,
			[]byte("1"), 2
		wantRecord(t, getRecord(t, s, nthID(1)), want)
	},
	"no field of it is lost": func(t *testing.T, s store.Store) {
		for n, status := range []execution.Status{
			execution.Running, execution.Succeeded, execution.Failed, execution.Canceled,
		} {
			step := fullProgress(t, 2*n, status)
			applyBatch(t, s, progressBatch(step))
			applyNewRecords(t, s, nthRecord(2*n), nthRecord(2*n+1))
			step.ID = nthID(2*n + 1)
			applyBatch(t, s, progressBatch(step))
			pending, later := getRecord(t, s, nthID(2*n)), getRecord(t, s, nthID(2*n+1))
			if later.Status != status || later.Attempts == 0 {
				t.Errorf("the step %q is not applied: %+v", status, later)
			}
			want := nthRecord(2 * n)
			later.ID, later.DeliveryID, later.AcceptedAt, later.RecordedAt, later.BodyBytes,
				later.StreamSequence = want.ID, want.DeliveryID, want.AcceptedAt, want.RecordedAt,
				want.BodyBytes, want.StreamSequence
			wantRecord(t, pending, later)
		}
	},
	"one of another queue or workflow changes nothing then, either": func(
		t *testing.T, s store.Store,
	) {
		alien, own := failedProgress(1, epoch, "forged"), succeededProgress(1,
			epoch.Add(time.Second), "1")
		alien.WorkflowID = "another"
		applyBatch(t, s, progressBatch(alien, own))
		applied := applyBatch(t, s, store.Batch{NewRecords: []store.Record{nthRecord(1)}})
		wantSameElements(t, "foreign", applied.MismatchedIDs, []string{nthID(1)})
		want := nthRecord(1)
		want.Status, want.FinishedAt, want.Output = execution.Succeeded, own.At, []byte("1")
		wantRecord(t, getRecord(t, s, nthID(1)), want)
	},
	"one that comes again is kept once, and of one execution only so many": func(
		t *testing.T, s store.Store,
	) {
		for range 3 {
			applied := applyBatch(t, s,
				progressBatch(runningProgress(1, epoch), runningProgress(1, epoch)))
			if applied.DroppedProgress != 0 {
				t.Errorf("dropped %d", applied.DroppedProgress)
			}
		}
		forged := store.Batch{}
		for n := range store.MaxPendingStepsPerExecution + 2 {
			step := failedProgress(1, epoch, "forged")
			step.WorkflowID = fmt.Sprint("wf-", n)
			forged.Progress = append(forged.Progress, step)
		}
		if applied := applyBatch(t, s, forged); applied.DroppedProgress != 3 {
			t.Errorf("dropped %d", applied.DroppedProgress)
		}
		if n := prunePending(t, s); n != store.MaxPendingStepsPerExecution {
			t.Errorf("%d are kept", n)
		}
	},
	"what changes nothing is not kept": func(t *testing.T, s store.Store) {
		applyBatch(
			t,
			s,
			progressBatch(
				withQueueAndWorkflowOf(nthRecord(1), execution.Progress{
					ID:     nthID(1),
					Status: execution.Queued,
				}),
				withQueueAndWorkflowOf(nthRecord(1), execution.Progress{
					ID:     nthID(1),
					Status: "unheard of",
				}),
			),
		)
		if n := prunePending(t, s); n != 0 {
			t.Errorf("%d are kept", n)
		}
	},
	"pruned by age": func(t *testing.T, s store.Store) {
		applyBatch(t, s, progressBatch(runningProgress(1, epoch)))
		if n, err := s.PrunePending(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
			t.Errorf("pruned %d, %v", n, err)
		}
		if n := prunePending(t, s); n != 1 {
			t.Errorf("pruned %d", n)
		}
		applyNewRecords(t, s, nthRecord(1))
		wantRecord(t, getRecord(t, s, nthID(1)), nthRecord(1))
	},
}

var lostExecutionTests = map[string]func(*testing.T, store.Store){
	"a lost one ends as failed, for good": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(5)...)
		applyBatch(t, s, progressBatch(runningProgress(1, epoch), succeededProgress(2, epoch, "1")))
		at := epoch.Add(time.Hour)
		var lost []store.LostExecution
		for i := range 4 {
			lost = append(lost,
				store.LostExecution{ID: nthID(i), StreamSequence: nthRecord(i).StreamSequence})
		}
		lost[3].StreamSequence++ // not the sequence of the record, so execution 3 does not end
		lost = append(lost,
			store.LostExecution{ID: nthID(9), StreamSequence: 1},
			store.LostExecution{ID: "\x00", StreamSequence: 1})
		// The second call ends nothing, because executions 0 and 1 have already ended.
		for _, want := range [][]string{{nthID(0), nthID(1)}, nil} {
			ended, err := s.EndLostExecutions(t.Context(), lost, at, "lost")
			if err != nil {
				t.Fatal(err)
			}
			wantSameElements(t, "ended", ended, want)
		}
		applyBatch(t, s, progressBatch(succeededProgress(0, epoch, "1")))
		want := nRecords(5)
		want[0].Status, want[0].FinishedAt, want[0].Error = execution.Failed, at, "lost"
		want[1].Status, want[1].StartedAt, want[1].FinishedAt, want[1].Error = execution.Failed,
			epoch, at, "lost"
		want[2].Status, want[2].FinishedAt, want[2].Output = execution.Succeeded, epoch, []byte("1")
		for i, r := range want {
			wantRecord(t, getRecord(t, s, nthID(i)), r)
		}
		filter := store.RecordFilter{OnlyDeadLetters: true}
		if dead := listRecords(t, s, filter, store.RecordPosition{}, 10); len(dead) != 2 {
			t.Errorf("dead letters: %v", recordIDs(dead))
		}
	},
	"a record that is not final follows its message": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(4)...)
		applyBatch(t, s, progressBatch(runningProgress(1, epoch), succeededProgress(2, epoch, "")))
		again := nRecords(4, func(_ int, r *store.Record) {
			r.StreamSequence, r.NodeID = 99, "other"
		})
		applyNewRecords(t, s, again[:3]...)
		for i, want := range []uint64{99, 99, 3, 4} {
			if got := getRecord(t, s, nthID(i)); got.StreamSequence != want ||
				got.NodeID != "node" {
				t.Errorf("%d: %+v", i, got)
			}
		}
	},
}

// prunePending deletes all pending steps and returns how many there were.
func prunePending(t *testing.T, s store.Store) int {
	t.Helper()
	n, err := s.PrunePending(t.Context(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// testConcurrentReports makes some workers record start messages while others record the reports
// about them. No report may be lost, whether it arrives before or after its start message.
func testConcurrentReports(t *testing.T, stores ...store.Store) {
	t.Helper()
	const n, batch = 600, 5
	inParallel(t, 2*len(stores), func(worker int) error {
		s := stores[worker/2]
		for from := worker / 2 * batch; from < n; from += batch * len(stores) {
			var b store.Batch
			for i := from; i < from+batch; i++ {
				if worker%2 == 0 {
					b.NewRecords = append(b.NewRecords, nthRecord(i))
				} else {
					b.Progress = append(b.Progress, succeededProgress(i, epoch, "1"))
				}
			}
			if _, err := s.Apply(t.Context(), b); err != nil {
				return err
			}
		}
		return nil
	})
	if done := listRecords(t, stores[0], store.RecordFilter{Status: execution.Succeeded},
		store.RecordPosition{},
		2*n); len(done) != n {
		t.Errorf("%d of %d succeeded", len(done), n)
	}
	if kept := prunePending(t, stores[0]); kept != 0 {
		t.Errorf("%d are still kept", kept)
	}
}

// TestPendingLimit tests that the oldest pending step is dropped when there are too many. s must be
// empty. TestPendingLimit first stores a running step and then a succeeded step of one execution.
// It then calls the callback full. Finally, it stores a step of another execution, and exactly one
// step must be dropped: the running step.
//
// A step is dropped if its position is MaxPendingSteps or more below the position of the newest
// step. So that TestPendingLimit need not store that many steps, full must lower the position of
// the running step far enough.
func TestPendingLimit(t *testing.T, s store.Store, full func()) {
	t.Helper()
	applyBatch(t, s, progressBatch(runningProgress(0, epoch), succeededProgress(0, epoch, "0")))
	full()
	applied := applyBatch(t, s, progressBatch(succeededProgress(1, epoch, "1")))
	if applied.DroppedProgress != 1 {
		t.Errorf("dropped %d", applied.DroppedProgress)
	}
	applyNewRecords(t, s, nthRecord(0), nthRecord(1))
	for i := range 2 { // the dropped step is the running step, so both are succeeded
		if got := getRecord(t, s, nthID(i)); got.Status != execution.Succeeded ||
			!got.StartedAt.IsZero() {
			t.Errorf("%+v", got)
		}
	}
}
