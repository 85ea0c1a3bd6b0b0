package pgtest_test

import (
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
)

// A row is added to a table before BaseBackup, and another one after it. RestoreBaseBackup discards
// the second row. The timeline changes only if promoted is true.
func TestPutBack(t *testing.T) {
	t.Parallel()
	s := pgtest.StartServer(t)
	query := func(statements ...string) string {
		t.Helper()
		value, err := s.Query(t.Context(), statements...)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	query("CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (1)")
	for _, promoted := range []bool{false, true} {
		before := query("SELECT timeline_id FROM pg_control_checkpoint()")
		if err := s.BaseBackup(t.Context()); err != nil {
			t.Fatal(err)
		}
		query("INSERT INTO kept VALUES (2)")
		if err := s.RestoreBaseBackup(t.Context(), promoted); err != nil {
			t.Fatal(err)
		}
		if got := query("SELECT count(*) FROM kept"); got != "1" {
			t.Errorf("promoted %v: %s rows, not the 1 of the copy", promoted, got)
		}
		// The restored server accepts writes.
		query("INSERT INTO kept VALUES (3)", "DELETE FROM kept WHERE n = 3", "CHECKPOINT")
		if after := query("SELECT timeline_id FROM pg_control_checkpoint()"); (after != before) !=
			promoted {
			t.Errorf("promoted %v: timeline %s, before %s", promoted, after, before)
		}
	}
}
