package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// Carried tests a store with a database that was created by a schema of a version with wider
// records, with n records that the drivers' tests insert. Each record exists once, unchanged.
func Carried(t *testing.T, s store.Store, n int) {
	t.Helper()
	all, err := s.List(t.Context(), store.Filter{}, store.Position{}, 2*n)
	if err != nil || len(all) != n {
		t.Fatalf("%d records, %v", len(all), err)
	}
	for i, r := range all {
		number := n - i
		at := time.UnixMicro(1767225600000000).UTC()
		want := store.Record{
			ID: fmt.Sprintf("%08x-0000-8000-8000-%012x", number, number), AccountID: "account", WorkflowID: fmt.Sprint("workflow-", number%7), NodeID: "node", Queue: "default",
			Source: execution.Webhook, Status: execution.Succeeded, DeliveryID: fmt.Sprint("delivery-", number), TokenID: "token",
			AcceptedAt: at.Add(time.Duration(number/3) * time.Microsecond), RecordedAt: at.Add(time.Duration(number) * time.Microsecond),
			FinishedAt: at.Add(time.Duration(2*number) * time.Microsecond), ContentType: "text/plain", BodyBytes: int64(number), StreamSequence: uint64(number), //nolint:gosec // small and positive
			Output: []byte("1"),
		}
		if number%10 == 0 {
			want.Status, want.Error = execution.Failed, "an error"
		}
		if got, want := fmt.Sprintf("%+v", r), fmt.Sprintf("%+v", want); got != want {
			t.Fatalf("record %d\n got %s\nwant %s", number, got, want)
		}
	}
	if dead, err := s.List(t.Context(), store.Filter{DeadLetter: true, WorkflowID: "workflow-3"}, store.Position{}, n); err != nil || len(dead) != (n-10)/70+1 {
		t.Errorf("%d dead letters, %v", len(dead), err)
	}
}
