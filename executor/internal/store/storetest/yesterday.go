package storetest

import (
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// TestFirstReleaseSchema tests a store whose database was created with the schema of the first
// release, was filled with the rows listed here, and is then opened by the current code:
//   - Get(nthID(0)) returns nthRecord(0) with 3 duplicates;
//   - Get(nthID(1)) returns nthRecord(1) as failed with "an error", started one second and
//     finished two seconds after it was accepted;
//   - the report "report" has been applied; the token "token" was last used at the epoch.
func TestFirstReleaseSchema(t *testing.T, s store.Store) {
	t.Helper()
	first := nthRecord(0)
	first.Duplicates = 3
	wantRecord(t, getRecord(t, s, nthID(0)), first)
	second := nthRecord(1)
	second.Status, second.Error = execution.Failed, "an error"
	second.StartedAt, second.FinishedAt = second.AcceptedAt.Add(time.Second),
		second.AcceptedAt.Add(2*time.Second)
	wantRecord(t, getRecord(t, s, nthID(1)), second)

	wantLastUse := func(want time.Time) {
		t.Helper()
		if used, err := s.TokensLastUsed(t.Context(), []string{"token"}); err != nil ||
			!used["token"].Equal(want) {
			t.Errorf("the token was used at %v, %v; want %v", used, err, want)
		}
	}
	wantLastUse(epoch)

	// The store must also accept further changes. The report "report" has already been applied, so
	// it must have no effect.
	addDuplicates(t, s, "report", epoch, map[string]int64{nthID(0): 5})
	addDuplicates(t, s, "another", epoch, map[string]int64{nthID(0): 1})
	first.Duplicates = 4
	first.Status, first.StartedAt = execution.Running, first.AcceptedAt.Add(time.Minute)
	applyNewRecords(t, s, nthRecord(0), nthRecord(2))
	applyBatch(t, s, store.Batch{
		Progress: []execution.Progress{runningProgress(0, first.StartedAt), runningProgress(1,
			epoch)},
	})
	wantRecord(t, getRecord(t, s, nthID(0)), first)
	wantRecord(t, getRecord(t, s, nthID(1)), second)
	wantRecord(t, getRecord(t, s, nthID(2)), nthRecord(2))
	wantLastUse(nthRecord(2).AcceptedAt)
}
