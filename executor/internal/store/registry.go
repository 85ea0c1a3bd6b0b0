package store

import (
	"errors"
	"time"
)

// RegistryRecord is the newest revision of a registry record in NATS.
type RegistryRecord struct {
	Bucket   string
	Key      string
	Revision uint64
	Deleted  int64  // 1 if it was deleted, otherwise 0
	Data     []byte // empty if it was deleted
}

// RegistryPosition is the revision up to which the database's copy of a registry bucket is
// complete. The zero value means that nothing has been copied.
type RegistryPosition struct {
	Revision uint64
	At       time.Time // when NATS stored that revision
}

// ErrRegistryGap means that the database's copy of a registry bucket ends before the position that
// the caller assumed. The cause is that an older backup has replaced the database.
var ErrRegistryGap = errors.New("the copy of the registry has a gap")
