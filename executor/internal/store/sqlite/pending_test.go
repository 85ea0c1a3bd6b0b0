package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
)

// The number of progress steps kept for unrecorded executions is limited. When the limit is
// exceeded, the oldest steps are dropped.
func TestEarlyProgressIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hookstart.db")
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	storetest.TestPendingLimit(t, s, func() {
		if _, err := db.ExecContext(t.Context(),
			`UPDATE early_progress SET position = position - 99999 WHERE status = 'running'`); err != nil {
			t.Fatal(err)
		}
	})
}
