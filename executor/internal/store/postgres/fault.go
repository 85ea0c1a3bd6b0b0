package postgres

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// asDataError wraps an error in a store.DataError if its SQLSTATE means that the data caused it.
// After any other error, such as a lock timeout, a full disk, a damaged page or a lost connection,
// the same call may succeed later.
func asDataError(err error) error {
	failure, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
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
