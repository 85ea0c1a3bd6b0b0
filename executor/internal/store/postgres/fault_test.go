package postgres

import (
	"fmt"
	"math"
	"math/rand/v2"
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

// wantBlame applies one record, which must fail. data is whether the error must be a DataError.
func wantBlame(t *testing.T, s *Store, what string, r store.Record, data bool) {
	t.Helper()
	_, err := s.Apply(t.Context(), store.Batch{New: []store.Record{r}})
	switch {
	case err == nil:
		t.Errorf("%s: it was applied", what)
	case store.IsDataError(err) != data:
		t.Errorf("%s: the data is at fault: %v, want %v: %v", what, !data, data, err)
	}
}

func TestWhoIsAtFault(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), pgtest.Start(t)+"&lock_timeout=50ms")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()

	early := plain("early")
	early.AcceptedAt = time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC)
	wantBlame(t, s, "a time out of range", early, true)
	long := plain("long")
	for range 10_000 {
		long.DeliveryID += string(rune('a' + rand.IntN(26)))
	}
	wantBlame(t, s, "a value too long for its index", long, true)

	// Acquire the lock that CREATE INDEX acquires.
	locking, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locking.Exec(t.Context(), `LOCK TABLE executions IN SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	wantBlame(t, s, "a lock timeout", plain("locked"), false)
	if err := locking.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Some errors are hard to provoke. A trigger raises the error whose code is the delivery ID of
	// the inserted record.
	if _, err := s.pool.Exec(t.Context(), `
		CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'so it is' USING ERRCODE = NEW.other_delivery; END $$;
		CREATE TRIGGER fail BEFORE INSERT ON executions FOR EACH ROW EXECUTE FUNCTION fail()`); err != nil {
		t.Fatal(err)
	}
	for code, data := range map[string]bool{
		"22001": true,
		"22021": true,
		"23502": true,
		"23514": true,
		"54000": true,
		"42804": true,
		"25006": false, // a read-only standby
		"25P03": false, // idle in transaction for too long
		"40001": false,
		"40P01": false,
		"42501": false,
		"42703": false,
		"53100": false, // disk full
		"53200": false,
		"53300": false,
		"54001": false,
		"55P03": false,
		"57014": false,
		"57P01": false,
		"58030": false,
		"P0001": false,
		"XX001": false, // a damaged page
		"XX002": false,
	} {
		r := plain("coded")
		r.DeliveryID = code
		wantBlame(t, s, code, r, data)
	}
}

// pgx refuses a value that does not fit its type before it sends anything. That is the data's
// fault, too, and the error does not contain the other values of the array.
func TestAValueThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, pgtest.Start(t))
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
