package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// A list of the newest walks an index in its order; nothing is sorted.
func TestListUsesItsIndex(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "hookstart.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	after := store.Position{AcceptedAt: time.Unix(5, 0), ID: "a"}
	for _, c := range []struct {
		filter store.Filter
		index  string
	}{
		{store.Filter{}, "executions_by_time"},
		{store.Filter{Status: execution.Queued}, "executions_by_time"},
		{store.Filter{Source: execution.Rerun}, "executions_by_time"},
		{store.Filter{Since: time.Unix(1, 0), Until: time.Unix(9, 0)}, "executions_by_time"},
		{store.Filter{WorkflowID: "w"}, "executions_by_workflow"},
		{store.Filter{WorkflowID: "w", Status: execution.Succeeded, Since: time.Unix(1, 0)}, "executions_by_workflow"},
		{store.Filter{DeliveryID: "d"}, "executions_by_delivery"},
		{store.Filter{DeliveryID: "d", WorkflowID: "w", Status: execution.Failed}, "executions_by_delivery"},
		{store.Filter{Status: execution.Failed}, "executions_in_trouble"},
		{store.Filter{Status: execution.Rejected}, "executions_in_trouble"},
		{store.Filter{DeadLetter: true}, "executions_dead"},
		{store.Filter{DeadLetter: true, WorkflowID: "w"}, "executions_dead_by_workflow"},
	} {
		for _, position := range []store.Position{{}, after} {
			where, args := conditions(c.filter, newestFirst, position)
			text, err := s.plan(t.Context(), selectRecords+where+` ORDER BY accepted_at DESC, id DESC LIMIT 50`, args)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(text, "USING INDEX "+c.index) || strings.Contains(text, "TEMP B-TREE") {
				t.Errorf("%+v after %+v: %s", c.filter, position, text)
			}
		}
	}
}

func (s *Store) plan(ctx context.Context, query string, args []any) (string, error) {
	var plan strings.Builder
	err := s.read(ctx, "explain", func(rows *sql.Rows) error {
		var id, parent, unused int
		var detail string
		err := rows.Scan(&id, &parent, &unused, &detail)
		plan.WriteString(detail + "; ")
		return err
	}, `EXPLAIN QUERY PLAN `+query, args...)
	return plan.String(), err
}
