package sqlite

import (
	"context"
	"database/sql"
	"time"

	_ "modernc.org/sqlite" // the database/sql driver "sqlite"
	sqlitecode "modernc.org/sqlite/lib"
)

// connect opens db's first connection, which switches a new file to WAL mode. If two processes do
// this at the same time, each would wait for the other's read lock. To avoid this deadlock, SQLite
// ignores the busy timeout and reports to the second process immediately that the database is
// locked. connect therefore retries until the busy timeout has passed.
func connect(ctx context.Context, db *sql.DB) error {
	wait, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		conn, err := db.Conn(ctx)
		if err == nil {
			return conn.Close()
		}
		if !isBusy(err) {
			return err
		}
		select {
		case <-wait.Done():
			return err
		case <-again.C:
		}
	}
}

func isBusy(err error) bool { return primaryCode(err) == sqlitecode.SQLITE_BUSY }
