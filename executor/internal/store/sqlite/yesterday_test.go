package sqlite

import (
	"database/sql"
	_ "embed"
	"path/filepath"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
)

//go:embed testdata/yesterday.sql
var yesterday string

// A database that was created by the first release still has its contents after Open has migrated
// it.
func TestYesterdaysDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hookstart.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := newProvider(db)
	if err == nil {
		_, err = provider.UpTo(t.Context(), relational.BaselineVersion)
	}
	if err == nil {
		_, err = db.ExecContext(t.Context(), yesterday)
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	storetest.TestFirstReleaseSchema(t, s)
}
