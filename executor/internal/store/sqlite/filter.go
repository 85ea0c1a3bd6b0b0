package sqlite

import (
	"context"
	"math"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
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

// conditions is the WHERE clause of a filter and a position. It repeats the conditions of partial
// indexes word by word: SQLite uses such an index only then. A + keeps a column from choosing the index where few records
// are left already: SQLite has no statistics.
func (s *Store) conditions(ctx context.Context, what string, filter store.Filter, in order, after store.Position) (where relational.Where, err error) {
	plus, err := s.ofDelivery(ctx, what, &where, filter)
	if err != nil {
		return where, err
	}
	within(&where, filter, plus)
	var origins relational.Where
	origins.Is(`account_id`, filter.AccountID)
	origins.Is(`source`, string(filter.Source))
	if len(origins.Args) > 0 { // executions_time has the origin: the rows of others are not read
		where.Add(`e.origin IN (SELECT origin FROM origins `+origins.String()+`)`, origins.Args...)
	}
	if filter.Status != "" {
		if plus == "" && (filter.Status == execution.Failed || filter.Status == execution.Rejected) {
			where.Add(`e.status IN (4, 5)`)
		}
		where.Add(plus+`e.status = ?`, statusCode(filter.Status))
	}
	if filter.DeadLetter {
		where.Add(dialect.DeadLetter) // as in the index
	}
	if filter.Reason != "" {
		where.Add(`instr(e.error, ?) > 0`, store.Text(filter.Reason))
	}
	if after != (store.Position{}) {
		at := store.Time(after.AcceptedAt)
		where.Add(plus+in.after, at, at, store.IDKey(after.ID))
	}
	return where, nil
}

// within adds the conditions of workflow and time.
func within(where *relational.Where, filter store.Filter, plus string) {
	if filter.WorkflowID != "" {
		where.Add(plus+`e.workflow = (SELECT workflow FROM workflows WHERE workflow_id = ?)`, store.Text(filter.WorkflowID))
	}
	if filter.Since.IsZero() { // without a bound, SQLite would sort all rows that have a frequent status rather than read on
		where.Add(plus+`e.accepted_at >= ?`, int64(math.MinInt64))
	}
	where.Between(plus+`e.accepted_at`, filter.Since, filter.Until)
}

// ofDelivery adds the conditions of a delivery ID, and of the beginning of one. A delivery ID of which the ID is computed
// is looked up by what that is at each node, any other one in its index. Where there are too many nodes, and for a
// beginning, the records of the filter's workflow and time are looked through, if those are not too many. It returns
// the plus for columns that are not to choose the index.
func (s *Store) ofDelivery(ctx context.Context, what string, where *relational.Where, filter store.Filter) (plus string, err error) {
	const whole = `coalesce(e.delivery_id, e.other_delivery)`
	if prefix := store.Text(filter.DeliveryPrefix); prefix != "" {
		where.Add(whole+` >= ? AND `+whole+` < ?`, prefix, store.LastWithPrefix(prefix))
	}
	if filter.DeliveryID != "" {
		nodes, few, err := s.nodes(ctx, what, filter.WorkflowID)
		if err != nil {
			return "", err
		}
		delivery := store.Text(filter.DeliveryID)
		if few {
			where.Add(`e.seq IN (SELECT seq FROM executions WHERE id IN (SELECT unhex(value) FROM json_each(?)) AND delivery_id = ?
				UNION ALL SELECT seq FROM executions WHERE other_delivery = ?)`,
				keyList(store.DeliveryIDs(nodes, delivery)), delivery, delivery)
			return "+", nil
		}
		where.Add(whole+` = ?`, delivery)
	}
	if filter.DeliveryID == "" && filter.DeliveryPrefix == "" {
		return "", nil
	}
	return "", s.checkBreadth(ctx, what, filter)
}

// nodes are the trigger nodes of a workflow, or of all, unless those are too many.
func (s *Store) nodes(ctx context.Context, what, workflowID string) (nodes []store.Node, few bool, err error) {
	var where relational.Where
	where.Is(`w.workflow_id`, workflowID)
	nodes, err = relational.Collect(ctx, s, what, func(row relational.Row) (n store.Node, err error) {
		err = row.Scan(&n.WorkflowID, &n.NodeID)
		return n, err
	}, `SELECT DISTINCT w.workflow_id, o.node_id FROM origins o JOIN workflows w USING (workflow) `+where.String()+` LIMIT ?`, append(where.Args, store.MaxDeliveryNodes+1)...)
	return nodes, len(nodes) <= store.MaxDeliveryNodes, err
}

// checkBreadth is ErrTooBroad if too many records are in a filter's workflow and time. It reads an index alone.
func (s *Store) checkBreadth(ctx context.Context, what string, filter store.Filter) error {
	var where relational.Where
	within(&where, filter, "")
	n := 0
	if err := s.read(ctx, what, func(row relational.Row) error { return row.Scan(&n) },
		`SELECT count(*) FROM (SELECT 1 FROM executions e `+where.String()+` LIMIT ?)`, append(where.Args, store.MaxDeliveryRecords+1)...); err != nil {
		return err
	}
	if n > store.MaxDeliveryRecords {
		return store.ErrTooBroad
	}
	return nil
}
