package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store/postgres"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
)

// The number of progress steps kept for unrecorded executions is limited. When the limit is
// exceeded, the oldest steps are dropped.
func TestEarlyProgressIsBounded(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	s, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(t.Context()) }()
	storetest.TestPendingLimit(t, s, func() {
		if _, err := db.Exec(t.Context(),
			`UPDATE early_progress SET position = position - 99999 WHERE status = 'running'`); err != nil {
			t.Fatal(err)
		}
	})
}
