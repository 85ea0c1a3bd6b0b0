package store

import "fmt"

// NewerSchemaError means that another version has migrated the database, and this program cannot
// work with its tables any more. The same call succeeds only in that version.
type NewerSchemaError struct {
	Has   int64 // the version of the tables
	Knows int64 // the version that this program works with
}

// Error implements error.
func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("another version of the program has migrated the database: its schema has "+
		"version %d and this program knows %d; "+
		"use the newer program, or restore an older backup", e.Has, e.Knows)
}
