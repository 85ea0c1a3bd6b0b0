package sqlite

import (
	"errors"

	"modernc.org/sqlite"
	sqlitecode "modernc.org/sqlite/lib"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// asDataError wraps an error in a store.DataError if, according to its result code, the data caused
// it. It returns any other error, such as a locked file, a full disk or a damaged page, unchanged,
// because the same call may succeed later.
func asDataError(err error) error {
	switch primaryCode(err) {
	case sqlitecode.SQLITE_CONSTRAINT, sqlitecode.SQLITE_MISMATCH, sqlitecode.SQLITE_TOOBIG,
		sqlitecode.SQLITE_RANGE:
		return &store.DataError{Err: err}
	}
	return err
}

// isUnavailable reports whether the cause of err may disappear by itself, so that the same call may
// succeed later: see store.UnavailableError.
func isUnavailable(err error) bool {
	switch primaryCode(err) {
	case sqlitecode.SQLITE_BUSY, sqlitecode.SQLITE_LOCKED, sqlitecode.SQLITE_PROTOCOL,
		sqlitecode.SQLITE_FULL, sqlitecode.SQLITE_IOERR, sqlitecode.SQLITE_CANTOPEN,
		sqlitecode.SQLITE_NOMEM:
		return true
	}
	return false
}

// primaryCode returns the result code of an SQLite error, without the extended bits. It returns 0
// for any other error.
func primaryCode(err error) int {
	failure, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return 0
	}
	return failure.Code() & 0xff
}
