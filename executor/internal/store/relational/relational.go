// Package relational implements the part of a store that is the same in every relational database:
// the steps of each transaction and their order, all tables except that of executions, and the
// reading of that one. A driver embeds Store and provides transactions.
//
// Statements are written in PostgreSQL's dialect with a ? for each value. A driver translates them
// where its database differs.
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

// Database is the part that a driver provides. Its errors have gone through Store.Ended.
type Database interface {
	// Read runs one query and calls row for each row.
	Read(ctx context.Context, operation string, row func(Row) error, query string,
		args ...any) error
	// Prepare stores the origins of records before the transaction that records them, in databases
	// where that must be separate.
	Prepare(ctx context.Context, operation string, records []store.Record) error
	// Write runs one transaction.
	Write(ctx context.Context, operation string, do func(Tx) error) error
	// Snapshot runs one transaction that reads the database as it was at one moment, without locks.
	Snapshot(ctx context.Context, operation string, do func(Snapshot) error) error
}

// Tx is a transaction. The arguments of its methods are strings, numbers, times, lists of strings,
// numbers and IDs, and the types that Insert accepts.
type Tx interface {
	// Exec runs a statement and returns the number of changed rows.
	Exec(ctx context.Context, query string, args ...any) (changed int64, err error)
	// Query runs a query and calls row for each row.
	Query(ctx context.Context, row func(Row) error, query string, args ...any) error
	// Insert inserts rows of values, in order. into names the table and its columns, conflict is
	// the clause ON CONFLICT. A value is a string, an int64, a []byte, a time.Time, a *time.Time
	// (nil means NULL), a Never or an ExecutionID.
	Insert(ctx context.Context, into string, rows [][]any, conflict string) error
	// AddMinutes adds to the counts by the minute.
	AddMinutes(ctx context.Context, counts []store.MinuteCount) error
	// Lock acquires a lock until the end of the transaction: an exclusive one if alone is true,
	// otherwise a shared one. It does nothing in databases that run writing transactions one after
	// the other.
	Lock(ctx context.Context, lock Lock, alone bool) error

	Executions
}

// Executions is the part of a transaction that handles the records of executions. Values are in
// their stored form.
type Executions interface {
	// LockPending acquires the lock Pending, and reports whether steps of executions that are not
	// recorded may be kept.
	LockPending(ctx context.Context, batch store.Batch) (mayKeep bool, err error)
	// HasPending reports whether any progress of unrecorded executions is kept. It returns true if
	// that is not known.
	HasPending(ctx context.Context) (bool, error)
	// InsertNew inserts the records whose IDs are not there yet, and returns them; if two have the
	// same ID, the first. Records that are there follow their messages, as Batch.New promises.
	InsertNew(ctx context.Context, records []store.Record) (inserted []store.Record, err error)
	// CurrentStates locks records and returns their current states by ID.
	CurrentStates(ctx context.Context, ids []string) (map[string]store.CurrentState, error)
	// UpdateStates changes records that CurrentStates has returned.
	UpdateStates(ctx context.Context, moves []store.StateUpdate) error
	// EndLost, MarkRequeued and Dismiss do the same as the methods of store.Store for records and
	// messages.
	EndLost(ctx context.Context, lost []store.Lost, at time.Time, reason string) (ended []string,
		err error)
	MarkRequeued(ctx context.Context, requeued []store.Requeue) (marked []string, err error)
	Dismiss(ctx context.Context, ids []string, messages []store.MessageKey,
		at time.Time) (dismissed []string, messageKeys []store.MessageKey, err error)
	// PruneRecords deletes at most limit records that were accepted before a time, oldest first,
	// and their duplicate counts.
	PruneRecords(ctx context.Context, before time.Time, limit int) (pruned int64, err error)
}

// Snapshot reads the database as it was at one moment.
type Snapshot interface {
	// Query runs a query and calls row for each row. It may be called from page.
	Query(ctx context.Context, row func(Row) error, query string, args ...any) error
	// Pages calls row for each row that a query finds, and calls page after every few hundred rows
	// and after the last. page may take as long as it needs.
	Pages(ctx context.Context, row func(Row) error, page func() error, query string) error
}

