package postgres

import (
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
)

// ForgetWorkflowReports and AddRefusals lock the same three rows in different orders, but must not
// deadlock. The test holds the second row, so ForgetWorkflowReports locks the first row and waits.
// Then AddRefusals begins. Without the protection against deadlocks, it would lock the third row,
// which ForgetWorkflowReports needs next, and wait for the first one.
func TestForgettingAWorkflowDeadlocksWithNoReport(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	s, other := mustOpen(t, url), connect(t, url)
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	refusal := func(minute int, code string) store.RefusalCount {
		at := noon.Add(time.Duration(minute) * time.Minute)
		return store.RefusalCount{
			WorkflowID: "wf", Code: code, Minute: at, Count: 1, Last: store.RefusedRequest{At: at},
		}
	}
	first, second, third := refusal(0, "c"), refusal(1, "b"), refusal(2, "a")
	for _, r := range []store.RefusalCount{first, second, third} {
		if err := s.AddRefusals(t.Context(), r.Code, noon, []store.RefusalCount{r}); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := other.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), `SELECT FROM refusals WHERE code = 'b' FOR UPDATE`)
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	awaitBlocked := func(n int) {
		t.Helper()
		for {
			var blocked int
			// Other tests use the same server, and pg_locks does not show the database of a row
			// lock. So count the waiting processes that also have a lock that belongs to this
			// database.
			if err := tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted
				AND pid IN (SELECT pid FROM pg_locks JOIN pg_database d ON d.oid = database
					WHERE datname = current_database())`).Scan(&blocked); err != nil {
				t.Fatal(err)
			}
			if blocked == n {
				return
			}
			select {
			case err := <-ended:
				t.Fatalf("a call ended before %d were blocked: %v", n, err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	go func() { ended <- s.ForgetWorkflowReports(t.Context(), "wf") }()
	awaitBlocked(1)
	go func() {
		ended <- s.AddRefusals(t.Context(), "both", noon, []store.RefusalCount{first, third})
	}()
	awaitBlocked(2)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
