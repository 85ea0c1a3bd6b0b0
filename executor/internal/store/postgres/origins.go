package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// unnestOrigins is the part of a statement that turns array parameters, one per column, into rows
// of origins.
const unnestOrigins = `unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[],
	$6::text[], $7::text[], $8::boolean[])
	AS n (workflow_id, node_id, account_id, queue, source, token_id, sender, verified)`

const (
	findOrigins = `SELECT w.workflow, o.origin, n.* FROM ` + unnestOrigins +
		` JOIN workflows w USING (workflow_id)
		JOIN origins o USING (workflow, node_id, account_id, queue, source, token_id, sender,
		verified)`

	addWorkflows = `INSERT INTO workflows (workflow_id) SELECT DISTINCT workflow_id
		FROM unnest($1::text[]) AS n (workflow_id) ORDER BY 1 ON CONFLICT DO NOTHING`

	addOrigins = `INSERT INTO origins (workflow, node_id, account_id, queue, source, token_id,
		sender, verified)
		SELECT w.workflow, n.node_id, n.account_id, n.queue, n.source, n.token_id, n.sender,
		n.verified FROM ` + unnestOrigins + ` JOIN workflows w USING (workflow_id)
		ORDER BY 1, 2, 3, 4, 5, 6, 7, 8 ON CONFLICT DO NOTHING`
)

// querier is the set of methods that a pool, a connection and a transaction share.
type querier interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

// EnsureOrigins implements relational.Database.
func (s *Store) EnsureOrigins(ctx context.Context, operation string, records []store.Record) error {
	began := time.Now()
	for range maxEnsureAttempts {
		generation := s.Origins.Generation()
		numbers, err := ensureOriginRowIDs(ctx, s.pool, s.Origins, records)
		if err != nil {
			return s.FinishOperation(ctx, operation, began,
				asDataError(withContextError(ctx, err)))
		}
		if s.Origins.Add(generation, numbers) {
			return nil
		}
		// A connection was opened meanwhile, perhaps by the query itself. It may lead to a server
		// that lacks some of these rows, so look for all of them there.
	}
	return nil // InsertNew reads, and adds, what is not cached
}

// maxEnsureAttempts is how often EnsureOrigins begins again because connections are being opened.
const maxEnsureAttempts = 3

// ensureOriginRowIDs returns the row numbers of the records' origins, and adds missing origins to
// the database. on must be the pool, unless the database already has all of the origins; then it
// may also be a transaction. On the pool, each statement is a transaction of its own and adds
// origins in a fixed order. Executors that add the same origins therefore cannot deadlock, and none
// of them waits until another one has written its whole batch.
func ensureOriginRowIDs(
	ctx context.Context, on querier, known *relational.OriginCache, records []store.Record,
) (map[store.Origin]relational.OriginRowIDs, error) {
	numbers := make(map[store.Origin]relational.OriginRowIDs)
	missing := make(map[store.Origin]bool)
	for _, r := range records {
		origin := r.Origin()
		if _, have := numbers[origin]; have || missing[origin] {
			continue
		}
		if n, ok := known.Find(origin); ok {
			numbers[origin] = n
		} else {
			missing[origin] = true
		}
	}
	if len(missing) == 0 {
		return numbers, nil
	}
	found, err := readOriginRowIDs(ctx, on, missing)
	if err != nil {
		return nil, err
	}
	if len(found) < len(missing) {
		if found, err = insertOrigins(ctx, on, missing); err != nil {
			return nil, err
		}
	}
	maps.Copy(numbers, found)
	return numbers, nil
}

func readOriginRowIDs(
	ctx context.Context, on querier, origins map[store.Origin]bool,
) (map[store.Origin]relational.OriginRowIDs, error) {
	found := make(map[store.Origin]relational.OriginRowIDs, len(origins))
	rows, err := on.Query(ctx, findOrigins, originColumns(origins)...)
	return found, eachRow(rows, err, func(row relational.Row) error {
		var n relational.OriginRowIDs
		var o store.Origin
		err := row.Scan(&n.Workflow, &n.Origin, &o.WorkflowID, &o.NodeID, &o.AccountID, &o.Queue,
			&o.Source, &o.TokenID, &o.Sender, &o.Verified)
		found[o] = n
		return err
	})
}

func insertOrigins(
	ctx context.Context, on querier, missing map[store.Origin]bool,
) (map[store.Origin]relational.OriginRowIDs, error) {
	arrays := originColumns(missing)
	if _, err := on.Exec(ctx, addWorkflows, arrays[0]); err != nil {
		return nil, err
	}
	if _, err := on.Exec(ctx, addOrigins, arrays...); err != nil {
		return nil, err
	}
	found, err := readOriginRowIDs(ctx, on, missing)
	if err == nil && len(found) < len(missing) {
		err = fmt.Errorf("of %d origins %d are in the dictionary", len(missing), len(found))
	}
	return found, err
}

func originColumns(set map[store.Origin]bool) []any {
	all := slices.SortedFunc(maps.Keys(set), func(a, b store.Origin) int {
		return cmp.Or(strings.Compare(a.WorkflowID, b.WorkflowID),
			strings.Compare(a.NodeID, b.NodeID))
	})
	text := func(value func(store.Origin) string) []string { return mapSlice(all, value) }
	return []any{
		text(func(o store.Origin) string {
			return o.WorkflowID
		}), text(func(o store.Origin) string { return o.NodeID }),
		text(func(o store.Origin) string {
			return o.AccountID
		}), text(func(o store.Origin) string { return o.Queue }),
		text(func(o store.Origin) string {
			return string(o.Source)
		}), text(func(o store.Origin) string { return o.TokenID }),
		text(func(o store.Origin) string {
			return o.Sender
		}), mapSlice(all, func(o store.Origin) bool { return o.Verified }),
	}
}
