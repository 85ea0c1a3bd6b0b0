package postgres

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
	"github.com/hookstart/hookstart/shared/execution"
)

// A list of the newest walks an index in its order; nothing is sorted. Also when the
// table has grown since it was last analysed.
func TestListUsesItsIndex(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), pgtest.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := storetest.Fill(t.Context(), s, 20_000); err != nil {
		t.Fatal(err)
	}
	after := store.Position{AcceptedAt: time.Date(2026, 3, 1, 14, 0, 0, 0, time.UTC), ID: "a"}
	for _, statistics := range []string{`SELECT 1`, `ANALYZE`} {
		if _, err := s.pool.Exec(t.Context(), statistics); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			filter store.Filter
			index  []string // any of them
		}{
			{store.Filter{}, []string{"executions_by_time"}},
			{store.Filter{WorkflowID: "workflow-7"}, []string{"executions_by_workflow"}},
			{store.Filter{DeliveryID: "delivery-77"}, []string{"executions_by_delivery"}},
			{store.Filter{DeliveryID: "delivery-77", WorkflowID: "workflow-7"}, []string{"executions_by_delivery", "executions_by_workflow"}}, // of few records either will do
			{store.Filter{Status: execution.Failed}, []string{"executions_in_trouble"}},
			{store.Filter{DeadLetter: true}, []string{"executions_dead", "executions_in_trouble"}}, // all that failed are dead letters here
			{store.Filter{DeadLetter: true, WorkflowID: "workflow-7"}, []string{"executions_dead_by_workflow"}},
		} {
			for _, position := range []store.Position{{}, after} {
				where := conditions(c.filter, newestFirst, position)
				rows, err := s.pool.Query(t.Context(), numbered(`EXPLAIN `+selectRecords+where.String()+` ORDER BY accepted_at DESC, id DESC LIMIT 50`), where.Args...)
				if err != nil {
					t.Fatal(err)
				}
				plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil {
					t.Fatal(err)
				}
				text := strings.Join(plan, "\n")
				uses := func(index string) bool {
					return strings.Contains(text, "using "+index+" ") || strings.Contains(text, "on "+index+" ")
				}
				if !slices.ContainsFunc(c.index, uses) || strings.Contains(text, "Seq Scan on executions") {
					t.Errorf("%s, %+v after %+v:\n%s", statistics, c.filter, position, text)
				}
			}
		}
	}
}
