package sqlite

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// dialect holds the parts of the SQL in package relational that differ between databases, in the
// form for SQLite.
var dialect = relational.Dialect{
	Name:          `sqlite`,
	IsUnavailable: isUnavailable,
	// 4 is failed, 5 rejected: see relational.StatusCode.
	DeadLetterCondition:       `status = 4 AND requeued_as IS NULL AND dismissed_at IS NULL`,
	FailedOrRejectedCondition: `e.status IN (4, 5) AND e.status = ?`,
	DeliveryCondition: `e.seq IN (SELECT seq FROM executions WHERE id = ANY (?::bytea[])
		AND delivery_id = ?
		UNION ALL SELECT seq FROM executions WHERE other_delivery = ?)`,
	NoIndexColumnPrefix: `+`, // needed because SQLite has no statistics to choose an index by
	// SQLite needs a lower bound on the time: without one, it sorts all rows with a frequent status
	// instead of reading them in index order.
	MinTime:           int64(math.MinInt64),
	TruncatedTimeExpr: `e.accepted_at / %[1]d * %[1]d`,
	// In a query that selects max(), SQLite takes the other columns from the row with the maximum.
	// So body_bytes and user_agent are those of the last refusal.
	RefusalSumsQuery: `SELECT workflow_id, code, sum(n), max(last_at) AS last_at, body_bytes, user_agent
		FROM refusals WHERE %s GROUP BY workflow_id, code`,
	// The number of records is estimated from the lowest and the highest seq. Because records are
	// deleted oldest first, few numbers between these two are unused. Each subquery reads only one
	// end of an index.
	StatsQuery: `SELECT page_count * page_size, freelist_count * page_size,
		coalesce((SELECT max(seq) FROM executions) - (SELECT min(seq) FROM executions) + 1, 0),
		(SELECT min(accepted_at) FROM executions)
		FROM pragma_page_count, pragma_page_size, pragma_freelist_count`,
}

// dialectReplacer translates package relational's expressions from PostgreSQL's dialect to
// SQLite's.
var dialectReplacer = strings.NewReplacer(`greatest(`, `max(`, `strpos(`, `instr(`, `= ANY (?)`,
	`IN (SELECT value FROM json_each(?))`,
	`= ANY (?::bytea[])`, `IN (SELECT unhex(value) FROM json_each(?))`)

// encodeArgs returns query arguments in the form in which SQLite stores them.
func encodeArgs(args []any) []any {
	values := make([]any, len(args))
	for i, arg := range args {
		values[i] = encodeValue(arg)
	}
	return values
}

// encodeValue returns a value in the form in which SQLite stores it. Times become microseconds
// since 1970. Lists become JSON arrays, because SQLite has no array parameters.
func encodeValue(value any) any {
	switch v := value.(type) {
	case time.Time:
		return v.UnixMicro()
	case *time.Time:
		if v == nil {
			return nil
		}
		return v.UnixMicro()
	case relational.OptionalTime:
		if time.Time(v).IsZero() {
			return int64(0)
		}
		return time.Time(v).UnixMicro()
	case relational.ExecutionID:
		return store.EncodeID(string(v))
	case relational.ExecutionIDs:
		return encodeIDsJSON(v)
	case []string, []int64:
		array, err := json.Marshal(v)
		if err != nil {
			panic(err) // they always marshal
		}
		return string(array)
	}
	return value
}
