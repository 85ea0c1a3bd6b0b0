package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// read runs one query on a connection of the read pool, and calls the function row for each row of
// the result.
func (s *Store) read(
	ctx context.Context, what string, row func(relational.Row) error, query string, args ...any,
) error {
	return s.runRead(ctx, what, func() error {
		return eachRow(ctx, s.reader, row, query, encodeArgs(args)...)
	})
}

// runRead runs the callback do, which must only read and must use s.reader. Close waits until
// the callback has returned.
func (s *Store) runRead(ctx context.Context, what string, do func() error) error {
	s.closeMu.RLock()
	defer s.closeMu.RUnlock()
	began := time.Now()
	return s.FinishOperation(ctx, what, began, do())
}

// querier is implemented by both *sql.DB and *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// eachRow runs a query and calls row with each row of the result.
func eachRow(
	ctx context.Context, db querier, row func(relational.Row) error, query string, args ...any,
) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
