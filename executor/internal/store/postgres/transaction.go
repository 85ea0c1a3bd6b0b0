package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// dialect holds the expressions of this database that package relational needs.
var dialect = relational.Dialect{
	Name: `postgres`,
	// 4 is failed: see relational.StatusCode.
	DeadLetter: `trouble = 4 AND requeued_as IS NULL AND dismissed_at IS NULL`,
	Trouble:    `e.trouble = ?`,
	// Pass the IDs as an array and look up each one separately, which forces the planner to use the
	// index of IDs.
	OfDelivery: `e.id = ANY (ARRAY(SELECT found.id FROM unnest(?::bytea[]) AS wanted (id)
		CROSS JOIN LATERAL (SELECT id, delivery_id FROM executions WHERE id = wanted.id
		LIMIT 1) AS found WHERE found.delivery_id = ?
		UNION ALL SELECT id FROM executions WHERE other_delivery = ?))`,
	HasStatistics: true,
	Step:          `date_bin(%[1]d * interval '1 microsecond', e.accepted_at, '1970-01-01T00:00:00Z')`,
	RefusalSums: `SELECT DISTINCT ON (workflow_id, code) workflow_id, code,
		(sum(n) OVER (PARTITION BY workflow_id, code))::bigint, last_at, body_bytes, user_agent
		FROM refusals WHERE %s ORDER BY workflow_id, code, last_at DESC`,
	// Where counting would take a long time, use the planner's estimate.
	Size: `SELECT pg_database_size(current_database()), 0::bigint,
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

// storedArgs returns arguments in the form that PostgreSQL stores.
func storedArgs(args []any) []any {
	return mapSlice(args, func(arg any) any {
		switch v := arg.(type) {
		case relational.ExecutionID:
			return store.EncodeID(string(v))
		case relational.ExecutionIDs:
			return storedIDs(v)
		}
		return arg
	})
}

// Read implements relational.Database.
func (s *Store) Read(
	ctx context.Context, operation string, row func(relational.Row) error, query string,
	args ...any,
) error {
	began := time.Now()
	rows, err := s.pool.Query(ctx, numberPlaceholders(query), storedArgs(args)...)
	return s.FinishOperation(ctx, operation, began, withCancellation(ctx, eachRow(rows, err, row)))
}

// eachRow calls row for each row of a query's result.
func eachRow(rows pgx.Rows, err error, row func(relational.Row) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Write implements relational.Database.
func (s *Store) Write(ctx context.Context, operation string, do func(relational.Tx) error) error {
	return s.write(ctx, operation, func(tx transaction) error { return do(tx) })
}

// transaction is a transaction that writes.
type transaction struct {
	pgx.Tx

	writer   int16
	origins  *relational.OriginCache
	accepted map[string]time.Time // when the records returned by CurrentStates were accepted
}

// Exec implements relational.Tx.
func (tx transaction) Exec(
	ctx context.Context, query string, args ...any,
) (changed int64, err error) {
	tag, err := tx.Tx.Exec(ctx, numberPlaceholders(query), storedArgs(args)...)
	return tag.RowsAffected(), err
}

// Query implements relational.Tx.
func (tx transaction) Query(
	ctx context.Context, row func(relational.Row) error, query string, args ...any,
) error {
	rows, err := tx.Tx.Query(ctx, numberPlaceholders(query), storedArgs(args)...)
	return eachRow(rows, err, row)
}

// Insert implements relational.Tx. A single statement inserts all rows, passed as arrays.
func (tx transaction) Insert(
	ctx context.Context, into string, rows [][]any, conflict string,
) error {
	arrays, parameters := make([]any, len(rows[0])), make([]string, len(rows[0]))
	for i := range arrays {
		var kind string
		arrays[i], kind = arrayOf(rows, i)
		parameters[i] = fmt.Sprintf("$%d::%s[]", i+1, kind)
	}
	_, err := tx.Tx.Exec(ctx,
		`INSERT INTO `+into+` SELECT * FROM unnest(`+strings.Join(parameters, ", ")+`) `+conflict,
		arrays...)
	return err
}

// arrayOf returns column i of rows as an array, and the array's element type in the database.
func arrayOf(rows [][]any, i int) (array any, kind string) {
	switch rows[0][i].(type) {
	case string:
		return typedColumn[string](rows, i), "text"
	case relational.ExecutionID:
		return mapSlice(typedColumn[relational.ExecutionID](rows, i),
			func(id relational.ExecutionID) []byte {
				return store.EncodeID(string(id))
			}), "bytea"
	case int64:
		return typedColumn[int64](rows, i), "bigint"
	case []byte:
		return typedColumn[[]byte](rows, i), "bytea"
	case time.Time:
		return typedColumn[time.Time](rows, i), "timestamptz"
	case *time.Time:
		return typedColumn[*time.Time](rows, i), "timestamptz"
	case relational.NullableTime:
		return mapSlice(typedColumn[relational.NullableTime](rows, i),
			func(at relational.NullableTime) *time.Time {
				return nullableTime(time.Time(at))
			}), "timestamptz"
	}
	// Unreachable: tests insert into every table.
	panic(fmt.Sprintf("postgres: a value of the type %T", rows[0][i]))
}

func typedColumn[V any](rows [][]any, i int) []V {
	//nolint:errcheck,forcetypeassert // every row of a table has the same types
	return mapSlice(rows, func(row []any) V { return row[i].(V) })
}

// AddMinutes implements relational.Tx. It adds to the rows that belong to this store.
func (tx transaction) AddMinutes(ctx context.Context, counts []store.MinuteCount) error {
	if len(counts) == 0 {
		return nil
	}
	_, err := tx.Tx.Exec(ctx, `INSERT INTO minutes AS m (minute, kind, writer, n)
		SELECT minute, kind, $4::smallint, n FROM unnest($1::timestamptz[], $2::text[],
		$3::bigint[]) AS r (minute, kind, n)
		ON CONFLICT (minute, kind, writer) DO UPDATE SET n = m.n + excluded.n`,
		mapSlice(counts, func(c store.MinuteCount) time.Time { return c.Minute }),
		mapSlice(counts, func(c store.MinuteCount) string { return c.Kind }),
		mapSlice(counts, func(c store.MinuteCount) int64 { return c.Count }), tx.writer)
	return err
}

// Lock implements relational.Tx with an advisory lock.
func (tx transaction) Lock(ctx context.Context, lock relational.Lock, exclusive bool) error {
	query := `SELECT pg_advisory_xact_lock_shared($1)`
	if exclusive {
		query = `SELECT pg_advisory_xact_lock($1)`
	}
	_, err := tx.Tx.Exec(ctx, query, int64(lock))
	return err
}

// Snapshot implements relational.Database.
func (s *Store) Snapshot(
	ctx context.Context, operation string, do func(relational.Snapshot) error,
) error {
	began := time.Now()
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{
		IsoLevel:   pgx.RepeatableRead,
		AccessMode: pgx.ReadOnly,
	}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx,
			`SET LOCAL idle_in_transaction_session_timeout = '2min'`); err != nil {
			return err
		}
		return do(snapshot{tx})
	})
	return s.FinishOperation(ctx, operation, began, withCancellation(ctx, err))
}

type snapshot struct{ tx pgx.Tx }

// Query implements relational.Snapshot.
func (s snapshot) Query(
	ctx context.Context, row func(relational.Row) error, query string, args ...any,
) error {
	rows, err := s.tx.Query(ctx, numberPlaceholders(query), storedArgs(args)...)
	return eachRow(rows, err, row)
}

// QueryInPages implements relational.Snapshot. It uses a cursor, so the connection has no query in
// progress while page runs, even if that takes long.
func (s snapshot) QueryInPages(
	ctx context.Context, row func(relational.Row) error, page func() error, query string,
) error {
	const fetched = 500
	if _, err := s.tx.Exec(ctx, `DECLARE backup NO SCROLL CURSOR FOR `+query); err != nil {
		return err
	}
	for {
		// Describe the statement each time, because other queries reuse the cursor's name.
		rows, err := s.tx.Query(ctx, fmt.Sprintf(`FETCH %d FROM backup`, fetched),
			pgx.QueryExecModeDescribeExec)
		if err := eachRow(rows, err, row); err != nil {
			return err
		}
		if err := page(); err != nil {
			return err
		}
		if rows.CommandTag().RowsAffected() < fetched {
			_, err := s.tx.Exec(ctx, `CLOSE backup`)
			return err
		}
	}
}
