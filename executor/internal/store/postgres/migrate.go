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

// migrate brings the tables up to date under a lock, however many executors start at
// once, and refuses a database that newer code wrote. Its connection is its own: to wait for
// another executor's migration, or to build an index, takes as long as it takes.
func migrate(ctx context.Context, config *pgx.ConnConfig) (knows int64, err error) {
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	provider, err := newProvider(db)
	if err != nil {
		return 0, err
	}
	// Up first: it is what takes the lock, and to a newer database it does nothing.
	if _, err := provider.Up(ctx); err != nil {
		return 0, fmt.Errorf("migrate: %w", err)
	}
	var has int64
	if err := db.QueryRowContext(ctx, relational.NewestSchema).Scan(&has); err != nil {
		return 0, fmt.Errorf("read the schema version: %w", err)
	}
	sources := provider.ListSources()
	knows = sources[len(sources)-1].Version
	return knows, relational.CheckSchema(has, knows)
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	all, err := relational.Migrations(files)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, nil, all,
		goose.WithLogger(goose.NopLogger()), goose.WithSessionLocker(waitingLock{}))
}

// waitingLock is an advisory lock that waits its turn. goose's own asks again every few
// seconds, so that of ten executors that start at once the last is up a minute later; it
// does so for migrations outside of a transaction (CREATE INDEX CONCURRENTLY), which
// waiters would block. Ours are transactions. Transactions that write wait meanwhile.
type waitingLock struct{}

var _ lock.SessionLocker = waitingLock{}

// SessionLock implements lock.SessionLocker.
func (waitingLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1), pg_advisory_lock($2)`, lock.DefaultLockID, int64(relational.Migration))
	return err
}

// SessionUnlock implements lock.SessionLocker.
func (waitingLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock($2), pg_advisory_unlock($1)`, lock.DefaultLockID, int64(relational.Migration))
	return err
}
