package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// epoch is when the first record of the suite was accepted.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)

// nthID returns the n-th execution ID. IDs sort in the order of their numbers.
func nthID(n int) string { return fmt.Sprintf("%08x-0000-8000-8000-%012x", n, n) }

// nthRecord returns the n-th record, which was accepted n seconds after the epoch. It has a value
// in every field that a new record can have.
func nthRecord(n int) store.Record {
	return store.Record{
		ID:             nthID(n),
		AccountID:      "account",
		WorkflowID:     "workflow",
		NodeID:         "node",
		Queue:          "default",
		Source:         execution.SourceWebhook,
		Status:         execution.Queued,
		DeliveryID:     fmt.Sprint("delivery ", n),
		TokenID:        "token",
		AcceptedAt:     epoch.Add(time.Duration(n) * time.Second),
		RecordedAt:     epoch.Add(time.Duration(n)*time.Second + time.Millisecond),
		ContentType:    "application/json",
		BodyBytes:      int64(n) + 2,
		StreamSequence: uint64(n) + 1, //nolint:gosec // small and positive
	}
}

// nRecords returns nthRecord(0) to nthRecord(n-1). For each record, it calls every function in
// change with the number of the record and a pointer to it, so that the function can change the
// record.
func nRecords(n int, change ...func(int, *store.Record)) []store.Record {
	records := make([]store.Record, n)
	for i := range records {
		records[i] = nthRecord(i)
		for _, c := range change {
			c(i, &records[i])
		}
	}
	return records
}

// setIDFromDelivery sets a record's ID to one computed from its delivery ID, as an ingress does.
// For a record with such an ID, drivers store the delivery ID in a different column than for other
// records.
func setIDFromDelivery(_ int, r *store.Record) {
	r.ID = execution.IDForDelivery(r.WorkflowID, r.NodeID, r.DeliveryID)
}

func recordIDs(records []store.Record) []string {
	all := make([]string, len(records))
	for i, r := range records {
		all[i] = r.ID
	}
	return all
}

func runningProgress(n int, at time.Time) execution.Progress {
	return execution.Progress{
		ID:         nthID(n),
		Queue:      "default",
		WorkflowID: "workflow",
		Status:     execution.Running,
		At:         at,
	}
}

func succeededProgress(n int, at time.Time, output string) execution.Progress {
	return execution.Progress{
		ID:         nthID(n),
		Queue:      "default",
		WorkflowID: "workflow",
		Status:     execution.Succeeded,
		At:         at,
		Output:     []byte(output),
	}
}

func failedProgress(n int, at time.Time, why string) execution.Progress {
	return execution.Progress{
		ID:         nthID(n),
		Queue:      "default",
		WorkflowID: "workflow",
		Status:     execution.Failed,
		At:         at,
		Error:      why,
	}
}

// withQueueAndWorkflowOf returns step with the queue and the workflow of r. Apply ignores a step
// whose queue or workflow differs from the record's.
func withQueueAndWorkflowOf(r store.Record, step execution.Progress) execution.Progress {
	step.Queue, step.WorkflowID = r.Queue, r.WorkflowID
	return step
}

func applyBatch(t *testing.T, s store.Store, batch store.Batch) store.ApplyResult {
	t.Helper()
	applied, err := s.Apply(t.Context(), batch)
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	return applied
}

func applyNewRecords(t *testing.T, s store.Store, records ...store.Record) {
	t.Helper()
	applyBatch(t, s, store.Batch{NewRecords: records})
}

func getRecord(t *testing.T, s store.Store, id string) store.Record {
	t.Helper()
	r, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("Get %s: %v", id, err)
	}
	return r
}

func listRecords(
	t *testing.T, s store.Store, filter store.RecordFilter, after store.RecordPosition, limit int,
) []store.Record {
	t.Helper()
	records, err := s.List(t.Context(), filter, after, limit)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return records
}

func addDuplicates(
	t *testing.T, s store.Store, report string, at time.Time, counts map[string]int64,
) {
	t.Helper()
	if err := s.AddDuplicates(t.Context(), report, at, counts); err != nil {
		t.Fatalf("AddDuplicates: %v", err)
	}
}

func pruneRecords(t *testing.T, s store.Store, before time.Time, limit int) int {
	t.Helper()
	n, err := s.Prune(t.Context(), before, limit)
	if err != nil {
		t.Fatalf("Prune: %v", err)
	}
	return n
}

// wantRecord reports a test error if any field of the two records differs.
func wantRecord(t *testing.T, got, want store.Record) {
	t.Helper()
	if string(got.Output) != string(want.Output) || (got.Output == nil) != (want.Output == nil) {
		t.Errorf("output %q, want %q", got.Output, want.Output)
	}
	for _, at := range []time.Time{got.AcceptedAt, got.RecordedAt, got.StartedAt, got.FinishedAt} {
		if at.Location() != time.UTC {
			t.Errorf("%v is not UTC", at)
		}
	}
	got.Output, want.Output = nil, nil
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("record\n got %s\nwant %s", g, w)
	}
}

// wantSameElements reports a test error unless both lists have the same elements, in any order.
func wantSameElements(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
