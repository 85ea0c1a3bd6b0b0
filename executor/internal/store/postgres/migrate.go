package postgres

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate migrates the tables, and returns the schema version that this program supports. It holds
// a lock, so any number of executors can start at the same time. It rejects a database that a newer
// program has migrated, or that was created before the first release. It uses a separate
// connection, because waiting for another executor's migration, or building an index, may take a
// long time. The second context (starting) limits only connecting and reading the schema version.
// It does not cancel a migration, which would have to start again from the beginning at the next
// start of the program.
func migrate(ctx, starting context.Context, config *pgx.ConnConfig) (supported int64, err error) {
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	provider, err := newProvider(db)
	if err != nil {
		return 0, err
	}
	if _, _, err := provider.GetVersions(starting); err != nil { // creates goose's version table
		return 0, fmt.Errorf("read the schema version: %w", err)
	}
	if err := relational.CheckBaseline(starting, db); err != nil {
		return 0, err
	}
	// Up acquires the lock first. If the schema is newer than this program, Up does nothing.
	if _, err := provider.Up(ctx); err != nil {
		return 0, fmt.Errorf("migrate: %w", err)
	}
	var version int64
	if err := db.QueryRowContext(ctx, relational.SelectSchemaVersion).Scan(&version); err != nil {
		return 0, fmt.Errorf("read the schema version: %w", err)
	}
	sources := provider.ListSources()
	supported = sources[len(sources)-1].Version
	return supported, relational.CheckSchemaVersion(version, supported)
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
	return goose.NewProvider(goose.DialectPostgres, db, nil, all,
		goose.WithLogger(goose.NopLogger()), goose.WithSessionLocker(blockingSessionLock{}))
}

// blockingSessionLock is a session lock that blocks until it is acquired. goose's own lock polls
// every few seconds: if ten executors started together, the last one would be ready a minute later.
// goose polls because waiting sessions would block migrations that run outside a transaction
// (CREATE INDEX CONCURRENTLY), but all of this program's migrations run in transactions. The lock
// includes relational.MigrationLock, which every writing transaction shares, so that writes wait
// until the migrations are done.
type blockingSessionLock struct{}

var _ lock.SessionLocker = blockingSessionLock{}

// SessionLock implements lock.SessionLocker.
func (blockingSessionLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1), pg_advisory_lock($2)`,
		lock.DefaultLockID, int64(relational.MigrationLock))
	return err
}

// SessionUnlock implements lock.SessionLocker.
func (blockingSessionLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock($2), pg_advisory_unlock($1)`,
		lock.DefaultLockID, int64(relational.MigrationLock))
	return err
}
