package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
)

// A backup contains all rows of every table. The only exceptions are the tables that backups leave
// out: see store.Backups.
func TestBackupOfEveryTable(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var stores [2]store.Store
	var paths [2]string
	for i, name := range []string{"from.db", "to.db"} {
		paths[i] = filepath.Join(folder, name)
		s, err := sqlite.Open(t.Context(), paths[i])
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		stores[i] = s
	}
	storetest.TestBackupOfEveryTable(t, stores[0], stores[1],
		func(t *testing.T) (from, to map[string]int) {
			t.Helper()
			return countRows(t, paths[0]), countRows(t, paths[1])
		})
}

// countRows returns the number of rows in each table of a database, by table name.
func countRows(t *testing.T, path string) map[string]int {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var tables []string
	rows, err := db.QueryContext(t.Context(),
		`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, name := range tables {
		var n int
		if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		count[name] = n
	}
	return count
}
