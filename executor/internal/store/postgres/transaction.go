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

// Read implements relational.Database.
func (s *Store) Read(
	ctx context.Context, operation string, row func(relational.Row) error, query string,
	args ...any,
) error {
	began := time.Now()
	rows, err := s.pool.Query(ctx, numberPlaceholders(query), encodeArgs(args)...)
	return s.FinishOperation(ctx, operation, began, withContextError(ctx, eachRow(rows, err, row)))
}

// eachRow passes each row of a query's result to the callback. rows and err are what pgx's Query
// has returned; if err is not nil, eachRow returns it.
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

// write runs one transaction that writes. It uses the isolation level READ COMMITTED, regardless of
// the server's default, because the statements lock the rows that their decisions depend on.
func (s *Store) write(ctx context.Context, what string, do func(tx transaction) error) error {
	began := time.Now()
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{
		IsoLevel:   pgx.ReadCommitted,
		AccessMode: pgx.ReadWrite,
	}, func(tx pgx.Tx) error {
		if err := s.lockAndCheckSchemaVersion(ctx, tx); err != nil {
			return err
		}
		return do(transaction{tx, s.writerID, s.Origins, make(map[string]time.Time)})
	})
	return s.FinishOperation(ctx, what, began, asDataError(withContextError(ctx, err)))
}

// lockAndCheckSchemaVersion prevents migrations until the transaction ends, and returns an error if
// the tables have a newer schema version than this program supports. It acquires
// relational.MigrationLock and reads the version in one round trip.
func (s *Store) lockAndCheckSchemaVersion(ctx context.Context, tx pgx.Tx) error {
	var version int64
	both := &pgx.Batch{}
	both.Queue(`SELECT pg_advisory_xact_lock_shared($1)`, int64(relational.MigrationLock))
	both.Queue(relational.SelectSchemaVersion).QueryRow(func(row pgx.Row) error {
		return row.Scan(&version)
	})
	if err := tx.SendBatch(ctx, both).Close(); err != nil {
		return err
	}
	return relational.CheckSchemaVersion(version, s.schemaVersion)
}

// transaction implements relational.Tx.
type transaction struct {
	pgx.Tx

	writerID   int16
	origins    *relational.OriginCache
	acceptedAt map[string]time.Time // when the records returned by LockCurrentStates were accepted
}

// Exec implements relational.Tx.
func (tx transaction) Exec(
	ctx context.Context, query string, args ...any,
) (changed int64, err error) {
	tag, err := tx.Tx.Exec(ctx, numberPlaceholders(query), encodeArgs(args)...)
	return tag.RowsAffected(), err
}

// Query implements relational.Tx.
func (tx transaction) Query(
	ctx context.Context, row func(relational.Row) error, query string, args ...any,
) error {
	rows, err := tx.Tx.Query(ctx, numberPlaceholders(query), encodeArgs(args)...)
	return eachRow(rows, err, row)
}

// Insert implements relational.Tx. It inserts all rows with a single statement, whose parameters
// are one array per column.
func (tx transaction) Insert(
	ctx context.Context, into string, rows [][]any, conflict string,
) error {
	arrays, parameters := make([]any, len(rows[0])), make([]string, len(rows[0]))
	for i := range arrays {
		var kind string
		arrays[i], kind = columnArray(rows, i)
		parameters[i] = fmt.Sprintf("$%d::%s[]", i+1, kind)
	}
	_, err := tx.Tx.Exec(ctx,
		`INSERT INTO `+into+` SELECT * FROM unnest(`+strings.Join(parameters, ", ")+`) `+conflict,
		arrays...)
	return err
}

// columnArray returns column i of rows as an array, and the type of the array's elements in the
// database. There must be at least one row.
func columnArray(rows [][]any, i int) (array any, kind string) {
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
	case relational.OptionalTime:
		return mapSlice(typedColumn[relational.OptionalTime](rows, i),
			func(at relational.OptionalTime) *time.Time {
				return nullableTime(time.Time(at))
			}), "timestamptz"
	}
	// Unreachable, because the tests insert into every table and would have found a type without a
	// case.
	panic(fmt.Sprintf("postgres: a value of the type %T", rows[0][i]))
}

func typedColumn[V any](rows [][]any, i int) []V {
	//nolint:errcheck,forcetypeassert // every row of a table has the same types
	return mapSlice(rows, func(row []any) V { return row[i].(V) })
}

// AddMinutes implements relational.Tx. It changes only the rows that belong to this store: see
// Store.writerID.
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
		mapSlice(counts, func(c store.MinuteCount) int64 { return c.Count }), tx.writerID)
	return err
}

// Lock implements relational.Tx. It acquires an advisory lock, which the database releases at the
// end of the transaction.
func (tx transaction) Lock(ctx context.Context, lock relational.LockKey, exclusive bool) error {
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
	return s.FinishOperation(ctx, operation, began, withContextError(ctx, err))
}

type snapshot struct{ tx pgx.Tx }

// Query implements relational.Snapshot.
func (s snapshot) Query(
	ctx context.Context, row func(relational.Row) error, query string, args ...any,
) error {
	rows, err := s.tx.Query(ctx, numberPlaceholders(query), encodeArgs(args)...)
	return eachRow(rows, err, row)
}

// QueryInPages implements relational.Snapshot. It reads with a cursor, so the connection has no
// query in progress while the function page runs, even if that takes a long time.
func (s snapshot) QueryInPages(
	ctx context.Context, row func(relational.Row) error, page func() error, query string,
) error {
	const fetched = 500
	if _, err := s.tx.Exec(ctx, `DECLARE backup NO SCROLL CURSOR FOR `+query); err != nil {
		return err
	}
	for {
		// Let the server describe the result each time. The description must not be cached, because
		// the cursors of other queries have the same name.
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
