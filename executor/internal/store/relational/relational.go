// Package relational implements the parts of a store that are the same for every relational
// database: the steps of each transaction and their order, the access to all tables except the
// executions table, and the queries that read the executions table. A driver embeds Store, and
// provides the transactions and the statements that write the executions table.
//
// The statements are in PostgreSQL's dialect, but have a ? for each value. A driver translates what
// is different in its database.
package relational

import (
	"context"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Row is one row of a query's result. Scan stores the columns of the row in the variables that into
// points to.
type Row interface {
	Scan(into ...any) error
}

// Database is the interface that each driver implements. Its methods must pass every error through
// Store.FinishOperation before they return it.
type Database interface {
	// Read runs one query and calls the function row for each row of the result.
	Read(ctx context.Context, operation string, row func(Row) error, query string,
		args ...any) error
	// EnsureOrigins stores the origins of records before the transaction that inserts the records.
	// Some drivers need a separate transaction for this. In the other drivers, EnsureOrigins does
	// nothing.
	EnsureOrigins(ctx context.Context, operation string, records []store.Record) error
	// Write runs one transaction.
	Write(ctx context.Context, operation string, do func(Tx) error) error
	// Snapshot runs one transaction that sees the database as of one moment and holds no locks.
	Snapshot(ctx context.Context, operation string, do func(Snapshot) error) error
}

// Tx is a transaction that writes. The arguments of its queries are strings, numbers, times, lists
// of strings, numbers or IDs, and the types that Insert accepts.
type Tx interface {
	// Exec runs a statement and returns the number of rows that it changed.
	Exec(ctx context.Context, query string, args ...any) (changed int64, err error)
	// Query runs a query and calls the function row for each row of the result.
	Query(ctx context.Context, row func(Row) error, query string, args ...any) error
	// Insert inserts rows of values, in order. into is the table with its columns, such as "t (a,
	// b)", and conflict is the ON CONFLICT clause. A value is a string, an int64, a []byte, a
	// time.Time, a *time.Time (nil means NULL), an OptionalTime or an ExecutionID.
	Insert(ctx context.Context, into string, rows [][]any, conflict string) error
	// AddMinutes adds counts to the per-minute counts.
	AddMinutes(ctx context.Context, counts []store.MinuteCount) error
	// Lock acquires a lock until the end of the transaction, either exclusive or shared. It does
	// nothing for databases that allow only one writing transaction at a time.
	Lock(ctx context.Context, lock LockKey, exclusive bool) error

	ExecutionTx
}

// ExecutionTx is the part of a transaction that reads and writes the executions table. Callers must
// already have converted times and texts to the form in which they are stored: see store.StoredTime
// and store.SanitizeText. The drivers convert IDs.
type ExecutionTx interface {
	// LockPendingProgress acquires PendingProgressLock in shared or exclusive mode. The result
	// reports whether the transaction may store pending progress steps, that is, steps of
	// executions that are not recorded yet. In PostgreSQL, this requires the exclusive lock.
	LockPendingProgress(ctx context.Context, batch store.Batch) (mayKeepPending bool, err error)
	// MayHavePendingProgress reports whether the database keeps any progress steps of executions
	// that are not recorded yet. A driver that cannot check this cheaply returns true.
	MayHavePendingProgress(ctx context.Context) (bool, error)
	// InsertNew inserts the records whose IDs do not exist yet, and returns them. Of two records
	// with the same ID, it inserts only the first. For existing records, it updates StreamSequence
	// as documented for Batch.NewRecords.
	InsertNew(ctx context.Context, records []store.Record) (inserted []store.Record, err error)
	// LockCurrentStates locks the records with the given IDs and returns their current states,
	// keyed by ID.
	LockCurrentStates(ctx context.Context, ids []string) (map[string]store.CurrentState, error)
	// UpdateStates updates records that LockCurrentStates has returned.
	UpdateStates(ctx context.Context, updates []store.StateUpdate) error
	// EndLostExecutions, MarkRequeued and Dismiss change records and messages as documented for the
	// methods of store.Store with the same names, except that they store no audit entries and no
	// event causes.
	EndLostExecutions(ctx context.Context, lost []store.LostExecution, at time.Time,
		reason string) (ended []string,
		err error)
	MarkRequeued(ctx context.Context, requeued []store.Requeue) (marked []string, err error)
	Dismiss(ctx context.Context, ids []string, messages []store.MessageKey,
		at time.Time) (dismissed []string, messageKeys []store.MessageKey, err error)
	// PruneRecords deletes at most limit records that were accepted before the given time, oldest
	// first, along with their duplicate counts.
	PruneRecords(ctx context.Context, before time.Time, limit int) (pruned int64, err error)
}

// Snapshot is a transaction that sees the database as of one moment.
type Snapshot interface {
	// Query runs a query and calls the function row for each row of the result. It may be called
	// while the page callback of QueryInPages runs.
	Query(ctx context.Context, row func(Row) error, query string, args ...any) error
	// QueryInPages runs a query and calls the function row for each row of the result. It calls the
	// function page after every few hundred rows and after the last row; page may take any amount
	// of time.
	QueryInPages(ctx context.Context, row func(Row) error, page func() error, query string) error
}

// Dialect holds the parts of SQL that differ between databases.
type Dialect struct {
	// Name is the name of the driver, for errors and for store.Size.
	Name string
	// IsUnavailable reports whether a driver's error may go away by itself: see
	// store.UnavailableError.
	IsUnavailable func(err error) bool
	// DeadLetterCondition is a condition that selects the executions that are dead letters.
	DeadLetterCondition string
	// FailedOrRejectedCondition is a condition that selects the executions that failed or were
	// rejected. Its ? stands for the code of one of these two statuses. It must match the condition
	// of a partial index.
	FailedOrRejectedCondition string
	// DeliveryCondition is a condition that selects the executions with a given delivery ID, using
	// only indexes. Its arguments are the list of execution IDs that may have been computed from
	// the delivery ID, and then the delivery ID, twice. It selects the executions whose ID is in
	// the list and whose delivery ID is the second argument, and those whose ID was not computed
	// from their delivery ID and whose delivery ID is the third argument.
	DeliveryCondition string
	// NoIndexColumnPrefix is written before the columns of all conditions that are added after
	// DeliveryCondition. It keeps the planner from using an index on these columns. "" means that
	// the planner needs no such hint.
	NoIndexColumnPrefix string
	// HasStatistics reports whether the planner can estimate how many records a workflow has.
	HasStatistics bool
	// MinTime is a time before every stored time. Queries without a lower bound on the time use it
	// as their lower bound, because some databases read an index in order only if a query has a
	// lower bound. nil means that the database needs none.
	MinTime any
	// TruncatedTimeExpr is an expression that rounds accepted_at down to a multiple of %[1]d
	// microseconds.
	TruncatedTimeExpr string
	// RefusalSumsQuery is a query for the refusals that meet a condition (%s), grouped by workflow
	// and code. Its columns are the workflow, the code, the sum of n, and last_at, body_bytes and
	// user_agent of the last refusal.
	RefusalSumsQuery string
	// StatsQuery is a query for one row with the size of the database in bytes, how many of these
	// bytes are free for new rows, the approximate number of records, and the accepted_at of the
	// oldest record.
	StatsQuery string
}

// LockKey is the key of an advisory lock. A transaction acquires its advisory locks before it locks
// any row.
type LockKey int64

const (
	// PruningLock is held exclusively by transactions that prune, so that no two of them count the
	// same rows as deleted. Transactions that add counts hold it shared: they may lock rows in a
	// different order than a transaction that prunes, and could otherwise deadlock with it.
	PruningLock LockKey = 7_303_014_917_201
	// PendingProgressLock is shared by all transactions that record executions, and held
	// exclusively by those that keep or prune progress steps of executions that are not recorded
	// yet. As a result, either the transaction that keeps steps sees the committed record, or the
	// transaction that records the execution sees the steps.
	PendingProgressLock LockKey = 7_303_014_917_202
	// MigrationLock is shared by all writing transactions, and held exclusively during a migration.
	// Without it, a transaction of an earlier program version could begin before a migration and
	// write after it.
	MigrationLock LockKey = 7_303_014_917_204
	// EventsLock is held exclusively by transactions that decide operator events or mark them as
	// published, that change event conditions, or that acquire the event lease. As a result, only
	// one of these transactions runs at a time.
	EventsLock LockKey = 7_303_014_917_205
	// HandledRangesLock is held exclusively by transactions that replace the ranges of handled
	// messages. Without it, one such transaction could wait for rows that another one is replacing.
	// It would then see that these rows are deleted, but would not see the rows inserted in their
	// place, so its result would lack these ranges.
	HandledRangesLock LockKey = 7_303_014_917_206
)

// Store implements most of store.Store. Drivers embed it and add the rest, such as opening and
// closing.
type Store struct {
	Origins *OriginCache

	db           Database
	dialect      Dialect
	observer     store.Observer
	failureCause func(store.ExecutionFailure) *store.EventCause
}

// New returns the Store that a driver embeds.
func New(db Database, dialect Dialect) Store {
	return Store{Origins: new(OriginCache), db: db, dialect: dialect}
}

// SetObserver implements store.Store.
func (s *Store) SetObserver(observer store.Observer) { s.observer = observer }

// SetFailureCauseFunc implements store.Events.
func (s *Store) SetFailureCauseFunc(cause func(store.ExecutionFailure) *store.EventCause) {
	s.failureCause = cause
}

// FinishOperation tells the observer about an operation that began at the given time and ended with
// err. It returns nil if err is nil. Otherwise, it returns err with the names of the driver and of
// the operation, wrapped in a store.UnavailableError if err may go away by itself.
func (s *Store) FinishOperation(
	ctx context.Context,
	operation string,
	began time.Time,
	err error,
) error {
	if s.observer != nil {
		s.observer(ctx, operation, time.Since(began), err)
	}
	if err == nil {
		return nil
	}
	if s.dialect.IsUnavailable(err) {
		err = &store.UnavailableError{Err: err}
	}
	return fmt.Errorf("%s: %s: %w", s.dialect.Name, operation, err)
}

// Collect runs a query and returns all rows of its result, each converted by scan.
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

// write runs the callback do in one transaction, and returns its result once the transaction has
// been committed.
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

// runPrune runs do, which deletes rows, in a transaction that holds lock exclusively. It returns
// the number of deleted rows.
func (s *Store) runPrune(
	ctx context.Context, operation string, lock LockKey, do func(Tx) (int64, error),
) (int, error) {
	pruned, err := write(ctx, s, operation, func(tx Tx) (int64, error) {
		if err := tx.Lock(ctx, lock, true); err != nil {
			return 0, err
		}
		return do(tx)
	})
	return int(pruned), err
}
