package store

import (
	"errors"
	"time"
)

// RegistryRecord is the newest revision of a record of the registry, as it is in NATS.
type RegistryRecord struct {
	Bucket   string
	Key      string
	Revision uint64
	Deleted  int64  // 1 if it was deleted, otherwise 0
	Data     []byte // empty if it was deleted
}

// RegistryPosition is the revision up to which the copy of a bucket has all records. The zero value
// means that it has none.
type RegistryPosition struct {
	Revision uint64
	At       time.Time // when NATS stored that revision
}

// ErrRegistryGap means that the copy of a bucket ends before the position that its caller assumed,
// because the database was replaced by an older copy.
var ErrRegistryGap = errors.New("the copy of the registry has a gap")
