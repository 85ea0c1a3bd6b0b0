package sqlite

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
	"github.com/hookstart/hookstart/shared/execution"
)

// A list of the newest records reads them from an index in order, so SQLite sorts only records with
// equal times.
func TestListUsesItsIndex(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "hookstart.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := storetest.Fill(t.Context(), s, 1_001); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.AddAccountRecords(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	after := store.RecordPosition{AcceptedAt: time.Unix(5, 0), ID: execution.IDForRequeue("a")}
	for _, c := range []struct {
		filter store.RecordFilter
		index  string
	}{
		{store.RecordFilter{}, "executions_time"},
		{store.RecordFilter{Status: execution.Queued}, "executions_time"},
		{store.RecordFilter{Source: execution.SourceRerun}, "executions_time"},
		{store.RecordFilter{AccountID: "account"}, "executions_time"},
		{store.RecordFilter{AccountID: storetest.AccountOneWorkflow}, "executions_workflow"},
		{store.RecordFilter{AccountID: storetest.AccountManyNodes}, "executions_time"},
		{
			store.RecordFilter{AccountID: storetest.AccountManyNodes, WorkflowID: "large"},
			"executions_workflow",
		},
		{store.RecordFilter{Since: time.Unix(1, 0), Until: time.Unix(9, 0)}, "executions_time"},
		{
			store.RecordFilter{
				Status: execution.Running, Since: time.Unix(1, 0), Until: time.Unix(9, 0),
			},
			"executions_time",
		},
		{store.RecordFilter{WorkflowID: "w"}, "executions_workflow"},
		{
			store.RecordFilter{WorkflowID: "w", Status: execution.Succeeded, Since: time.Unix(1,
				0)},
			"executions_workflow",
		},
		{store.RecordFilter{Status: execution.Failed}, "executions_trouble"},
		{store.RecordFilter{Status: execution.Rejected}, "executions_trouble"},
		{store.RecordFilter{OnlyDeadLetters: true}, "executions_dead_letters"},
		{store.RecordFilter{OnlyDeadLetters: true, WorkflowID: "w"}, "executions_dead_letters_of"},
	} {
		for _, position := range []store.RecordPosition{{}, after} {
			where, err := s.Conditions(t.Context(), "list", c.filter, relational.NewestFirst,
				position)
			if err != nil {
				t.Fatal(err)
			}
			for _, by := range []string{
				relational.NewestFirst.OrderByTime,
				relational.NewestFirst.OrderByTimeAndID,
			} {
				text, err := s.plan(t.Context(),
					relational.SelectRecords+where.String()+by+` LIMIT 50`, where.Args)
				if err != nil {
					t.Fatal(err)
				}
				if by == relational.NewestFirst.OrderByTimeAndID {
					text = strings.ReplaceAll(text, "TEMP B-TREE FOR LAST TERM", "")
				}
				if !strings.Contains(text, "USING INDEX "+c.index+" ") &&
					!strings.Contains(text, "USING INDEX "+c.index+"; ") ||
					strings.Contains(text, "TEMP B-TREE") {
					t.Errorf("%+v after %+v, %s: %s", c.filter, position, by, text)
				}
			}
		}
	}
}

// If an account has few records in several workflows, SQLite lists its records by reading all
// records of these workflows through an index, and sorting them.
func TestFewRecordsOfAnAccount(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "hookstart.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := storetest.AddAccountRecords(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	where, err := s.Conditions(t.Context(), "list",
		store.RecordFilter{AccountID: storetest.AccountTwoWorkflows}, relational.NewestFirst,
		store.RecordPosition{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.plan(t.Context(),
		relational.SelectRecords+where.String()+
			relational.NewestFirst.OrderByTimeAndID+` LIMIT 50`, where.Args)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "INDEX executions_workflow ") {
		t.Error(text)
	}
}

// A search by delivery ID uses two indexes and does not scan the table. One is the index of
// execution IDs, because most of them are computed from a delivery ID. The other contains the
// delivery IDs of the executions whose ID was not computed from it.
func TestADeliveryIsLookedUp(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "hookstart.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, filter := range []store.RecordFilter{
		{DeliveryID: "d"}, {DeliveryID: "d", WorkflowID: "w", Status: execution.Failed}, {
			DeliveryID: "d",
			Since:      time.Unix(1, 0),
			Until:      time.Unix(2, 0),
		},
	} {
		where, err := s.Conditions(t.Context(), "list", filter, relational.NewestFirst,
			store.RecordPosition{AcceptedAt: time.Unix(5, 0)})
		if err != nil {
			t.Fatal(err)
		}
		text, err := s.plan(t.Context(),
			relational.SelectRecords+where.String()+
				relational.NewestFirst.OrderByTimeAndID+` LIMIT 50`,
			where.Args)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, "USING INTEGER PRIMARY KEY") ||
			!strings.Contains(text, "INDEX executions_id ") ||
			!strings.Contains(text, "INDEX executions_delivery ") ||
			strings.Contains(text, "SCAN e") {
			t.Errorf("%+v: %s", filter, text)
		}
	}
}

func (s *Store) plan(ctx context.Context, query string, args []any) (string, error) {
	var plan strings.Builder
	err := s.Read(ctx, "explain", func(row relational.Row) error {
		var id, parent, unused int
		var detail string
		err := row.Scan(&id, &parent, &unused, &detail)
		plan.WriteString(detail + "; ")
		return err
	}, `EXPLAIN QUERY PLAN `+query, args...)
	return plan.String(), err
}
