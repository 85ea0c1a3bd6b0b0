package postgres

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// asDataError wraps err in a store.DataError if the data caused it, that is, if the SQLSTATE says
// so, or if pgx could not encode an argument. It returns any other error unchanged, such as a lock
// timeout, a full disk, a damaged page or a lost connection, because the same call may succeed
// later.
func asDataError(err error) error {
	failure, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if cause := encodeErrorCause(err); cause != nil {
			return &store.DataError{Err: cause}
		}
		return err
	}
	switch {
	case strings.HasPrefix(failure.Code, "22"), // data exception: out of range, not representable
		strings.HasPrefix(failure.Code, "23"), // integrity constraint violation
		// Program limit exceeded: a value too large for an index or a row.
		failure.Code == "54000",
		failure.Code == "42804": // datatype mismatch
		return &store.DataError{Err: err}
	}
	return err
}

// encodeErrorPrefix is the beginning of the message of the error that pgx returns if it cannot
// encode an argument of a statement. The error has no type by which it could be recognized.
const encodeErrorPrefix = "failed to encode args["

// encodeErrorCause returns the cause of an error that pgx returned because it could not encode an
// argument. It returns only the cause, because the message of the whole error contains the
// argument. For any other error, it returns nil.
func encodeErrorCause(err error) error {
	for ; err != nil; err = errors.Unwrap(err) {
		if !strings.HasPrefix(err.Error(), encodeErrorPrefix) {
			continue
		}
		for cause := err; cause != nil; cause = errors.Unwrap(cause) {
			err = cause
		}
		return err
	}
	return nil
}

// transientSQLStates lists the prefixes of the SQLSTATEs of errors that may go away by themselves.
var transientSQLStates = []string{
	"08",    // a connection error
	"25006", // a standby, or a primary that takes no writes for now
	"25P03", // the transaction was idle for too long
	"40",    // a deadlock or a serialization failure
	"53",    // not enough memory, disk space or connections
	"55",    // a lock that is not available, or an object in use
	"57",    // the server is stopping or starting, or the statement timed out
	"58030", // an I/O error
}

// isUnavailable reports whether err may go away by itself: see store.UnavailableError.
func isUnavailable(err error) bool {
	if failure, ok := errors.AsType[*pgconn.PgError](err); ok {
		return slices.ContainsFunc(transientSQLStates, func(prefix string) bool {
			return strings.HasPrefix(failure.Code, prefix)
		})
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}
