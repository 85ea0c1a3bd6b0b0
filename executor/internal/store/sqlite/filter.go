package sqlite

import (
	"context"
	"database/sql"
	"math"
	"strings"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// order is that of a list.
type order struct {
	after  string
	by     string // time and ID: SQLite sorts what has the same time, with all columns
	byTime string // time alone: an index has that order
	ids    int    // 1: the lowest ID first of those of the same time, -1: the highest
}

var (
	newestFirst = order{
		after: `e.accepted_at <= ? AND (e.accepted_at < ? OR e.id < ?)`,
		by:    ` ORDER BY e.accepted_at DESC, e.id DESC`, byTime: ` ORDER BY e.accepted_at DESC`, ids: -1,
	}
	oldestFirst = order{
		after: `e.accepted_at >= ? AND (e.accepted_at > ? OR e.id > ?)`,
		by:    ` ORDER BY e.accepted_at, e.id`, byTime: ` ORDER BY e.accepted_at`, ids: 1,
	}
)

// joined are the tables that the conditions of a filter name.
func joined(filter store.Filter) string {
	if filter.AccountID != "" || filter.Source != "" {
		return `executions e CROSS JOIN origins o ON o.origin = e.origin `
	}
	return `executions e `
}

// terms are the conditions of a query, and their arguments.
type terms struct {
	all  []string
	args []any
}

func (t *terms) add(term string, args ...any) {
	t.all = append(t.all, term)
	t.args = append(t.args, args...)
}

// conditions is the WHERE clause of a filter and a position on what joined names. It repeats the conditions of partial
// indexes word by word: SQLite uses such an index only then. A + keeps a column from choosing the index where few records
// are left already: SQLite has no statistics.
func (s *Store) conditions(ctx context.Context, filter store.Filter, in order, after store.Position) (where string, args []any, err error) {
	var t terms
	plus, err := s.ofDelivery(ctx, &t, filter)
	if err != nil {
		return "", nil, err
	}
	t.within(filter, plus)
	if filter.AccountID != "" {
		t.add(`o.account_id = ?`, store.Text(filter.AccountID))
	}
	if filter.Source != "" {
		t.add(`o.source = ?`, store.Text(string(filter.Source)))
	}
	if filter.Status != "" {
		if plus == "" && (filter.Status == execution.Failed || filter.Status == execution.Rejected) {
			t.add(`e.status IN (4, 5)`)
		}
		t.add(plus+`e.status = ?`, statusCode(filter.Status))
	}
	if filter.DeadLetter {
		t.add(`e.status = 4 AND e.requeued_as IS NULL AND e.dismissed_at IS NULL`) // as in the index
	}
	if filter.Reason != "" {
		t.add(`instr(e.error, ?) > 0`, store.Text(filter.Reason))
	}
	if after != (store.Position{}) {
		at := store.Time(after.AcceptedAt).UnixMicro()
		t.add(plus+in.after, at, at, keyOf(after.ID))
	}
	return `WHERE ` + strings.Join(t.all, ` AND `), t.args, nil
}

// within adds the conditions of workflow and time.
func (t *terms) within(filter store.Filter, plus string) {
	if filter.WorkflowID != "" {
		t.add(plus+`e.workflow = (SELECT workflow FROM workflows WHERE workflow_id = ?)`, store.Text(filter.WorkflowID))
	}
	// Also without a bound: SQLite would sort all rows that have a frequent status rather than read on.
	since := int64(math.MinInt64)
	if !filter.Since.IsZero() {
		since = store.Bound(filter.Since).UnixMicro()
	}
	t.add(plus+`e.accepted_at >= ?`, since)
	if !filter.Until.IsZero() {
		t.add(plus+`e.accepted_at < ?`, store.Bound(filter.Until).UnixMicro())
	}
}

// ofDelivery adds the conditions of a delivery ID, and of the beginning of one. A delivery ID of which the ID is computed
// is looked up by what that is at each node, any other one in its index. Where there are too many nodes, and for a
// beginning, the records of the filter's workflow and time are looked through, if those are not too many. It returns
// the plus for columns that are not to choose the index.
func (s *Store) ofDelivery(ctx context.Context, t *terms, filter store.Filter) (plus string, err error) {
	const whole = `coalesce(e.delivery_id, e.other_delivery)`
	if prefix := store.Text(filter.DeliveryPrefix); prefix != "" {
		t.add(whole+` >= ? AND `+whole+` < ?`, prefix, store.LastWithPrefix(prefix))
	}
	if filter.DeliveryID != "" {
		nodes, few, err := s.nodes(ctx, filter.WorkflowID)
		if err != nil {
			return "", err
		}
		delivery := store.Text(filter.DeliveryID)
		if few {
			t.add(`e.seq IN (SELECT seq FROM executions WHERE id IN (SELECT unhex(value) FROM json_each(?)) AND delivery_id = ?
				UNION ALL SELECT seq FROM executions WHERE other_delivery = ?)`,
				keyList(store.DeliveryIDs(nodes, delivery)), delivery, delivery)
			return "+", nil
		}
		t.add(whole+` = ?`, delivery)
	}
	if filter.DeliveryID == "" && filter.DeliveryPrefix == "" {
		return "", nil
	}
	return "", s.checkBreadth(ctx, filter)
}

// nodes are the trigger nodes of a workflow, or of all, unless those are too many.
func (s *Store) nodes(ctx context.Context, workflowID string) (nodes []store.Node, few bool, err error) {
	query, args := `SELECT DISTINCT w.workflow_id, o.node_id FROM origins o JOIN workflows w USING (workflow)`, []any{}
	if workflowID != "" {
		query, args = query+` WHERE w.workflow_id = ?`, append(args, store.Text(workflowID))
	}
	err = s.read(ctx, "nodes", func(rows *sql.Rows) error {
		var n store.Node
		err := rows.Scan(&n.WorkflowID, &n.NodeID)
		nodes = append(nodes, n)
		return err
	}, query+` LIMIT ?`, append(args, store.MaxDeliveryNodes+1)...)
	return nodes, len(nodes) <= store.MaxDeliveryNodes, err
}

// checkBreadth is ErrTooBroad if too many records are in a filter's workflow and time. It reads an index alone.
func (s *Store) checkBreadth(ctx context.Context, filter store.Filter) error {
	var t terms
	t.within(filter, "")
	n := 0
	if err := s.read(ctx, "breadth", func(rows *sql.Rows) error { return rows.Scan(&n) },
		`SELECT count(*) FROM (SELECT 1 FROM executions e WHERE `+strings.Join(t.all, ` AND `)+` LIMIT ?)`,
		append(t.args, store.MaxDeliveryRecords+1)...); err != nil {
		return err
	}
	if n > store.MaxDeliveryRecords {
		return store.ErrTooBroad
	}
	return nil
}
