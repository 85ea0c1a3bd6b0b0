package postgres

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// blame marks an error as a store.DataError when its SQLSTATE says that the data is at
// fault. Everything else, lock timeouts, full disks, damaged pages, lost connections, can
// succeed when it is tried again.
func blame(err error) error {
	failure, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch {
	case strings.HasPrefix(failure.Code, "22"), // data exception: out of range, not representable
		strings.HasPrefix(failure.Code, "23"), // integrity constraint violation
		failure.Code == "54000",               // program limit exceeded: a value too large for an index or a row
		failure.Code == "42804":               // datatype mismatch
		return &store.DataError{Err: err}
	}
	return err
}
