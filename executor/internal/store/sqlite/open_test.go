package sqlite

import (
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
	"github.com/hookstart/hookstart/shared/execution"
)

func someRecord() store.Record {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	return store.Record{
		ID:         execution.IDForRequeue("a"),
		Status:     execution.Queued,
		Source:     execution.SourceWebhook,
		AcceptedAt: at,
		RecordedAt: at,
	}
}

func TestOpenCreatesFolderAndFileForItsUserOnly(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "new", "folders")
	path := filepath.Join(folder, "hook start?%41#&ü.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	batch := store.Batch{NewRecords: []store.Record{someRecord()}}
	if _, err := s.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{
		folder:        0o700,
		path:          0o600,
		path + "-wal": 0o600,
	} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s: mode %o, want %o", name, info.Mode().Perm(), want)
		}
	}
}

func TestOpenExplainsPathsThatCannotWork(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file,
		[]byte("not a database, but long enough to be looked at as if it were one, as it has a "+
			"header of 100 bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(folder, "locked")
	if err := os.Mkdir(locked, 0o500); err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{ // expected advice by path
		"":                                  "name a file",
		filepath.Join(file, "hookstart.db"): "choose another database path",
		"/proc/hookstart/hookstart.db":      "choose another database path",
		folder:                              "choose another database path",
		file:                                "not a database",
	}
	if os.Geteuid() != 0 { // root ignores file permissions
		cases[filepath.Join(locked, "hookstart.db")] = "make the file and its folder writable"
		cases[filepath.Join(locked, "sub", "hookstart.db")] = "create"
	}
	for path, want := range cases {
		s, err := Open(t.Context(), path)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s was opened", path)
			continue
		}
		text := err.Error()
		if !strings.Contains(text, want) || strings.Contains(text, "\n") ||
			!strings.Contains(text, path) {
			t.Errorf("%s: %s", path, text)
		}
	}
}

func TestOpenRefusesDatabaseOfNewerCode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hookstart.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.writer.ExecContext(t.Context(),
		`INSERT INTO goose_db_version (version_id, is_applied) VALUES (90000, 1)`); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice, because the first refusal must change nothing
		s, err := Open(t.Context(), path)
		if err == nil {
			_ = s.Close()
			t.Fatal("it was opened")
		}
		if !strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), "schema has version 90000") {
			t.Error(err)
		}
	}
}

// A database whose tables were not created by the baseline migration is rejected and stays
// unchanged.
func TestOpenRefusesDatabaseFromBeforeTheFirstRelease(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hookstart.db")
	s := mustOpen(t, path)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", dataSourceName(path, "_txlock", "immediate"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, version := range []int64{71, 20240101000000} {
		// The lower version is from an unreleased earlier program, and the higher one from an
		// unrelated program that also uses goose.
		if _, err := db.ExecContext(t.Context(),
			`UPDATE goose_db_version SET version_id = ? WHERE version_id > 0`,
			version); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), path)
		if err == nil {
			_ = s.Close()
			t.Fatalf("a database of version %d was opened", version)
		}
		storetest.CheckEarlierSchemaRefused(t, err, version)
		if !strings.Contains(err.Error(), path) {
			t.Error(err)
		}
		var applied, newest int64
		if err := db.QueryRowContext(t.Context(),
			`SELECT count(*), max(version_id) FROM goose_db_version`).Scan(&applied,
			&newest); err != nil || applied != 2 || newest != version {
			t.Errorf("%d rows, version %d, %v", applied, newest, err)
		}
	}
}

// When Apply returns, its data is already in the files. The test copies the files of the open
// database, as a machine would find them after a crash, and opens the copy.
func TestApplySurvivesCrash(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	s, err := Open(t.Context(), filepath.Join(folder, "hookstart.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	batch := store.Batch{NewRecords: []store.Record{someRecord()}}
	if _, err := s.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	found := t.TempDir()
	for _, name := range []string{"hookstart.db", "hookstart.db-wal"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(found, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	after, err := Open(t.Context(), filepath.Join(found, "hookstart.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = after.Close() }()
	if r, err := after.Get(t.Context(), someRecord().ID); err != nil || r.ID != someRecord().ID {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestConnectionsSyncEveryCommitAndReadersCannotWrite(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "hookstart.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for pragma, want := range map[string]string{
		"journal_mode": "wal",
		"synchronous":  "2",
		"busy_timeout": "10000",
	} {
		var got string
		if err := s.writer.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil ||
			got != want {
			t.Errorf("%s is %s (%v), want %s", pragma, got, err, want)
		}
	}
	if _, err := s.reader.ExecContext(t.Context(), `DELETE FROM executions`); err == nil {
		t.Error("a reader could write")
	}
}

func TestNewerSchema(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hookstart.db")
	storetest.TestNewerSchema(t, func(t *testing.T) store.Store {
		t.Helper()
		s, err := Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}, func(t *testing.T, statement string) {
		t.Helper()
		db, err := sql.Open("sqlite", dataSourceName(path, "_txlock", "immediate"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	})
}
