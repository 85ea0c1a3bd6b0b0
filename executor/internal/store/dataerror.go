package store

import "errors"

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
