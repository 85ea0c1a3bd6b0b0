package store

import (
	"errors"
	"time"
)

// RegistryRecord is the newest revision of a record of the registry, as NATS has it.
type RegistryRecord struct {
	Bucket   string
	Key      string
	Revision uint64
	Deleted  int64  // 1: it was deleted; 0: it was not
	Data     []byte // empty if it was deleted
}

// RegistryPosition is up to which revision the copy of a bucket has all records. The zero value is none.
type RegistryPosition struct {
	Revision uint64
	At       time.Time // when NATS stored that revision
}

// ErrRegistryGap means that the copy of a bucket does not reach as far as its caller assumed: the database was put back.
var ErrRegistryGap = errors.New("the copy of the registry has a gap")
