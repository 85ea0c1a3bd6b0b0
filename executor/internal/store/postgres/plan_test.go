package postgres

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
	"github.com/hookstart/hookstart/shared/execution"
)

// A list of the newest records reads an index in order instead of sorting, both before and after
// the table is analyzed.
func TestListUsesItsIndex(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), pgtest.NewDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := storetest.Fill(t.Context(), s, 20_000); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.AddAccountRecords(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	after := store.RecordPosition{AcceptedAt: time.Date(2026, 3, 1, 14, 0, 0, 0, time.UTC), ID: "a"}
	for _, statistics := range []string{`SELECT 1`, `ANALYZE`} {
		if _, err := s.pool.Exec(t.Context(), statistics); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			filter store.RecordFilter
			index  []string // the plan must use one of these
		}{
			{store.RecordFilter{}, []string{"executions_time"}},
			{store.RecordFilter{AccountID: "account"}, []string{"executions_time"}},
			{
				store.RecordFilter{AccountID: storetest.AccountOneWorkflow},
				[]string{"executions_workflow"},
			},
			{
				store.RecordFilter{AccountID: storetest.AccountTwoWorkflows},
				[]string{"executions_workflow"},
			},
			{
				store.RecordFilter{AccountID: storetest.AccountManyNodes},
				[]string{"executions_time"},
			},
			{
				store.RecordFilter{
					AccountID:  storetest.AccountManyNodes,
					WorkflowID: "large",
				}, []string{
					"executions_workflow",
				},
			},
			{store.RecordFilter{Source: execution.SourceWebhook}, []string{"executions_time"}},
			{store.RecordFilter{AccountID: "none"}, nil},
			{store.RecordFilter{WorkflowID: "workflow-7"}, []string{"executions_workflow"}},
			{store.RecordFilter{DeliveryID: "delivery-77"}, []string{"executions_id"}},
			{
				store.RecordFilter{DeliveryID: "delivery-77", WorkflowID: "workflow-7"}, []string{
					"executions_id",
				},
			},
			{store.RecordFilter{Status: execution.Failed}, []string{"executions_trouble"}},
			// There is no index of executions that have not ended, so this query reads the index of
			// times.
			{store.RecordFilter{
				Status: execution.Queued, Since: after.AcceptedAt.Add(-time.Hour),
				Until: after.AcceptedAt,
			}, []string{"executions_time"}},
			// All failed records in this test are dead letters, so the index of dead letters and
			// the index of failed records are both suitable.
			{
				store.RecordFilter{OnlyDeadLetters: true}, []string{
					"executions_dead_letters", "executions_trouble",
				},
			},
			{
				store.RecordFilter{OnlyDeadLetters: true, WorkflowID: "workflow-7"}, []string{
					"executions_dead_letters_of",
				},
			},
		} {
			for _, position := range []store.RecordPosition{{}, after} {
				where, err := s.Conditions(t.Context(), "list", c.filter, relational.NewestFirst,
					position)
				if err != nil {
					t.Fatal(err)
				}
				var text string
				if err := s.Read(t.Context(), "explain", func(row relational.Row) error {
					var line string
					err := row.Scan(&line)
					text += line + "\n"
					return err
				},
					`EXPLAIN `+relational.SelectRecords+where.String()+
						relational.NewestFirst.OrderByTime+` LIMIT 50`, where.Args...); err != nil {
					t.Fatal(err)
				}
				uses := func(index string) bool {
					return strings.Contains(text, "using "+index+" ") ||
						strings.Contains(text, "on "+index+" ")
				}
				if c.index == nil {
					if !strings.Contains(text, "One-Time Filter: false") {
						t.Errorf("%s, %+v reads records in vain:\n%s", statistics, c.filter, text)
					}
					continue
				}
				if !slices.ContainsFunc(c.index, uses) ||
					strings.Contains(text, "Seq Scan on executions") {
					t.Errorf("%s, %+v after %+v:\n%s", statistics, c.filter, position, text)
				}
			}
		}
	}
}

// A progress step writes to no index, because PostgreSQL can update the row in place (HOT).
func TestStepsTouchNoIndex(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, pgtest.NewDatabase(t))
	r := plain(execution.IDForRequeue("a"))
	if _, err := s.Apply(t.Context(), store.Batch{NewRecords: []store.Record{r}}); err != nil {
		t.Fatal(err)
	}
	var updated, inPlace int64
	if err := s.Write(t.Context(), "test", func(tx relational.Tx) error {
		for _, status := range []execution.Status{execution.Running, execution.Succeeded} {
			if _, err := tx.LockCurrentStates(t.Context(), []string{r.ID}); err != nil {
				return err
			}
			at := r.AcceptedAt.Add(time.Second)
			if err := tx.UpdateStates(t.Context(), []store.StateUpdate{
				{ID: r.ID, Status: status, StartedAt: at, FinishedAt: at, Output: []byte("1")},
			}); err != nil {
				return err
			}
		}
		return tx.Query(t.Context(), func(row relational.Row) error {
			return row.Scan(&updated, &inPlace)
		},
			`SELECT pg_stat_get_xact_tuples_updated('executions'::regclass), pg_stat_get_xact_tuples_hot_updated('executions'::regclass)`)
	}); err != nil || updated != 2 || inPlace != 2 {
		t.Errorf("%d updates, %d in place, %v", updated, inPlace, err)
	}
}
