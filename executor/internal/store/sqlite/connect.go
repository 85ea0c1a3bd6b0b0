package sqlite

import (
	"context"
	"database/sql"
	"time"

	_ "modernc.org/sqlite" // the database/sql driver "sqlite"
	sqlitecode "modernc.org/sqlite/lib"
)

// connect opens db's first connection, which switches a new file to WAL mode. SQLite holds a read
// lock during the switch, so two processes that switch at the same time would wait for each other.
// To avoid this deadlock, SQLite reports to the second process immediately that the database is
// locked, despite the busy timeout. connect therefore retries until the busy timeout has passed.
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
