package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// Read implements relational.Database.
func (s *Store) Read(
	ctx context.Context, operation string, row func(relational.Row) error, query string,
	args ...any,
) error {
	return s.read(ctx, operation, row, dialectReplacer.Replace(query), args...)
}

// Write implements relational.Database.
func (s *Store) Write(ctx context.Context, operation string, do func(relational.Tx) error) error {
	return s.write(ctx, operation, func(tx *transaction) error { return do(tx) })
}

// write runs one transaction that writes. It also caches the origins that the transaction has
// added.
func (s *Store) write(ctx context.Context, what string, do func(tx *transaction) error) error {
	s.closeMu.RLock()
	defer s.closeMu.RUnlock()
	began := time.Now()
	known := &originLookup{cache: s.Origins, generation: s.Origins.Generation()}
	err := transact(ctx, s.writer, func(tx *sql.Tx) error {
		if err := checkSchemaVersion(ctx, tx, s.schemaVersion); err != nil {
			// The schema version stays the same until this transaction ends, because no other
			// process can migrate the tables before that.
			return err
		}
		return do(&transaction{Tx: tx, origins: known})
	})
	if err == nil {
		known.cacheAdded()
	}
	return s.FinishOperation(ctx, what, began, asDataError(err))
}

func transact(ctx context.Context, db *sql.DB, do func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after Commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// transaction implements relational.Tx.
type transaction struct {
	*sql.Tx

	origins *originLookup
	rowIDs  map[string]int64 // the row numbers of the records returned by LockCurrentStates
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

// Lock implements relational.Tx. It does nothing, because SQLite allows only one writing
// transaction at a time.
func (tx *transaction) Lock(context.Context, relational.LockKey, bool) error { return nil }

// Snapshot implements relational.Database. A read transaction sees the database as of its first
// query. It does not block writers: they append to the WAL while the transaction runs.
func (s *Store) Snapshot(
	ctx context.Context, operation string, do func(relational.Snapshot) error,
) error {
	s.closeMu.RLock()
	defer s.closeMu.RUnlock()
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
