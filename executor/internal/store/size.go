package store

import "time"

// Size is the size of a database.
type Size struct {
	Driver string // sqlite or postgres
	// Bytes is the size of all tables and indexes, with the space in them that is free.
	Bytes int64
	// Reusable is the part of Bytes that is free for new rows. 0 also means that it is not known.
	Reusable int64
	// Free is the number of bytes by which the database can still grow on its disk. -1 means that
	// it is not known, because the database is on another machine.
	Free int64
	// Records is the number of records. In a large database it is an estimate.
	Records int64
	// Oldest is the AcceptedAt of the oldest record. The zero time means that there is none.
	Oldest time.Time
}
