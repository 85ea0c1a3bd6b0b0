package relational

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

// BaselineVersion is the schema version of the first release, which each driver's first migration
// creates. Builds from before the first release used lower versions. They refuse a database of this
// version as too new, and CheckBaseline refuses theirs.
const BaselineVersion = 100

// WithMigrations reads a driver's migrations from the files NUMBER_NAME.sql, each of which has the
// statements of one migration and no rollback. It passes the whole text to the database, because
// both databases accept several statements at once. goose's own parser would split the text into
// statements, and would allocate 4 MiB for each file and direction.
func WithMigrations(files fs.FS) (goose.ProviderOption, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	migrations := make([]*goose.Migration, len(names))
	for i, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		migrations[i] = goose.NewGoMigration(version, migrationFunc(string(text)), nil)
	}
	return goose.WithGoMigrations(migrations...), nil
}

func migrationFunc(text string) *goose.GoFunc {
	return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, text)
		return err
	}}
}

// ErrBeforeBaseline means that the database's tables were created by a program from before the
// first release, or by another program that uses goose.
var ErrBeforeBaseline = errors.New("the database has tables from before the first release, which " +
	"this program does not read; give it a new database and a new NATS store, and to keep what " +
	"is there, back up with the program that made it (hookstart admin backup) and restore the " +
	"backup into them")

// CheckBaseline returns ErrBeforeBaseline if the database's first migration was not the baseline.
// It changes nothing. The version table of goose must exist.
func CheckBaseline(ctx context.Context, db *sql.DB) error {
	var first, last int64
	if err := db.QueryRowContext(ctx,
		`SELECT coalesce(min(version_id), 0), coalesce(max(version_id), 0)
		FROM goose_db_version WHERE is_applied
		AND version_id > 0`).Scan(&first, &last); err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	if first != 0 && first != BaselineVersion {
		return fmt.Errorf("%w (its schema has version %d)", ErrBeforeBaseline, last)
	}
	return nil
}
