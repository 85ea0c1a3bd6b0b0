package relational

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// SortOrder holds the SQL clauses for a sort order of records.
type SortOrder struct {
	OrderByTimeAndID string // ORDER BY time and ID; the database sorts rows with equal times
	OrderByTime      string // ORDER BY time alone, which the database does with an index
	afterPosition    string // the condition for records after a position
	// idSortSign is the order of records with equal times: 1 means lowest ID first, -1 highest
	// first.
	idSortSign int
}

// The two sort orders of lists. In each afterPosition, the first condition follows from the others,
// but it lets the database use an index.
var (
	NewestFirst = SortOrder{
		afterPosition:    `e.accepted_at <= ? AND (e.accepted_at < ? OR e.id < ?)`,
		OrderByTimeAndID: ` ORDER BY e.accepted_at DESC, e.id DESC`,
		OrderByTime:      ` ORDER BY e.accepted_at DESC`,
		idSortSign:       -1,
	}
	oldestFirst = SortOrder{
		afterPosition:    `e.accepted_at >= ? AND (e.accepted_at > ? OR e.id > ?)`,
		OrderByTimeAndID: ` ORDER BY e.accepted_at, e.id`, OrderByTime: ` ORDER BY e.accepted_at`,
		idSortSign: 1,
	}
)

// Conditions returns the WHERE clause for the records that match a filter and come after a given
// position in a sort order. It contains the conditions of partial indexes verbatim, because SQLite
// uses such an index only if the texts match.
func (s *Store) Conditions(
	ctx context.Context, what string, filter store.RecordFilter, in SortOrder,
	after store.RecordPosition,
) (where Where, err error) {
	columnPrefix, err := s.addDeliveryConditions(ctx, what, &where, filter)
	if err != nil {
		return where, err
	}
	s.addWorkflowAndTimeConditions(&where, filter, columnPrefix)
	if err := s.addOriginConditions(ctx, what, &where, filter, columnPrefix); err != nil {
		return where, err
	}
	switch code := StatusCode(filter.Status); {
	case filter.Status == "":
	case columnPrefix == "" && (filter.Status == execution.Failed ||
		filter.Status == execution.Rejected):
		where.Add(s.dialect.FailedOrRejectedCondition, code)
	case columnPrefix == "" && filter.Status == execution.Canceled:
		where.Add(`e.cancel_requested_at IS NOT NULL AND e.status = ?`, code)
	default:
		where.Add(columnPrefix+`e.status = ?`, code)
	}
	if filter.OnlyCanceling {
		where.Add(`e.cancel_requested_at IS NOT NULL AND e.status IN (1, 2)`) // queued, running
	}
	if filter.OnlyDeadLetters {
		where.Add(s.dialect.DeadLetterCondition) // the condition of the index
	}
	if filter.Reason != "" {
		where.Add(`strpos(e.error, ?) > 0`, store.SanitizeText(filter.Reason))
	}
	if after != (store.RecordPosition{}) {
		at := store.StoredTime(after.AcceptedAt)
		where.Add(columnPrefix+in.afterPosition, at, at, ExecutionID(after.ID))
	}
	return where, nil
}

// addWorkflowAndTimeConditions adds the filter's conditions on the workflow and on the acceptance
// time. columnPrefix is a result of addDeliveryConditions.
func (s *Store) addWorkflowAndTimeConditions(
	where *Where, filter store.RecordFilter, columnPrefix string,
) {
	if filter.WorkflowID != "" {
		where.Add(
			columnPrefix+`e.workflow = (SELECT workflow FROM workflows WHERE workflow_id = ?)`,
			store.SanitizeText(filter.WorkflowID),
		)
	}
	if filter.Since.IsZero() && s.dialect.MinTime != nil {
		where.Add(columnPrefix+`e.accepted_at >= ?`, s.dialect.MinTime)
	}
	where.AddTimeRange(columnPrefix+`e.accepted_at`, filter.Since, filter.Until)
}

// addDeliveryConditions adds the filter's conditions on a delivery ID and on a prefix of one.
//
// A search by delivery ID has to find two kinds of executions. If an execution's ID was computed
// from its delivery ID, the query finds it by its ID: it looks up every execution ID that can
// result from the delivery ID at one of the nodes. The delivery IDs of all other executions are
// indexed, so the query looks up the delivery ID itself in that index. If there are too many nodes,
// or if the filter has only a prefix, the query instead searches all records that match the
// filter's workflow and time. If these are too many, addDeliveryConditions returns ErrTooBroad.
//
// columnPrefix is the prefix for the columns of all further conditions: dialect.NoIndexColumnPrefix
// if the planner must not use an index on them, otherwise "".
func (s *Store) addDeliveryConditions(
	ctx context.Context, what string, where *Where, filter store.RecordFilter,
) (columnPrefix string, err error) {
	if prefix := store.SanitizeText(filter.DeliveryPrefix); prefix != "" {
		where.Add(deliveryIDExpr+` >= ? AND `+deliveryIDExpr+` < ?`, prefix,
			store.PrefixUpperBound(prefix))
	}
	if filter.DeliveryID != "" {
		nodes, few, err := s.nodesToSearch(ctx, what, filter.WorkflowID)
		if err != nil {
			return "", err
		}
		delivery := store.SanitizeText(filter.DeliveryID)
		if few {
			where.Add(s.dialect.DeliveryCondition,
				ExecutionIDs(store.PossibleExecutionIDs(nodes, delivery)),
				delivery, delivery)
			return s.dialect.NoIndexColumnPrefix, nil
		}
		where.Add(deliveryIDExpr+` = ?`, delivery)
	}
	if filter.DeliveryID == "" && filter.DeliveryPrefix == "" {
		return "", nil
	}
	return "", s.checkNotTooBroad(ctx, what, filter)
}

// nodesToSearch returns the trigger nodes of a workflow, or of all workflows if workflowID is "".
// If there are more than MaxDeliverySearchNodes, withinLimit is false.
func (s *Store) nodesToSearch(
	ctx context.Context, what, workflowID string,
) (nodes []store.TriggerNode, withinLimit bool, err error) {
	var where Where
	where.AddEquals(`w.workflow_id`, workflowID)
	nodes, err = Collect(ctx, s.db, what, func(row Row) (n store.TriggerNode, err error) {
		err = row.Scan(&n.WorkflowID, &n.NodeID)
		return n, err
	},
		`SELECT DISTINCT w.workflow_id, o.node_id FROM origins o JOIN workflows w
			USING (workflow) `+where.String()+` LIMIT ?`, append(where.Args, store.MaxDeliverySearchNodes+1)...)
	return nodes, len(nodes) <= store.MaxDeliverySearchNodes, err
}

// checkNotTooBroad returns ErrTooBroad if more than MaxDeliverySearchRecords records match a
// filter's workflow and time. To count them, it reads only an index.
func (s *Store) checkNotTooBroad(
	ctx context.Context, what string, filter store.RecordFilter,
) error {
	var where Where
	s.addWorkflowAndTimeConditions(&where, filter, "")
	n, err := s.countUpTo(ctx, what, where, store.MaxDeliverySearchRecords)
	if err != nil {
		return err
	}
	if n > store.MaxDeliverySearchRecords {
		return store.ErrTooBroad
	}
	return nil
}
