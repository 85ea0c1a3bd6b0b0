package relational

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// NewestSchema is a query for the version of the tables. It leaves out migrations that are harmless
// to a program of the version before: such a migration inserts its own number into the table
// harmless.
const NewestSchema = `SELECT coalesce(max(version_id), 0) FROM goose_db_version
	WHERE is_applied AND version_id NOT IN (SELECT version FROM harmless)`

// CheckSchema returns a *store.NewerSchemaError if the tables are newer than those that this
// program knows.
func CheckSchema(version, knows int64) error {
	if version > knows {
		return &store.NewerSchemaError{Has: version, Knows: knows}
	}
	return nil
}

// HasSchema implements store.Store.
func (s *Store) HasSchema(ctx context.Context) (int64, error) {
	found, err := Collect(ctx, s.db, "schema", func(row Row) (version int64, err error) {
		err = row.Scan(&version)
		return version, err
	}, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return found[0], nil
}
