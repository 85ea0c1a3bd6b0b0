package relational

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"strings"

	"github.com/pressly/goose/v3"
)

// Migrations reads the files NUMBER_NAME.sql of a driver. "-- +goose Up" begins the statements of a
// migration, "-- +goose Down" the statements that undo it. goose's own parser is not used: it
// splits statements, which both databases do themselves, and allocates 4 MiB for each file and
// direction, 70 MiB at the first start.
func Migrations(files fs.FS) (goose.ProviderOption, error) {
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
		_, both, hasUp := strings.Cut(string(text), "-- +goose Up\n")
		up, down, hasDown := strings.Cut(both, "-- +goose Down\n")
		if !hasUp || !hasDown {
			return nil, errors.New(name + " needs both directions")
		}
		migrations[i] = goose.NewGoMigration(version, statements(up), statements(down))
	}
	return goose.WithGoMigrations(migrations...), nil
}

func statements(text string) *goose.GoFunc {
	return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, text)
		return err
	}}
}
