package postgres

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/shared/execution"
)

func plain(id string) store.Record {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	return store.Record{ID: id, Status: execution.Queued, AcceptedAt: at, RecordedAt: at}
}

// The possible causes of a failed call, with the type of error that indicates each of them.
const (
	theData    = "the data"    // a store.DataError
	theMoment  = "the moment"  // a store.UnavailableError
	theProgram = "the program" // any other error
)

// wantBlame tries to record r, and checks that the error blames want: theData, theMoment or
// theProgram. what names the test case in messages.
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
	s, err := Open(t.Context(), pgtest.NewDatabase(t)+"&lock_timeout=50ms")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()

	early := plain("early")
	early.AcceptedAt = time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC)
	wantBlame(t, s, "a time out of range", early, theData)
	long := plain("long")
	for range 10_000 {
		long.DeliveryID += string(rune('a' + rand.IntN(26)))
	}
	wantBlame(t, s, "a value too long for its index", long, theData)

	// Hold the lock that CREATE INDEX would hold, so that inserting a record fails with a lock
	// timeout.
	locking, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locking.Exec(t.Context(), `LOCK TABLE executions IN SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	wantBlame(t, s, "a lock timeout", plain("locked"), theMoment)
	if err := locking.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Many errors are hard to provoke, so a trigger raises an error whose SQLSTATE is the delivery
	// ID of the inserted record.
	if _, err := s.pool.Exec(t.Context(), `
		CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'so it is' USING ERRCODE = NEW.other_delivery; END $$;
		CREATE TRIGGER fail BEFORE INSERT ON executions FOR EACH ROW EXECUTE FUNCTION fail()`); err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string]string{
		"22001": theData,
		"22021": theData,
		"23502": theData,
		"23514": theData,
		"54000": theData,
		"42804": theData,
		"25006": theMoment, // a read-only standby
		"25P03": theMoment, // idle in transaction for too long
		"40001": theMoment,
		"40P01": theMoment,
		"42501": theProgram,
		"42703": theProgram,
		"53100": theMoment, // disk full
		"53200": theMoment,
		"53300": theMoment,
		"54001": theProgram,
		"55P03": theMoment,
		"57014": theMoment,
		"57P01": theMoment,
		"58030": theMoment,
		"P0001": theProgram,
		"XX001": theProgram, // a damaged page
		"XX002": theProgram,
	} {
		r := plain("coded")
		r.DeliveryID = code
		wantBlame(t, s, code, r, want)
	}
}

// A lost connection results in an UnavailableError, although the error has no SQLSTATE.
func TestALostConnectionMayPass(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		io.ErrUnexpectedEOF, io.EOF, net.ErrClosed, &net.OpError{Op: "read", Err: io.EOF},
		context.DeadlineExceeded,
	} {
		if !isUnavailable(fmt.Errorf("read: %w", err)) {
			t.Errorf("%v: the moment is not at fault", err)
		}
	}
	if err := pgx.ErrTxCommitRollback; isUnavailable(err) {
		t.Errorf("%v: the moment is at fault", err)
	}
	s := mustOpen(t, pgtest.NewDatabase(t))
	err := s.Write(t.Context(), "test", func(tx relational.Tx) error {
		_, _ = tx.Exec(t.Context(), `SELECT pg_terminate_backend(pg_backend_pid())`)
		_, err := tx.Exec(t.Context(), `SELECT 1`)
		return err
	})
	if !store.IsUnavailable(err) {
		t.Errorf("a session that was terminated: %v", err)
	}
}

// If an array contains a value that does not fit the parameter's type, pgx refuses to encode the
// array. That is a DataError, and its message must not contain the other values of the array.
func TestAValueThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, pgtest.NewDatabase(t))
	for statement, args := range map[string][]any{
		`SELECT ?::integer[]`:             {[]int64{7, math.MaxInt32 + 1}},
		`SELECT ?::text[], ?::smallint[]`: {[]string{"secret"}, []int64{7, math.MaxInt32 + 1}},
	} {
		err := s.Write(t.Context(), "test", func(tx relational.Tx) error {
			_, err := tx.Exec(t.Context(), statement, args...)
			return fmt.Errorf("add rows: %w", err)
		})
		if !store.IsDataError(err) || !strings.HasSuffix(err.Error(), "for int4") &&
			!strings.HasSuffix(err.Error(), "for int2") || strings.Contains(err.Error(), "{") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

func mustOpen(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}
