package sqlite

import (
	"context"
	"database/sql"
	"time"

	_ "modernc.org/sqlite" // the database/sql driver "sqlite"
	sqlitecode "modernc.org/sqlite/lib"
)

// connect opens db's first connection, which switches a new file to WAL mode. SQLite does that
// while it holds a read lock, so two processes that do it at once would wait for each other. It
// therefore tells the second one immediately, whatever the busy timeout, that the database is
// locked. connect retries for as long as the busy timeout.
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
