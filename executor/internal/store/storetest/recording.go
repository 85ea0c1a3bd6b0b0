package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

var applyTests = map[string]func(*testing.T, store.Store){
	"a new record is read as it was written": func(t *testing.T, s store.Store) {
		full := nthRecord(1)
		full.RerunOf, full.Error = nthID(7), "refused"
		full.StartedAt, full.FinishedAt = epoch.Add(time.Minute), epoch.Add(time.Hour)
		full.Output, full.Attempts = []byte(`{"a":1}`), 3
		full.Status, full.Source = execution.Rejected, execution.SourceRerun
		bare := store.Record{
			ID:         nthID(2),
			Status:     execution.Queued,
			Source:     execution.SourceWebhook,
			AcceptedAt: epoch,
			RecordedAt: epoch,
		}
		applied := applyBatch(t, s, store.Batch{NewRecords: []store.Record{full, bare}})
		wantSameElements(t, "changed", applied.ChangedIDs, []string{nthID(1), nthID(2)})
		wantSameElements(t, "unknown", applied.UnrecordedIDs, nil)
		wantRecord(t, getRecord(t, s, nthID(1)), full)
		wantRecord(t, getRecord(t, s, nthID(2)), bare)
	},
	"the number of the attempt is that of the last report": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nthRecord(1), nthRecord(2))
		attempt := func(step execution.Progress, n int) execution.Progress {
			step.Attempt = n
			return step
		}
		begun, later := epoch.Add(time.Minute), epoch.Add(time.Hour)
		applyBatch(t, s, progressBatch(attempt(runningProgress(1, begun), 1)))
		want := nthRecord(1)
		want.Status, want.StartedAt, want.Attempts = execution.Running, begun, 1
		wantRecord(t, getRecord(t, s, nthID(1)), want)
		// Attempt 2 has begun, so a late report of attempt 1 changes nothing.
		applied := applyBatch(t, s, store.Batch{
			Progress: []execution.Progress{
				attempt(runningProgress(1, later), 2), attempt(runningProgress(1, later), 1),
			},
		})
		wantSameElements(t, "changed", applied.ChangedIDs, []string{nthID(1)})
		applied = applyBatch(t, s, store.Batch{
			Progress: []execution.Progress{attempt(runningProgress(1, later), 2), runningProgress(1,
				later)},
		})
		wantSameElements(t, "changed", applied.ChangedIDs, nil)
		want.Attempts = 2
		wantRecord(t, getRecord(t, s, nthID(1)), want)
		applyBatch(t, s, store.Batch{
			Progress: []execution.Progress{
				attempt(failedProgress(1, later, "no"), 4), attempt(succeededProgress(2, later,
					"1"), 1),
			},
		})
		want.Status, want.FinishedAt, want.Error, want.Attempts = execution.Failed, later, "no", 4
		wantRecord(t, getRecord(t, s, nthID(1)), want)
		quick := nthRecord(2)
		quick.Status, quick.FinishedAt, quick.Output, quick.Attempts = execution.Succeeded, later,
			[]byte("1"), 1
		wantRecord(t, getRecord(t, s, nthID(2)), quick)
	},
	"an execution is canceled once, and stays so": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(6)...)
		at, later := epoch.Add(time.Hour), epoch.Add(2*time.Hour)
		applyBatch(t, s, store.Batch{
			Progress: []execution.Progress{runningProgress(1, epoch), succeededProgress(2, epoch,
				"1")},
		})
		entry := func(id string) store.AuditEntry {
			return store.AuditEntry{ID: "of " + id, At: at, Action: "cancel"}
		}
		request := func(want []string, ids ...string) {
			t.Helper()
			requested, err := s.RequestCancel(t.Context(), ids, at, entry)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(requested)
			wantSameElements(t, "requested", requested, want)
		}
		request([]string{nthID(0), nthID(1)}, nthID(0), nthID(1), nthID(2), nthID(99))
		request(nil, nthID(0), nthID(1)) // already requested above
		entries, err := s.ListAudit(t.Context(), store.AuditFilter{}, store.AuditPosition{}, 10)
		if err != nil || len(entries) != 2 {
			t.Errorf("the audit has %+v, %v", entries, err)
		}
		list := func(filter store.RecordFilter) (ids []string) {
			t.Helper()
			found, err := s.ListOldest(t.Context(), filter, store.RecordPosition{}, 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range found {
				ids = append(ids, r.ID)
			}
			return ids
		}
		wantSameElements(t, "canceling", list(store.RecordFilter{OnlyCanceling: true}), []string{
			nthID(0),
			nthID(1),
		})
		canceled, err := s.Cancel(t.Context(), []string{nthID(0), nthID(1), nthID(2)}, later)
		if err != nil {
			t.Fatal(err)
		}
		// Execution 1 is running, so its runner must cancel it.
		wantSameElements(t, "canceled", canceled, []string{nthID(0)})
		wantSameElements(t, "canceling", list(store.RecordFilter{OnlyCanceling: true}),
			[]string{nthID(1)})
		applyBatch(t, s, store.Batch{
			Progress: []execution.Progress{
				runningProgress(0, later), succeededProgress(0, later, "1"), failedProgress(0,
					later, "late"),
			},
		})
		want := nthRecord(0)
		want.Status, want.CancelRequestedAt, want.FinishedAt = execution.Canceled, at, later
		wantRecord(t, getRecord(t, s, nthID(0)), want)
		// When a runner reports the cancellation, CancelRequestedAt stays unchanged.
		step := runningProgress(1, later)
		step.Status = execution.Canceled
		applyBatch(t, s, store.Batch{Progress: []execution.Progress{step}})
		want = nthRecord(1)
		want.Status, want.StartedAt, want.CancelRequestedAt, want.FinishedAt = execution.Canceled,
			epoch, at, later
		wantRecord(t, getRecord(t, s, nthID(1)), want)
		wantSameElements(t, "canceled", list(store.RecordFilter{Status: execution.Canceled}),
			[]string{
				nthID(0), nthID(1),
			})
		markRequeued(t, s, nthID(1), "again", true)
	},
	"a repeated record is left as it is": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nthRecord(1))
		applyBatch(t, s, store.Batch{Progress: []execution.Progress{runningProgress(1, epoch)}})
		before := getRecord(t, s, nthID(1))
		before.StreamSequence = 99 // updated to the sequence of the redelivered message
		again := nthRecord(1)
		again.WorkflowID, again.AcceptedAt, again.StreamSequence = "other", epoch.Add(time.Hour), 99
		applied := applyBatch(t, s, store.Batch{NewRecords: []store.Record{
			again, nthRecord(2),
			nthRecord(1),
		}})
		wantSameElements(t, "changed", applied.ChangedIDs, []string{nthID(2)})
		wantRecord(t, getRecord(t, s, nthID(1)), before)
	},
	"of two records of one ID in a batch the first counts": func(t *testing.T, s store.Store) {
		first, second := nthRecord(1), nthRecord(1)
		second.NodeID = "second"
		applied := applyBatch(t, s, store.Batch{
			NewRecords: []store.Record{nthRecord(3), first, second, nthRecord(0)},
		})
		wantSameElements(t, "changed", applied.ChangedIDs, []string{nthID(0), nthID(1), nthID(3)})
		wantRecord(t, getRecord(t, s, nthID(1)), first)
	},
	"an empty batch does nothing": func(t *testing.T, s store.Store) {
		for _, batch := range []store.Batch{
			{}, {
				NewRecords: []store.Record{},
				Progress:   []execution.Progress{},
				PutAside:   []store.AsideMessage{},
			},
		} {
			applied := applyBatch(t, s, batch)
			wantSameElements(t, "changed", applied.ChangedIDs, nil)
			wantSameElements(t, "unknown", applied.UnrecordedIDs, nil)
		}
	},
	"the caller's batch is not touched": func(t *testing.T, s store.Store) {
		batch := store.Batch{
			NewRecords: []store.Record{nthRecord(2), nthRecord(1)},
			Progress:   []execution.Progress{failedProgress(1, epoch, "\x00")},
			PutAside:   []store.AsideMessage{{StreamSequence: 2}, {StreamSequence: 1}},
		}
		applyBatch(t, s, batch)
		if batch.NewRecords[0].ID != nthID(2) || batch.Progress[0].Error != "\x00" ||
			batch.PutAside[0].StreamSequence != 2 {
			t.Errorf("changed: %+v", batch)
		}
	},
	"a large batch of which some are there": func(t *testing.T, s store.Store) {
		all := nRecords(300, setIDFromDelivery)
		applied := applyBatch(t, s, store.Batch{NewRecords: slices.Clone(all[100:200])})
		wantSameElements(t, "changed", applied.ChangedIDs, recordIDs(all[100:200]))
		applied = applyBatch(t, s, store.Batch{NewRecords: append(slices.Clone(all), all[0])})
		wantSameElements(t, "changed", applied.ChangedIDs,
			append(recordIDs(all[:100]), recordIDs(all[200:])...))
		for _, r := range all {
			wantRecord(t, getRecord(t, s, r.ID), r)
		}
	},
	"a batch of thousands": func(t *testing.T, s store.Store) {
		const n = 5_000
		batch := store.Batch{NewRecords: nRecords(n)}
		for i := range n {
			batch.Progress = append(batch.Progress, runningProgress(i, epoch), succeededProgress(i,
				epoch, "1"))
			batch.PutAside = append(batch.PutAside, store.AsideMessage{
				StreamSequence: uint64(i) + 1,
				At:             epoch,
			})
		}
		if applied := applyBatch(t, s, batch); len(applied.ChangedIDs) != n ||
			len(applied.UnrecordedIDs) != 0 {
			t.Fatalf("changed %d, unknown %d", len(applied.ChangedIDs), len(applied.UnrecordedIDs))
		}
		records := listRecords(t, s, store.RecordFilter{Status: execution.Succeeded},
			store.RecordPosition{}, 2*n)
		if len(records) != n {
			t.Fatalf("%d records", len(records))
		}
		for i, r := range records {
			if r.ID != nthID(n-1-i) {
				t.Fatalf("record %d is %s", i, r.ID)
			}
		}
		if again := applyBatch(t, s, batch); len(again.ChangedIDs) != 0 {
			t.Errorf("changed by the repetition: %d", len(again.ChangedIDs))
		}
	},
	"what is not there is not found": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nthRecord(1))
		for _, unknown := range []string{
			nthID(2), "", "no uuid", "\x00", "\xff", "' OR 1=1 --",
			"%",
		} {
			if r, err := s.Get(t.Context(), unknown); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("Get %q: %+v, %v", unknown, r, err)
			}
		}
	},
	"many are read at once": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nRecords(store.MaxGetMany)...)
		all := recordIDs(nRecords(store.MaxGetMany))
		for _, c := range []struct{ ask, want []string }{
			{nil, nil},
			{[]string{nthID(3), "unknown", nthID(1), nthID(3)}, []string{nthID(1), nthID(3)}},
			{[]string{"unknown\x00"}, nil},
			{all, all},
		} {
			records, err := s.GetMany(t.Context(), c.ask)
			if err != nil {
				t.Fatal(err)
			}
			wantSameElements(t, "GetMany", recordIDs(records), c.want)
		}
		if _, err := s.GetMany(t.Context(), append(all, "one more")); err == nil {
			t.Error("more than the limit was accepted")
		}
		records, err := s.GetMany(t.Context(), []string{nthID(5)})
		if err != nil {
			t.Fatal(err)
		}
		wantRecord(t, records[0], nthRecord(5))
	},
	"ping answers": func(t *testing.T, s store.Store) {
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	},
}

