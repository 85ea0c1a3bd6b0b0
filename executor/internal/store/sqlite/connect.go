package sqlite

import (
	"context"
	"database/sql"
	"time"

	_ "modernc.org/sqlite" // the database/sql driver "sqlite"
	sqlitecode "modernc.org/sqlite/lib"
)

// connect makes db's first connection, which turns a new file to WAL mode. SQLite writes
// that while it holds a read lock, and two that do so would wait for each other: the
// second is told at once, whatever the busy timeout, that the database is locked. So it
// lets go and tries again, for as long as the busy timeout would have.
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
