package postgres

import (
	"fmt"
	"strings"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// dialect holds PostgreSQL's form of the SQL that differs between databases: see
// relational.Dialect.
var dialect = relational.Dialect{
	Name:          `postgres`,
	IsUnavailable: isUnavailable,
	// 4 is the code of the status failed: see relational.StatusCode.
	DeadLetterCondition:       `trouble = 4 AND requeued_as IS NULL AND dismissed_at IS NULL`,
	FailedOrRejectedCondition: `e.trouble = ?`,
	// Each ID in the array is looked up separately, because the planner then has to use the index
	// of IDs.
	DeliveryCondition: `e.id = ANY (ARRAY(SELECT found.id FROM unnest(?::bytea[]) AS wanted (id)
		CROSS JOIN LATERAL (SELECT id, delivery_id FROM executions WHERE id = wanted.id
		LIMIT 1) AS found WHERE found.delivery_id = ?
		UNION ALL SELECT id FROM executions WHERE other_delivery = ?))`,
	HasStatistics: true,
	TruncatedTimeExpr: `date_bin(%[1]d * interval '1 microsecond', e.accepted_at,
		'1970-01-01T00:00:00Z')`,
	RefusalSumsQuery: `SELECT DISTINCT ON (workflow_id, code) workflow_id, code,
		(sum(n) OVER (PARTITION BY workflow_id, code))::bigint, last_at, body_bytes, user_agent
		FROM refusals WHERE %s ORDER BY workflow_id, code, last_at DESC`,
	// At most 100,000 records are counted, because counting is slow. If there are more, the
	// planner's estimate is used.
	StatsQuery: `SELECT pg_database_size(current_database()), 0::bigint,
		CASE WHEN few.n < 100000 THEN few.n
			ELSE greatest(few.n, (SELECT reltuples::bigint FROM pg_class
				WHERE oid = 'executions'::regclass)) END,
		(SELECT min(accepted_at) FROM executions)
		FROM (SELECT count(*) AS n FROM (SELECT 1 FROM executions LIMIT 100000) AS head) AS few`,
}

// numberPlaceholders returns the query with $1, $2 and so on in place of each ?.
func numberPlaceholders(query string) string {
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, ok := strings.Cut(query, "?")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		fmt.Fprintf(&b, "$%d", n)
		query = after
	}
}

// encodeArgs returns query arguments in the form in which PostgreSQL stores them.
func encodeArgs(args []any) []any {
	return mapSlice(args, func(arg any) any {
		switch v := arg.(type) {
		case relational.ExecutionID:
			return store.EncodeID(string(v))
		case relational.ExecutionIDs:
			return encodeIDs(v)
		}
		return arg
	})
}
