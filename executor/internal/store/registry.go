package store

import (
	"context"
	"errors"
	"time"
)

// RegistryCopy keeps the installation's identity and a copy of the registry, from which a lost
// registry is restored. Package databasecopy uses it.
type RegistryCopy interface {
	// Installation returns the installation's identity, or "" if the database has none.
	Installation(ctx context.Context) (string, error)

	// AdoptInstallation stores id as the installation's identity if the database has none. It
	// returns the identity that the database has afterwards: id, or the one that it already had.
	AdoptInstallation(ctx context.Context, id string) (inForce string, err error)

	// RegistryPosition returns the position up to which the database's copy of a registry bucket is
	// complete.
	RegistryPosition(ctx context.Context, bucket string) (RegistryPosition, error)

	// SaveRegistryCopy adds revisions of a registry bucket, in order, and their audit entries to
	// the database, and advances the copy's position to upTo, in one transaction. If the copy has
	// not yet reached the revision given as after, SaveRegistryCopy stores nothing and fails with
	// ErrRegistryGap. It never replaces a later revision of a record with an earlier one, and never
	// lowers the position.
	SaveRegistryCopy(
		ctx context.Context, bucket string, records []RegistryRecord, entries []AuditEntry,
		after uint64, upTo RegistryPosition,
	) error

	// RegistryRecords returns at most limit records from the database's copy of a registry bucket,
	// sorted by key, beginning with the first key after afterKey. Deleted records are included.
	RegistryRecords(ctx context.Context, bucket, afterKey string, limit int) ([]RegistryRecord,
		error)
}

// RegistryRecord is a revision of a registry record. The database's copy keeps only the newest one
// of each record.
type RegistryRecord struct {
	Bucket   string
	Key      string
	Revision uint64
	Deleted  int64  // 1 if the revision is a deletion, otherwise 0
	Data     []byte // empty if the revision is a deletion
}

// RegistryPosition is the revision up to which the database's copy of a registry bucket is
// complete. The zero value means that nothing has been copied.
type RegistryPosition struct {
	Revision uint64
	At       time.Time // when NATS stored that revision
}

// ErrRegistryGap means that the database's copy of a registry bucket ends before the position that
// the caller assumed. This happens if the database has been replaced by an older backup.
var ErrRegistryGap = errors.New("the copy of the registry has a gap")
