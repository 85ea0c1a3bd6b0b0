package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate migrates the tables to the newest schema version that this program knows, and returns
// that version. It rejects a database that a newer program has migrated, or that was created before
// the first release.
//
// goose has no lock for SQLite, but each migration is one transaction. If another process runs the
// same migration first, this process's attempt fails and changes nothing. The schema version of the
// database is then higher than before the attempt. In this case, migrate ignores the error and
// continues with the remaining migrations.
func migrate(ctx context.Context, db *sql.DB) (supported int64, err error) {
	provider, err := newProvider(db)
	if err != nil {
		return 0, err
	}
	for {
		before, known, err := provider.GetVersions(ctx)
		if err != nil {
			return 0, fmt.Errorf("read the schema version: %w", err)
		}
		if err := relational.CheckBaseline(ctx, db); err != nil {
			return 0, err
		}
		if before >= known {
			return known, checkSchemaVersion(ctx, db, known)
		}
		_, failure := provider.Up(ctx)
		after, _, err := provider.GetVersions(ctx)
		if failure != nil && (err != nil || after <= before) {
			return 0, fmt.Errorf("migrate: %w", failure)
		}
	}
}

// checkSchemaVersion returns an error if the tables have a newer schema version than this program
// supports.
func checkSchemaVersion(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, supported int64,
) error {
	var version int64
	if err := db.QueryRowContext(ctx, relational.SelectSchemaVersion).Scan(&version); err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	return relational.CheckSchemaVersion(version, supported)
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	all, err := relational.WithMigrations(files)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, nil, all,
		goose.WithLogger(goose.NopLogger()))
}