var progressTests = map[string]func(*testing.T, store.Store){
	"every step from every state": func(t *testing.T, s store.Store) {
		// paths maps each status to the steps that bring a new record into it.
		paths := map[execution.Status][]execution.Status{
			execution.Queued:    nil,
			execution.Running:   {execution.Running},
			execution.Succeeded: {execution.Succeeded},
			execution.Failed:    {execution.Running, execution.Failed},
			execution.Rejected:  nil,
			execution.Canceled:  {execution.Canceled},
		}
		n := 0
		for _, before := range execution.Statuses {
			for _, after := range append(slices.Clone(execution.Statuses), "", "unheard of") {
				n++
				r := nthRecord(n)
				if before == execution.Rejected {
					r.Status = execution.Rejected
				}
				applyNewRecords(t, s, r)
				for _, step := range paths[before] {
					applyBatch(t, s, store.Batch{
						Progress: []execution.Progress{
							withQueueAndWorkflowOf(r, execution.Progress{
								ID:     r.ID,
								Status: step,
								At:     epoch,
								Error:  "before",
								Output: []byte("1"),
							}),
						},
					})
				}
				was := getRecord(t, s, r.ID)
				if was.Status != before {
					t.Fatalf("in state %s, want %s", was.Status, before)
				}
				at := epoch.Add(time.Hour)
				applied := applyBatch(t, s, store.Batch{
					Progress: []execution.Progress{
						withQueueAndWorkflowOf(r, execution.Progress{
							ID:     r.ID,
							Status: after,
							At:     at,
							Error:  "after",
							Output: []byte("2"),
						}),
					},
				})
				want := was
				if after.Follows(before) {
					wantSameElements(t, "changed", applied.ChangedIDs, []string{r.ID})
					want.Status = after
					switch after { //nolint:exhaustive // the others follow nothing
					case execution.Running:
						want.StartedAt = at
					case execution.Succeeded:
						want.FinishedAt, want.Output = at, []byte("2")
					case execution.Failed:
						want.FinishedAt, want.Error = at, "after"
					case execution.Canceled:
						want.FinishedAt, want.CancelRequestedAt = at, at
						want.Error = "after"
					}
				} else {
					wantSameElements(t, "changed", applied.ChangedIDs, nil)
				}
				wantSameElements(t, "unknown", applied.UnrecordedIDs, nil)
				wantRecord(t, getRecord(t, s, r.ID), want)
			}
		}
	},
	"a batch is applied in order, after its records": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nthRecord(1))
		applied := applyBatch(t, s, store.Batch{
			NewRecords: []store.Record{nthRecord(2), nthRecord(3), nthRecord(4)},
			Progress: []execution.Progress{
				// The last of these steps is late: the execution has already failed.
				runningProgress(2, epoch), failedProgress(2, epoch.Add(1*time.Second), "why"),
				succeededProgress(2, epoch.Add(2*time.Second), "1"),
				// The second of these steps is late: the execution has already succeeded.
				succeededProgress(3, epoch.Add(3*time.Second), `"x"`), runningProgress(3, epoch.Add(4*time.Second)),
				// The second of these steps is a duplicate.
				runningProgress(1, epoch.Add(5*time.Second)), runningProgress(1,
					epoch.Add(6*time.Second)),
			},
		})
		wantSameElements(t, "changed", applied.ChangedIDs,
			[]string{nthID(1), nthID(2), nthID(3), nthID(4)})
		want := nthRecord(2)
		want.Status, want.StartedAt, want.FinishedAt, want.Error = execution.Failed, epoch,
			epoch.Add(1*time.Second), "why"
		wantRecord(t, getRecord(t, s, nthID(2)), want)
		want = nthRecord(3)
		want.Status, want.FinishedAt, want.Output = execution.Succeeded, epoch.Add(3*time.Second),
			[]byte(`"x"`)
		wantRecord(t, getRecord(t, s, nthID(3)), want)
		want = nthRecord(1)
		want.Status, want.StartedAt = execution.Running, epoch.Add(5*time.Second)
		wantRecord(t, getRecord(t, s, nthID(1)), want)
	},
	"steps over several batches": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nthRecord(1))
		for _, step := range []execution.Progress{
			runningProgress(1, epoch), runningProgress(1, epoch.Add(time.Second)),
			succeededProgress(1, epoch.Add(2*time.Second), ""),
			failedProgress(1, epoch.Add(3*time.Second), "late"),
			succeededProgress(1, epoch.Add(4*time.Second), "5"),
		} {
			applyBatch(t, s, store.Batch{Progress: []execution.Progress{step}})
		}
		want := nthRecord(1)
		want.Status, want.StartedAt, want.FinishedAt = execution.Succeeded, epoch,
			epoch.Add(2*time.Second)
		wantRecord(t, getRecord(t, s, nthID(1)), want)
	},
	"a final step names the beginning, unless a step before it did": func(
		t *testing.T, s store.Store,
	) {
		began := func(step execution.Progress, at time.Time) execution.Progress {
			step.StartedAt = at
			return step
		}
		at := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Minute) }
		applyNewRecords(t, s, nRecords(4)...)
		applyBatch(t, s, store.Batch{Progress: []execution.Progress{runningProgress(1, at(1))}})
		// The last of these steps belongs to execution 4, whose record has not been applied yet.
		applyBatch(t, s, store.Batch{Progress: []execution.Progress{
			began(succeededProgress(0, at(2), "1"), at(1)), began(failedProgress(1, at(3), "why"),
				at(2)),
			runningProgress(2, at(1)), began(succeededProgress(2, at(3), ""), at(2)),
			failedProgress(3, at(4), "nothing was run"), began(succeededProgress(4, at(9), ""),
				at(8)),
		}})
		applyNewRecords(t, s, nthRecord(4))
		want := nRecords(5)
		want[0].Status, want[0].StartedAt, want[0].FinishedAt, want[0].Output = execution.Succeeded,
			at(1), at(2), []byte("1")
		want[1].Status, want[1].StartedAt, want[1].FinishedAt, want[1].Error = execution.Failed,
			at(1), at(3), "why"
		want[2].Status, want[2].StartedAt, want[2].FinishedAt = execution.Succeeded, at(1), at(3)
		want[3].Status, want[3].FinishedAt, want[3].Error = execution.Failed, at(4),
			"nothing was run"
		want[4].Status, want[4].StartedAt, want[4].FinishedAt = execution.Succeeded, at(8), at(9)
		for i, r := range want {
			wantRecord(t, getRecord(t, s, nthID(i)), r)
		}
	},
	"unknown executions are named once, as they were": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nthRecord(1))
		applied := applyBatch(t, s, store.Batch{Progress: []execution.Progress{
			runningProgress(8, epoch), runningProgress(1, epoch), succeededProgress(8, epoch,
				""), failedProgress(9, epoch, ""),
			{ID: "bad\x00\xff", Status: execution.Running},
			{ID: "", Status: execution.Queued},
		}})
		wantSameElements(t, "unknown", applied.UnrecordedIDs,
			[]string{nthID(8), nthID(9), "bad\x00\xff", ""})
		wantSameElements(t, "changed", applied.ChangedIDs, []string{nthID(1)})
		if applied.DroppedProgress != 0 {
			t.Errorf("dropped %d", applied.DroppedProgress)
		}
	},
	"a step of another queue or workflow changes nothing, and is named once": func(
		t *testing.T, s store.Store,
	) {
		applyNewRecords(t, s, nthRecord(1), nthRecord(2))
		otherQueue, otherWorkflow, unaddressed := runningProgress(1, epoch), failedProgress(1,
			epoch, "forged"),
			succeededProgress(1, epoch, "1")
		otherQueue.Queue, otherWorkflow.WorkflowID = "gpu", "another"
		unaddressed.Queue, unaddressed.WorkflowID = "", ""
		applied := applyBatch(t, s, store.Batch{
			Progress: []execution.Progress{
				otherQueue, otherWorkflow, unaddressed, runningProgress(2, epoch),
			},
		})
		wantSameElements(t, "foreign", applied.MismatchedIDs, []string{nthID(1)})
		wantSameElements(t, "changed", applied.ChangedIDs, []string{nthID(2)})
		wantSameElements(t, "unknown", applied.UnrecordedIDs, nil)
		wantRecord(t, getRecord(t, s, nthID(1)), nthRecord(1))
		// The batch contains a step with the workflow of record 1 between two forged steps with
		// another workflow. Only the step in the middle is applied.
		applied = applyBatch(t, s, store.Batch{
			Progress: []execution.Progress{
				otherWorkflow, succeededProgress(1, epoch, "1"),
				otherWorkflow,
			},
		})
		wantSameElements(t, "foreign", applied.MismatchedIDs, []string{nthID(1)})
		wantSameElements(t, "changed", applied.ChangedIDs, []string{nthID(1)})
		if got := getRecord(t, s, nthID(1)); got.Status != execution.Succeeded {
			t.Errorf("%+v", got)
		}
	},
}
