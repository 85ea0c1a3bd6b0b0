// Package tables keeps what has a table of the same form in every database: the audit, refusals and other counts, reports,
// uses of tokens, senders, unreadable messages, and progress that came before its execution. A driver embeds Store, lends
// it transactions, and keeps the records of executions itself.
//
// Statements are written once, in PostgreSQL's words and with a ? for each value. A driver translates what its database
// says in other words.
package tables

import (
	"context"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Row is a row that a query found.
type Row interface {
	Scan(into ...any) error
}

// Database is what a driver lends. Its errors went through Store.Ended.
type Database interface {
	// Read runs one query and hands each row on.
	Read(ctx context.Context, operation string, row func(Row) error, query string, args ...any) error
	// Write runs one transaction.
	Write(ctx context.Context, operation string, do func(Tx) error) error
	// Snapshot runs one transaction that reads the database as it was at one moment, and locks nothing.
	Snapshot(ctx context.Context, operation string, do func(Snapshot) error) error
}

// Tx is a transaction. The arguments of its methods are texts, numbers, times, lists of texts, and what Insert takes.
type Tx interface {
	// Exec runs a statement, and returns how many rows it changed.
	Exec(ctx context.Context, query string, args ...any) (changed int64, err error)
	// Query runs a query and hands each row on.
	Query(ctx context.Context, row func(Row) error, query string, args ...any) error
	// Insert inserts rows of values, in order. into names the table and its columns, conflict is the clause ON CONFLICT. A
	// value is a string, an int64, a []byte, a time.Time, a *time.Time (nil: NULL), a Never or an ExecutionID.
	Insert(ctx context.Context, into string, rows [][]any, conflict string) error
	// InsertRecords inserts those records whose IDs are not there yet.
	InsertRecords(ctx context.Context, records []store.Record) error
	// AddMinutes adds to the counts by the minute.
	AddMinutes(ctx context.Context, counts []store.MinuteCount) error
	// Lock takes a lock until the end of the transaction, alone or shared. It does nothing where transactions that
	// write come one after the other.
	Lock(ctx context.Context, lock Lock, alone bool) error
}

// Snapshot reads the database as it was at one moment.
type Snapshot interface {
	// Records adds all records, the oldest first.
	Records(ctx context.Context, parts *store.Parts) error
	// Pages hands on the rows that a query finds, and calls page after every few hundred of them and after the last. That
	// may take as long as it takes.
	Pages(ctx context.Context, row func(Row) error, page func() error, query string) error
}

// Dialect is how queries differ that are not the same everywhere.
type Dialect struct {
	// Name is the driver's, in errors.
	Name string
	// Execution is the column of duplicate_counts that names the execution.
	Execution string
	// DeadLetter is the condition of an execution that is a dead letter.
	DeadLetter string
	// RefusalSums are the refusals under a condition (%s), summed by workflow and code: these two, the sum of n, and
	// last_at, body_bytes and user_agent of the last one.
	RefusalSums string
}

// Lock is taken before any row is locked.
type Lock int64

const (
	// Pruning is held alone by what prunes, so that two at once do not count the same rows; who adds counts shares it, so
	// that the two need no common order on the rows.
	Pruning Lock = 7_303_014_917_201
	// Early is shared by all that record, and held alone by who keeps a step whose execution is not recorded, or prunes
	// such. So either he sees the record, which is committed, or the one who records it sees the step.
	Early Lock = 7_303_014_917_202
)

// Store implements the methods of store.Store that concern these tables.
type Store struct {
	db       Database
	dialect  Dialect
	observer store.Observer
}

// New is the Store of a driver.
func New(db Database, dialect Dialect) Store { return Store{db: db, dialect: dialect} }

// Observe implements store.Store.
func (s *Store) Observe(observer store.Observer) { s.observer = observer }

// Ended tells the observer of an operation, and returns its error with the names of the driver and of the operation.
func (s *Store) Ended(ctx context.Context, operation string, began time.Time, err error) error {
	if s.observer != nil {
		s.observer(ctx, operation, time.Since(began), err)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", s.dialect.Name, operation, err)
	}
	return nil
}

// Collect returns what a query finds.
func Collect[T any](ctx context.Context, db Database, operation string, scan func(Row) (T, error), query string, args ...any) ([]T, error) {
	var found []T
	err := db.Read(ctx, operation, func(row Row) error {
		one, err := scan(row)
		found = append(found, one)
		return err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// prune runs one transaction that deletes, and returns how many rows that were.
func (s *Store) prune(ctx context.Context, operation string, lock Lock, do func(Tx) (int64, error)) (pruned int, err error) {
	err = s.db.Write(ctx, operation, func(tx Tx) error {
		if err := tx.Lock(ctx, lock, true); err != nil {
			return err
		}
		n, err := do(tx)
		pruned = int(n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return pruned, nil
}
