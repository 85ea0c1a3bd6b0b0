package postgres

import (
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/shared/execution"
)

// A new connection may be to a standby that has taken over. The standby may lack the latest origins
// and give their numbers to other origins, so the cache of origins is emptied when a connection is
// opened.
func TestOriginsAreForgottenWithTheConnection(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	s := mustOpen(t, url)
	first, second := plain(execution.IDForRequeue("a")), plain(execution.IDForRequeue("b"))
	first.WorkflowID, second.WorkflowID = "workflow", "workflow"
	if _, err := s.Apply(t.Context(), store.Batch{NewRecords: []store.Record{first}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	db := connect(t, url)
	for _, statement := range []string{
		`TRUNCATE executions, origins, workflows RESTART IDENTITY`,
		`INSERT INTO workflows (workflow_id) VALUES ('another')`,
		`INSERT INTO origins (workflow, node_id, account_id, queue, source, token_id, sender, verified) VALUES (1, '', '', '', '', '', '', false)`,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
	} {
		if _, err := db.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	s.pool.Reset() // as the pool does when it finds that connections are gone
	// third has an origin that is not cached: the query for it opens the new connection.
	third := plain(execution.IDForRequeue("c"))
	third.WorkflowID = "third"
	if _, err := s.Apply(t.Context(),
		store.Batch{NewRecords: []store.Record{second, third}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []store.Record{second, third} {
		if r, err := s.Get(t.Context(), want.ID); err != nil || r.WorkflowID != want.WorkflowID {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
