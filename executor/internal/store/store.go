// Package store defines what the executor keeps in its database. It is the contract that the
// drivers sqlite and postgres implement, and that the test suite storetest verifies.
//
// The contract is Store, which embeds one interface for each kind of content. Each interface is in
// a file of its own, with its types, and its doc comment names the packages that use it. A function
// that needs only a few of the interfaces accepts these instead of Store, so that its signature
// shows what it reads and writes. Methods of different interfaces may access the same rows: for
// example, Recording inserts records, Records reads them, and Pruner deletes them.
//
// The other files contain functions that do not access the database. They do the work that must be
// the same in all drivers: applying progress (advance.go, pending.go), converting values and IDs to
// stored form (sanitize.go, key.go), finding the values that records share (origin.go), and merging
// the requests that matched no filter (filtered.go).
//
// A record is small: instead of the headers and the input of an execution, it contains the stream
// sequence of the message that has them.
package store

import (
	"context"
	"errors"
	"time"
)

// Store is everything that the executor keeps in its database. Package executor opens it, and
// passes each part of the process only the interfaces that this part needs. operate needs most of
// them, so it gets the whole Store.
//
// A Store is safe for concurrent use, including by several processes. When a method returns without
// an error, its changes are committed and survive a crash of the process or the machine. When a
// method returns an error, it has changed nothing, with one exception: after an UnavailableError,
// all of its changes may have been made, because only the response to the commit may have been
// lost. Methods do not retry. A writing method returns a DataError if and only if the data caused
// the error.
type Store interface {
	// The executions and their progress.
	Records
	Recording
	AsideMessages
	DeadLetters
	Cancellations

	// The requests, including those that started no execution.
	Reports
	RequestCounts
	Senders
	TokenUseStore

	// Other content that operators see.
	Events
	Sessions
	AuditLog

	// The database as a whole, and its relation to the streams and the registry.
	HandledMessages
	RegistryCopy
	Backups
	Pruner
	Database

	// SetObserver sets the observer of all operations. It must be called before any other method,
	// or not at all.
	SetObserver(observer Observer)

	// Close waits for the operations in progress to finish. No method may be called afterwards.
	Close() error
}

// Observer is called with the duration and the error of each database operation. operation is the
// name of the Store method in lower case, with spaces, such as "get many". A renamed method keeps
// its former operation, because metrics use it as a label. If a method runs several queries outside
// a transaction, Observer is called for each of them.
type Observer func(ctx context.Context, operation string, took time.Duration, err error)

// ErrNotFound means that the database has no record with the given ID, or no message put aside with
// the given key.
var ErrNotFound = errors.New("no such record")

// DataError means that the database would refuse the same data every time. Drivers return it only
// if the data caused the error: for example, a value is out of range or violates a constraint, or a
// row is too large. After any other error, the same call may succeed later, so callers must not
// drop the data.
type DataError struct {
	Err error // the driver's error
}

// Error returns the message of the driver's error.
func (e *DataError) Error() string { return e.Err.Error() }

// Unwrap returns the driver's error.
func (e *DataError) Unwrap() error { return e.Err }

// IsDataError reports whether an error is a DataError or wraps one.
func IsDataError(err error) bool {
	_, ok := errors.AsType[*DataError](err)
	return ok
}

// UnavailableError means that the database cannot perform the operation now, for a reason that may
// go away by itself, such as a lost connection, a lock that another transaction holds, or a full
// disk.
type UnavailableError struct {
	Err error // the driver's error
}

// Error returns the message of the driver's error.
func (e *UnavailableError) Error() string { return e.Err.Error() }

// Unwrap returns the driver's error.
func (e *UnavailableError) Unwrap() error { return e.Err }

// IsUnavailable reports whether an error is an UnavailableError or wraps one.
func IsUnavailable(err error) bool {
	_, ok := errors.AsType[*UnavailableError](err)
	return ok
}
