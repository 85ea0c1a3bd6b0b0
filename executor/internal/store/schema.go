package store

import "fmt"

// NewerSchemaError means that another version of the program has migrated the database to a schema
// that this program cannot use. Retrying does not help; use the newer version.
type NewerSchemaError struct {
	Has   int64 // the schema version of the database
	Knows int64 // the schema version that this program uses
}

// Error implements error.
func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("another version of the program has migrated the database: its schema has "+
		"version %d and this program knows %d; "+
		"use the newer program, or restore an older backup", e.Has, e.Knows)
}
