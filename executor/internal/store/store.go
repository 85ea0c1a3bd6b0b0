// Package store defines what the executor keeps in its database. It is the contract of the drivers
// sqlite and postgres, and the test suite storetest verifies it.
//
// The contract is Store, which embeds one interface for each kind of content. Each interface is in
// a file of its own, with its types, and its doc comment says who uses it. A caller that needs few
// of them takes these instead of Store, so that its signature says what it reads and writes.
// Methods of different interfaces may touch the same rows: Recording inserts records, Records reads
// them, and Pruner deletes them.
//
// The other files hold what both drivers must do in the same way, as functions without a database:
// the effect of progress (advance.go, pending.go), the stored form of values and IDs (sanitize.go,
// key.go), what records share (origin.go), and how requests that matched no filter are merged
// (filtered.go).
//
// A record is small: it holds the stream sequence of its message instead of the headers and the
// input, which are read from the stream.
package store

import (
	"context"
	"errors"
	"time"
)

// Store is everything that the executor keeps in its database. Package executor opens it and passes
// to each part of the process what that part uses; operate uses most of it and gets the whole.
//
// A Store is safe for concurrent use, including by several processes. When a method returns without
// an error, its changes are committed and survive a crash of the process or the machine. Methods do
// not retry, and a method that returns an error has changed nothing, unless the error is an
// UnavailableError: then it may have made all of its changes, if only the response to the commit
// was lost. A writing method returns a DataError if and only if the data caused the error.
type Store interface {
	// Executions and what becomes of them.
	Records
	Recording
	AsideMessages
	DeadLetters
	Cancellations

	// Requests, including those that started no execution.
	Reports
	RequestCounts
	Senders
	TokenUseStore

	// What else operators see.
	Events
	Sessions
	AuditLog

	// The database beside the streams and the registry.
	HandledMessages
	RegistryCopy
	Backups
	Pruner
	Database

	// Observe sets the observer of all operations. It must be called before any other method, or
	// not at all.
	Observe(observer Observer)

	// Close waits for the operations in progress to finish. No method may be called afterwards.
	Close() error
}

// Observer is called with the duration and the error of each database operation. operation is the
// name of the Store method, in lower case and with spaces, or the method's former name, because
// metrics have it as a label. If a method runs several queries outside a transaction, each query
// leads to a call.
type Observer func(ctx context.Context, operation string, took time.Duration, err error)

// ErrNotFound means that the requested record or message put aside does not exist.
var ErrNotFound = errors.New("no such record")

// DataError means that the database would refuse the same data again. Drivers return it only for
// errors caused by the data: a value out of range, a violated constraint, or a row that is too
// large. After any other error, the same call may succeed later, so callers must not drop the data.
type DataError struct {
	Err error // the driver's error
}

// Error implements error.
func (e *DataError) Error() string { return e.Err.Error() }

// Unwrap returns the driver's error.
func (e *DataError) Unwrap() error { return e.Err }

// IsDataError reports whether an error is a DataError or wraps one.
func IsDataError(err error) bool {
	_, ok := errors.AsType[*DataError](err)
	return ok
}

// UnavailableError means that the database could not do now what was asked, for a reason that may
// pass: a lost connection, a lock that another transaction holds, a full disk.
type UnavailableError struct {
	Err error // the driver's error
}

// Error implements error.
func (e *UnavailableError) Error() string { return e.Err.Error() }

// Unwrap returns the driver's error.
func (e *UnavailableError) Unwrap() error { return e.Err }

// IsUnavailable reports whether an error is an UnavailableError or wraps one.
func IsUnavailable(err error) bool {
	_, ok := errors.AsType[*UnavailableError](err)
	return ok
}
