package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// dialect holds the expressions of this database that package relational needs.
var dialect = relational.Dialect{
	Name: `sqlite`,
	// 4 is failed, 5 rejected: see relational.StatusCode.
	DeadLetter: `status = 4 AND requeued_as IS NULL AND dismissed_at IS NULL`,
	Trouble:    `e.status IN (4, 5) AND e.status = ?`,
	OfDelivery: `e.seq IN (SELECT seq FROM executions WHERE id = ANY (?::bytea[])
		AND delivery_id = ?
		UNION ALL SELECT seq FROM executions WHERE other_delivery = ?)`,
	Unindexed: `+`, // SQLite has no statistics
	// Without this bound, SQLite sorts all rows with a frequent status instead of reading them in
	// index order.
	FirstTime: int64(math.MinInt64),
	Step:      `e.accepted_at / %[1]d * %[1]d`,
	// With max(), SQLite returns the other columns of the row that has the maximum.
	RefusalSums: `SELECT workflow_id, code, sum(n), max(last_at) AS last_at, body_bytes, user_agent
		FROM refusals WHERE %s GROUP BY workflow_id, code`,
	// Records are deleted oldest first, so seq has few gaps. Each subquery reads one end of an
	// index.
	Size: `SELECT page_count * page_size, freelist_count * page_size,
		coalesce((SELECT max(seq) FROM executions) - (SELECT min(seq) FROM executions) + 1, 0),
		(SELECT min(accepted_at) FROM executions)
		FROM pragma_page_count, pragma_page_size, pragma_freelist_count`,
}

// dialectReplacer translates package relational's expressions, which are in PostgreSQL's dialect,
// to SQLite's.
var dialectReplacer = strings.NewReplacer(`greatest(`, `max(`, `strpos(`, `instr(`, `= ANY (?)`,
	`IN (SELECT value FROM json_each(?))`,
	`= ANY (?::bytea[])`, `IN (SELECT unhex(value) FROM json_each(?))`)

// encodeArgs returns arguments in the form that SQLite stores.
func encodeArgs(args []any) []any {
	values := make([]any, len(args))
	for i, arg := range args {
		values[i] = encodeValue(arg)
	}
	return values
}

// encodeValue returns a value in the form that SQLite stores: times are microseconds since 1970,
// and lists are JSON arrays, because SQLite has no array parameters.
func encodeValue(value any) any {
	switch v := value.(type) {
	case time.Time:
		return v.UnixMicro()
	case *time.Time:
		if v == nil {
			return nil
		}
		return v.UnixMicro()
	case relational.NullableTime:
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

// Read implements relational.Database.
func (s *Store) Read(
	ctx context.Context, operation string, row func(relational.Row) error, query string,
	args ...any,
) error {
	return s.read(ctx, operation, row, dialectReplacer.Replace(query), args...)
}

// EnsureOrigins implements relational.Database. It does nothing: transactions add origins
// themselves.
func (s *Store) EnsureOrigins(context.Context, string, []store.Record) error { return nil }

// Write implements relational.Database.
func (s *Store) Write(ctx context.Context, operation string, do func(relational.Tx) error) error {
	return s.write(ctx, operation, func(tx *transaction) error { return do(tx) })
}

// transaction is a transaction that writes.
type transaction struct {
	*sql.Tx

	known *originLookup
	seqs  map[string]int64 // the row numbers of the records returned by CurrentStates
}

// Exec implements relational.Tx.
func (tx *transaction) Exec(
	ctx context.Context, query string, args ...any,
) (changed int64, err error) {
	result, err := tx.ExecContext(ctx, dialectReplacer.Replace(query), encodeArgs(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Query implements relational.Tx.
func (tx *transaction) Query(
	ctx context.Context, row func(relational.Row) error, query string, args ...any,
) error {
	return eachRow(ctx, tx, row, dialectReplacer.Replace(query), encodeArgs(args)...)
}

// Insert implements relational.Tx.
func (tx *transaction) Insert(
	ctx context.Context, into string, rows [][]any, conflict string,
) error {
	return execEach(ctx, tx.Tx,
		dialectReplacer.Replace(`INSERT INTO `+into+` VALUES `+placeholders(len(rows[0]))+` `+conflict), rows, func(
			row []any,
		) []any {
			for i, value := range row {
				row[i] = encodeValue(value)
			}
			return row
		})
}

// AddMinutes implements relational.Tx.
func (tx *transaction) AddMinutes(ctx context.Context, counts []store.MinuteCount) error {
	return execEach(ctx, tx.Tx,
		`INSERT INTO minutes (minute, kind, n) VALUES (?, ?, ?) ON CONFLICT DO UPDATE
			SET n = n + excluded.n`, counts,
		func(c store.MinuteCount) []any { return []any{c.Minute.UnixMicro(), c.Kind, c.Count} })
}

// Lock implements relational.Tx. It does nothing, because there is only one writing transaction at
// a time.
func (tx *transaction) Lock(context.Context, relational.Lock, bool) error { return nil }

// Snapshot implements relational.Database. A read transaction sees the database as of its first
// query and does not block writers, which append to the WAL in the meantime.
func (s *Store) Snapshot(
	ctx context.Context, operation string, do func(relational.Snapshot) error,
) error {
	s.underway.RLock()
	defer s.underway.RUnlock()
	began := time.Now()
	tx, err := s.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err == nil {
		defer tx.Rollback()
		err = do(snapshot{tx})
	}
	return s.FinishOperation(ctx, operation, began, err)
}

type snapshot struct{ tx *sql.Tx }

// Query implements relational.Snapshot.
func (s snapshot) Query(
	ctx context.Context, row func(relational.Row) error, query string, args ...any,
) error {
	return eachRow(ctx, s.tx, row, dialectReplacer.Replace(query), encodeArgs(args)...)
}

// QueryInPages implements relational.Snapshot.
func (s snapshot) QueryInPages(
	ctx context.Context, row func(relational.Row) error, page func() error, query string,
) error {
	const atOnce = 200
	rows := 0
	if err := eachRow(ctx, s.tx, func(found relational.Row) error {
		if err := row(found); err != nil {
			return err
		}
		if rows++; rows%atOnce != 0 {
			return nil
		}
		return page()
	}, query); err != nil {
		return err
	}
	return page()
}