// Dialect holds the parts of queries that differ among databases.
type Dialect struct {
	// Name is the name of the driver in errors.
	Name string
	// DeadLetter is the condition of an execution that is a dead letter.
	DeadLetter string
	// Trouble is the condition of an execution that failed or was rejected, with a ? for the code
	// of the status. It repeats the condition of an index.
	Trouble string
	// OfDelivery is the condition of the executions with a delivery ID. Its arguments are the
	// execution IDs that can be computed from the delivery ID, the delivery ID, and the delivery ID
	// again, for executions whose ID was not computed from it. Both are looked up in an index.
	OfDelivery string
	// Unindexed is a prefix for a column in a further condition. It keeps the planner from choosing
	// an index by that column. "" means that the planner needs no such hint.
	Unindexed string
	// HasStatistics reports whether the planner knows how many records a workflow has.
	HasStatistics bool
	// FirstTime is an argument before every time, for a database that needs a bound to read an
	// index in its order. nil means that it needs none.
	FirstTime any
	// Step is accepted_at cut to steps of %[1]d microseconds.
	Step string
	// RefusalSums selects the refusals under a condition (%s), summed by workflow and code: these
	// two columns, the sum of n, and last_at, body_bytes and user_agent of the last one.
	RefusalSums string
	// Size is a query for one row: the size of the database in bytes, the part of it that is free
	// for new rows, about how many records there are, and the accepted_at of the oldest.
	Size string
}

// Lock is an advisory lock that is taken before any row is locked.
type Lock int64

const (
	// Pruning is held exclusively by a transaction that prunes, so that two of them do not count
	// the same rows. Transactions that add counts share it, so that they and a prune need no common
	// order of rows.
	Pruning Lock = 7_303_014_917_201
	// Pending is shared by all transactions that record, and held exclusively by one that keeps
	// steps of executions that are not recorded, or prunes them. So either that transaction sees
	// the committed record, or the transaction that records sees the steps.
	Pending Lock = 7_303_014_917_202
	// Migration is shared by all transactions that write, and held exclusively while the tables are
	// migrated: no transaction of an earlier version begins before a migration and writes after it.
	Migration Lock = 7_303_014_917_204
	// Events is held exclusively by a transaction that decides operator events, or changes the
	// conditions that they report.
	Events Lock = 7_303_014_917_205
)

// Store implements most of store.Store. Opening and closing are the driver's.
type Store struct {
	Origins *Origins

	db       Database
	dialect  Dialect
	observer store.Observer
	failure  func(store.Failure) *store.EventCause
}

// New returns the Store of a driver.
func New(db Database, dialect Dialect) Store {
	return Store{Origins: new(Origins), db: db, dialect: dialect}
}

// Observe implements store.Store.
func (s *Store) Observe(observer store.Observer) { s.observer = observer }

// OnFailure implements store.Store.
func (s *Store) OnFailure(cause func(store.Failure) *store.EventCause) { s.failure = cause }

// Ended calls the observer of an operation, and returns its error with the names of the driver and
// of the operation.
func (s *Store) Ended(ctx context.Context, operation string, began time.Time, err error) error {
	if s.observer != nil {
		s.observer(ctx, operation, time.Since(began), err)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", s.dialect.Name, operation, err)
	}
	return nil
}

// Collect returns everything that a query finds.
func Collect[T any](
	ctx context.Context, db Database, operation string, scan func(Row) (T, error), query string,
	args ...any,
) ([]T, error) {
	var found []T
	err := db.Read(ctx, operation, func(row Row) error {
		item, err := scan(row)
		found = append(found, item)
		return err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// write runs one transaction, and returns its result once it is committed.
func write[T any](
	ctx context.Context, s *Store, operation string, do func(Tx) (T, error),
) (result T, err error) {
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

// prune runs one transaction that deletes, and returns the number of deleted rows.
func (s *Store) prune(
	ctx context.Context, operation string, lock Lock, do func(Tx) (int64, error),
) (int, error) {
	pruned, err := write(ctx, s, operation, func(tx Tx) (int64, error) {
		if err := tx.Lock(ctx, lock, true); err != nil {
			return 0, err
		}
		return do(tx)
	})
	return int(pruned), err
}
