package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"
)

// While Open runs, another process holds a lock on a new file, as it does while it switches the
// file to WAL mode. Open must wait until the lock is released.
func TestOpenWaitsForWhoHasANewFileLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hookstart.db")
	other, err := sql.Open("sqlite", path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	tx, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		s, err := Open(t.Context(), path)
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}
