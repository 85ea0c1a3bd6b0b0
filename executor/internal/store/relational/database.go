package relational

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// SelectSchemaVersion is a query for the schema version. It ignores the migrations in the table
// named harmless, because programs of the previous version still work after them.
const SelectSchemaVersion = `SELECT coalesce(max(version_id), 0) FROM goose_db_version
	WHERE is_applied AND version_id NOT IN (SELECT version FROM harmless)`

// CheckSchemaVersion returns a *store.NewerSchemaError if the database's schema version is higher
// than supported, the schema version that this program uses.
func CheckSchemaVersion(version, supported int64) error {
	if version > supported {
		return &store.NewerSchemaError{DatabaseVersion: version, SupportedVersion: supported}
	}
	return nil
}

// DatabaseSchemaVersion implements store.Database.
func (s *Store) DatabaseSchemaVersion(ctx context.Context) (int64, error) {
	found, err := Collect(ctx, s.db, "schema", func(row Row) (version int64, err error) {
		err = row.Scan(&version)
		return version, err
	}, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return found[0], nil
}

// Stats implements store.Database. It sets FreeBytes to -1; a driver that knows the free disk space
// replaces that.
func (s *Store) Stats(ctx context.Context) (store.DatabaseStats, error) {
	size := store.DatabaseStats{Driver: s.dialect.Name, FreeBytes: -1}
	err := s.db.Read(ctx, "size", func(row Row) error {
		return row.Scan(&size.Bytes, &size.ReusableBytes, &size.Records,
			timeField{&size.OldestAcceptedAt})
	}, s.dialect.StatsQuery)
	return size, err
}
