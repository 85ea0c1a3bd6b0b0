package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// plain returns an ordinary record. Its ID is derived from name, and its content type is name.
func plain(name string) store.Record {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	return store.Record{
		ID:          execution.IDForRequeue(name),
		ContentType: name,
		WorkflowID:  "wf",
		Status:      execution.Queued,
		AcceptedAt:  at,
		RecordedAt:  at,
	}
}

// The possible causes of a failed call. The type of the error indicates the cause, as noted for
// each constant.
const (
	theData    = "the data"    // a store.DataError
	theMoment  = "the moment"  // a store.UnavailableError
	theProgram = "the program" // any other error
)

// wantBlame records r with s.Apply, which must fail. The type of the error must indicate the cause
// want, which is one of the constants above. The failure messages of the test begin with the text
// what, which describes the case.
func wantBlame(t *testing.T, s *Store, what string, r store.Record, want string) {
	t.Helper()
	_, err := s.Apply(t.Context(), store.Batch{NewRecords: []store.Record{r}})
	got := theProgram
	switch {
	case err == nil:
		t.Errorf("%s: it was applied", what)
		return
	case store.IsDataError(err):
		got = theData
	case store.IsUnavailable(err):
		got = theMoment
	}
	if got != want {
		t.Errorf("%s: %s is at fault, want %s: %v", what, got, want, err)
	}
}

func TestWhoIsAtFault(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "executions.db")
	s := mustOpen(t, path)
	other := mustOpen(t, path)
	exec := func(s *Store, query string) {
		t.Helper()
		if _, err := s.writer.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}

	exec(s,
		`CREATE TRIGGER refuse BEFORE INSERT ON executions WHEN NEW.content_type = 'refused' BEGIN SELECT RAISE(ABORT, 'no'); END`)
	wantBlame(t, s, "a constraint", plain("refused"), theData)
	tooBig := plain("too big")
	exec(s,
		`CREATE TRIGGER grow AFTER INSERT ON executions WHEN NEW.content_type = 'too big' BEGIN SELECT zeroblob(2000000000); END`)
	wantBlame(t, s, "a value that is too big", tooBig, theData)

	exec(s, `PRAGMA busy_timeout = 1`)
	exec(other, `BEGIN IMMEDIATE`)
	wantBlame(t, s, "a lock of another process", plain("busy"), theMoment)
	exec(other, `ROLLBACK`)

	exec(s, `PRAGMA max_page_count = 1`) // the file keeps its size and cannot grow
	full := plain("full")
	full.Error = strings.Repeat("x", 100_000)
	wantBlame(t, s, "a full disk", full, theMoment)
	// The database file is too small for the record above, but a small message still fits.
	if _, err := s.Apply(t.Context(), store.Batch{
		PutAside: []store.AsideMessage{{StreamSequence: 1, At: full.AcceptedAt}},
	}); err != nil {
		t.Error(err)
	}
	for _, open := range []*Store{other, s} {
		if err := open.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADamagedPageIsNotTheDatasFault(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "executions.db")
	s := mustOpen(t, path)
	var root, size int64
	if err := s.reader.QueryRowContext(t.Context(),
		`SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = 'executions_workflow'`).Scan(&root, &size); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // merges the WAL into the file
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte(strings.Repeat("\xde\xad\xbe\xef", int(size/4))),
		(root-1)*size); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, path)
	defer func() { _ = s.Close() }()
	wantBlame(t, s, "a damaged page", plain("a"), theProgram)
}

func mustOpen(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
