package sqlite

import (
	"errors"

	"modernc.org/sqlite"
	sqlitecode "modernc.org/sqlite/lib"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// blame marks an error as a store.DataError when its result code says that the data is at
// fault. Everything else, a locked file, a full disk, a damaged page, can succeed when it is
// tried again.
func blame(err error) error {
	switch primaryCode(err) {
	case sqlitecode.SQLITE_CONSTRAINT, sqlitecode.SQLITE_MISMATCH, sqlitecode.SQLITE_TOOBIG, sqlitecode.SQLITE_RANGE:
		return &store.DataError{Err: err}
	}
	return err
}

// primaryCode is the result code of an error, without the bits that say of what kind; 0 when
// the error is not SQLite's.
func primaryCode(err error) int {
	failure, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return 0
	}
	return failure.Code() & 0xff
}
