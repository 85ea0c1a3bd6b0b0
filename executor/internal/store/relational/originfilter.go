package relational

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	// maxOrigins is the maximum number of origins of an account or a source that a query lists
	// individually. If there are more, the query looks up the origin of each record instead.
	maxOrigins = 1_000
	// maxSortedRecords is the maximum number of records that a query reads and sorts. If more
	// match, the query searches the records in time order instead.
	maxSortedRecords = 1_000
)

// addOriginConditions adds the filter's conditions on the account, the source and the node, which
// are part of a record's origin. Reading the records in time order is slow if few of the newest
// records belong to the account. So addOriginConditions may also add a condition on the account's
// workflows, which lets the database read only the records of these workflows. columnPrefix is a
// result of addDeliveryConditions.
func (s *Store) addOriginConditions(
	ctx context.Context, what string, where *Where, filter store.RecordFilter, columnPrefix string,
) error {
	var conditions Where
	conditions.AddEquals(`o.account_id`, filter.AccountID)
	conditions.AddEquals(`o.source`, string(filter.Source))
	conditions.AddEquals(`o.node_id`, filter.NodeID)
	if len(conditions.Args) == 0 {
		return nil
	}
	origins, workflows, err := s.findOrigins(ctx, what, conditions, filter.WorkflowID)
	if err != nil {
		return err
	}
	switch {
	case len(origins) == 0:
		where.Add(`FALSE`)
		return nil
	case len(origins) > maxOrigins:
		// Use a scalar subquery, which the planner cannot turn into a join. A join would start by
		// reading all origins that meet the conditions.
		where.Add(`(SELECT TRUE FROM origins o `+conditions.String()+
			` AND o.origin = e.origin) IS TRUE`,
			conditions.Args...)
		return nil
	case filter.WorkflowID != "":
	case filter.AccountID == "":
		where.Add(`e.origin = ANY (?)`, origins)
		return nil
	case len(workflows) == 1:
		where.Add(columnPrefix+`e.workflow = ?`, workflows[0])
	default:
		choose := s.dialect.HasStatistics
		if !choose {
			if choose, err = s.fewEnoughToSort(ctx, what, filter, workflows); err != nil {
				return err
			}
		}
		if choose {
			where.Add(columnPrefix+`e.workflow = ANY (?)`, workflows)
		}
	}
	// Most workflows belong to a single account, so nearly all records that meet the conditions
	// above also meet this one. Without coalesce, the planner would assume that most of them do
	// not.
	where.Add(`coalesce(e.origin = ANY (?), FALSE)`, origins)
	return nil
}

// findOrigins returns the keys of the rows in the table origins that meet the conditions and,
// without duplicates, the keys of their workflows. If workflowID is not "", it considers only that
// workflow's origins. It returns at most maxOrigins+1 origins: if it returns that many, there may
// be still more.
func (s *Store) findOrigins(
	ctx context.Context, what string, where Where, workflowID string,
) (origins, workflows []int64, err error) {
	from := Where{terms: where.terms, Args: where.Args}
	if workflowID != "" {
		from.Add(`o.workflow = (SELECT workflow FROM workflows WHERE workflow_id = ?)`,
			store.SanitizeText(workflowID))
	}
	have := make(map[int64]bool)
	err = s.db.Read(ctx, what, func(row Row) error {
		var origin, workflow int64
		if err := row.Scan(&origin, &workflow); err != nil {
			return err
		}
		origins = append(origins, origin)
		if !have[workflow] {
			have[workflow] = true
			workflows = append(workflows, workflow)
		}
		return nil
	}, `SELECT o.origin, o.workflow FROM origins o `+from.String()+` LIMIT ?`,
		append(from.Args, maxOrigins+1)...)
	return origins, workflows, err
}

// fewEnoughToSort reports whether the workflows have at most maxSortedRecords records in the
// filter's time range, which are few enough for a query to read and sort all of them. It reads only
// an index.
func (s *Store) fewEnoughToSort(
	ctx context.Context, what string, filter store.RecordFilter, workflows []int64,
) (bool, error) {
	var where Where
	where.Add(`e.workflow = ANY (?)`, workflows)
	s.addWorkflowAndTimeConditions(&where, filter, "")
	n, err := s.countUpTo(ctx, what, where, maxSortedRecords)
	return n <= maxSortedRecords, err
}

// countUpTo returns how many records meet the conditions, or limit+1 if there are more than limit.
func (s *Store) countUpTo(
	ctx context.Context, what string, where Where, limit int,
) (n int, err error) {
	err = s.db.Read(ctx, what, func(row Row) error { return row.Scan(&n) },
		`SELECT count(*) FROM (SELECT 1 FROM executions e `+where.String()+` LIMIT ?) AS found`,
		append(where.Args, limit+1)...)
	return n, err
}
