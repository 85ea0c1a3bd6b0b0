package store

import (
	"context"
	"fmt"
	"time"
)

// Database provides information about the database as a whole. The executor checks with it whether
// the database is ready, and announces the schema version to the other processes. operate shows the
// size and the schema version.
type Database interface {
	// Ping returns nil if the database responds and accepts writes. A standby accepts none, so Ping
	// returns an error for it.
	Ping(ctx context.Context) error

	// Stats returns the size of the database. Even in a large database, it reads only a few rows.
	Stats(ctx context.Context) (DatabaseStats, error)

	// SupportedSchemaVersion returns the schema version that this program uses. If another version
	// of the program has migrated the tables to a schema that this program cannot use, Ping and all
	// methods that write return a *NewerSchemaError.
	SupportedSchemaVersion() int64

	// DatabaseSchemaVersion returns the schema version of the database.
	DatabaseSchemaVersion(ctx context.Context) (int64, error)
}

// DatabaseStats is the size of a database.
type DatabaseStats struct {
	Driver string // sqlite or postgres
	// Bytes is the size of all tables and indexes, including free space within them.
	Bytes int64
	// ReusableBytes is how many of Bytes are free for new rows. 0 can also mean that the number is
	// unknown.
	ReusableBytes int64
	// FreeBytes is the number of bytes by which the database can still grow on its disk, or -1 if
	// that is unknown because the database is on another machine.
	FreeBytes int64
	// Records is the number of records, which is an estimate if the database is large.
	Records int64
	// OldestAcceptedAt is the AcceptedAt of the oldest record. Zero means that there are no
	// records.
	OldestAcceptedAt time.Time
}

// NewerSchemaError means that another version of the program has migrated the database to a schema
// that this program cannot use. Retrying does not help; use the newer version.
type NewerSchemaError struct {
	DatabaseVersion  int64 // the schema version of the database
	SupportedVersion int64 // the schema version that this program uses
}

// Error names both versions and describes what to do.
func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("another version of the program has migrated the database: its schema has "+
		"version %d and this program knows %d; "+
		"use the newer program, or restore an older backup", e.DatabaseVersion, e.SupportedVersion)
}
