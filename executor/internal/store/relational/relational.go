// Package relational is the part of a store that is the same in every relational database: what a transaction does, in which
// order, all tables but that of executions, and reading that one. A driver embeds Store and lends it transactions.
//
// Statements are PostgreSQL's, with a ? for each value. A driver translates what its database says in other words.
package relational

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
	// Prepare makes the origins of records known before the transaction that records them, where that has to be apart.
	Prepare(ctx context.Context, operation string, records []store.Record) error
	// Write runs one transaction.
	Write(ctx context.Context, operation string, do func(Tx) error) error
	// Snapshot runs one transaction that reads the database as it was at one moment, and locks nothing.
	Snapshot(ctx context.Context, operation string, do func(Snapshot) error) error
}

// Tx is a transaction. The arguments of its methods are texts, numbers, times, lists of texts, numbers and IDs, and what Insert takes.
type Tx interface {
	// Exec runs a statement, and returns how many rows it changed.
	Exec(ctx context.Context, query string, args ...any) (changed int64, err error)
	// Query runs a query and hands each row on.
	Query(ctx context.Context, row func(Row) error, query string, args ...any) error
	// Insert inserts rows of values, in order. into names the table and its columns, conflict is the clause ON CONFLICT. A
	// value is a string, an int64, a []byte, a time.Time, a *time.Time (nil: NULL), a Never or an ExecutionID.
	Insert(ctx context.Context, into string, rows [][]any, conflict string) error
	// AddMinutes adds to the counts by the minute.
	AddMinutes(ctx context.Context, counts []store.MinuteCount) error
	// Lock takes a lock until the end of the transaction, alone or shared. It does nothing where transactions that
	// write come one after the other.
	Lock(ctx context.Context, lock Lock, alone bool) error

	Executions
}

// Executions is what a transaction does with the records of executions. Values are as they are stored.
type Executions interface {
	// LockEarly takes the lock Early, and says whether steps of executions that are not recorded may be kept.
	LockEarly(ctx context.Context, batch store.Batch) (mayKeep bool, err error)
	// HasEarly says whether any progress is kept of executions that are not recorded; true if that is not known.
	HasEarly(ctx context.Context) (bool, error)
	// InsertNew inserts records whose IDs are not there yet, and returns them; of two of one ID the first. Those that are
	// there follow their messages, as Batch.New promises.
	InsertNew(ctx context.Context, records []store.Record) (inserted []store.Record, err error)
	// Standing locks records, and returns how they stand, by ID.
	Standing(ctx context.Context, ids []string) (map[string]store.Standing, error)
	// Move moves records on that Standing has returned.
	Move(ctx context.Context, moves []store.Move) error
	// EndLost, MarkRequeued and Dismiss do what store.Store's do with the records and messages.
	EndLost(ctx context.Context, lost []store.Lost, at time.Time, reason string) (ended []string, err error)
	MarkRequeued(ctx context.Context, requeued []store.Requeue) (marked []string, err error)
	Dismiss(ctx context.Context, ids []string, messages []store.MessageKey, at time.Time) (dismissed []string, of []store.MessageKey, err error)
	// PruneRecords deletes at most limit records accepted before a time, the oldest first, and their duplicate counts.
	PruneRecords(ctx context.Context, before time.Time, limit int) (pruned int64, err error)
}

// Snapshot reads the database as it was at one moment.
type Snapshot interface {
	// Query runs a query and hands each row on. It may be called by page.
	Query(ctx context.Context, row func(Row) error, query string, args ...any) error
	// Pages hands on the rows that a query finds, and calls page after every few hundred of them and after the last. page
	// may take as long as it needs.
	Pages(ctx context.Context, row func(Row) error, page func() error, query string) error
}

// Dialect is how queries differ that are not the same everywhere.
type Dialect struct {
	// Name is the driver's, in errors.
	Name string
	// DeadLetter is the condition of an execution that is a dead letter.
	DeadLetter string
	// Trouble is the condition of one that failed or was rejected, with a ? for the code of the status, in words that its
	// index has.
	Trouble string
	// OfDelivery is the condition of those that have one of several IDs and a delivery ID of which it is computed (two arguments), or
	// another delivery ID (the third). It looks up both. Unindexed is put before a column that is not to choose the index beside it.
	OfDelivery, Unindexed string
	// HasStatistics says whether the planner knows how many records a workflow has.
	HasStatistics bool
	// FirstTime is an argument that is before every time, for a database that needs a bound to read an index in its order. nil: it
	// does not.
	FirstTime any
	// Step is accepted_at cut to steps of %[1]d microseconds.
	Step string
	// RefusalSums are the refusals under a condition (%s), summed by workflow and code: these two, the sum of n, and
	// last_at, body_bytes and user_agent of the last one.
	RefusalSums string
}

// Lock is taken before any row is locked.
type Lock int64

const (
	// Pruning is held alone by a transaction that prunes, so that two of them do not count the same rows. Transactions that
	// add counts share it, so that they and a prune need no common order on the rows.
	Pruning Lock = 7_303_014_917_201
	// Early is shared by all transactions that record, and held alone by one that keeps steps whose execution is not
	// recorded, or prunes them. So either that one sees the record, which is committed, or the one that records it sees the
	// steps.
	Early Lock = 7_303_014_917_202
	// Migration is shared by all transactions that write, and held alone while the tables are migrated: no transaction of an
	// earlier version begins before a migration and writes after it.
	Migration Lock = 7_303_014_917_204
)

// Store implements most of store.Store. The rest, opening and closing, is the driver's.
type Store struct {
	Origins *Origins

	db       Database
	dialect  Dialect
	observer store.Observer
}

// New is the Store of a driver.
func New(db Database, dialect Dialect) Store {
	return Store{Origins: new(Origins), db: db, dialect: dialect}
}

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

// write runs one transaction, and returns what it returns, once that is committed.
func write[T any](ctx context.Context, s *Store, operation string, do func(Tx) (T, error)) (result T, err error) {
	err = s.db.Write(ctx, operation, func(tx Tx) (err error) {
		result, err = do(tx)
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}

// prune runs one transaction that deletes, and returns how many rows that were.
func (s *Store) prune(ctx context.Context, operation string, lock Lock, do func(Tx) (int64, error)) (int, error) {
	pruned, err := write(ctx, s, operation, func(tx Tx) (int64, error) {
		if err := tx.Lock(ctx, lock, true); err != nil {
			return 0, err
		}
		return do(tx)
	})
	return int(pruned), err
}
