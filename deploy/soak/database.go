package soak

import (
	"context"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/shared/retry"
)

// Limits for how long a table is locked. shortestLock is well below the timeouts of the executors,
// so that they wait for the lock; longestLock is far above, so that they give up.
const (
	shortestLock = 5 * time.Second
	longestLock  = 40 * time.Second
)

// lockModes are the lock modes of typical maintenance: CREATE INDEX takes a SHARE lock, which
// blocks writes. VACUUM FULL and many forms of ALTER TABLE take an ACCESS EXCLUSIVE lock, which
// also blocks reads.
var lockModes = []string{"SHARE", "ACCESS EXCLUSIVE"}

// lockExecutionsTable locks the executions table in a separate session for the given duration. mode
// is a PostgreSQL lock mode. If lockTimeout is true, the executors' statements fail after waiting
// one second for the lock.
func (f *faultInjector) lockExecutionsTable(
	ctx context.Context, mode string, lockTimeout bool, lasts time.Duration,
) error {
	if lockTimeout {
		// The setting applies only to new connections, so close the executors' existing ones.
		const reconnect = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE " +
			"application_name LIKE 'executor-%'"
		if _, err := f.database.Query(ctx, "ALTER ROLE postgres SET lock_timeout = '1s'",
			reconnect); err != nil {
			return err
		}
		defer func() {
			_, _ = f.database.Query(context.WithoutCancel(ctx),
				"ALTER ROLE postgres RESET lock_timeout", reconnect)
		}()
	}
	_, err := f.database.Query(ctx, "SET lock_timeout = 0", "BEGIN",
		"LOCK TABLE executions IN "+mode+" MODE",
		fmt.Sprintf("SELECT pg_sleep(%f)", lasts.Seconds()), "COMMIT")
	return err
}

func (f *faultInjector) killAndRestartDatabase(ctx context.Context, lasts time.Duration) error {
	if err := f.database.Kill(); err != nil {
		return err
	}
	retry.Sleep(ctx, lasts)
	return f.restartDatabase(ctx)
}

// fillDatabaseDisk fills the database's disk until only the given number of bytes is free, waits
// for the given duration, and frees the space again. PostgreSQL may exit while its disk is full, in
// which case fillDatabaseDisk restarts it.
func (f *faultInjector) fillDatabaseDisk(
	ctx context.Context, freeBytes uint64, lasts time.Duration,
) error {
	if err := f.databaseDisk.fill(freeBytes); err != nil {
		return err
	}
	retry.Sleep(ctx, lasts)
	if err := f.databaseDisk.restoreSize(); err != nil {
		return err
	}
	if f.database.Running() {
		return nil
	}
	return f.restartDatabase(ctx)
}

func (f *faultInjector) restartDatabase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	if err := f.database.Restart(ctx); err != nil {
		return fmt.Errorf("start the database again: %w", err)
	}
	return nil
}
