package store

import "time"

// Size is the size of a database.
type Size struct {
	Driver string // sqlite or postgres
	// Bytes is the size of all tables and indexes, including free space within them.
	Bytes int64
	// Reusable is the part of Bytes that is free for new rows. 0 also means unknown.
	Reusable int64
	// Free is the number of bytes by which the database can still grow on its disk. -1 means
	// unknown, because the database is on another machine.
	Free int64
	// Records is the number of records; an estimate if the database is large.
	Records int64
	// Oldest is the AcceptedAt of the oldest record. Zero means that there are no records.
	Oldest time.Time
}
