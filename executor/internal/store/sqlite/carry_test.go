package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// wide makes a database as it was before records were narrow, with n records, and leaves it closed.
func wide(t *testing.T, n int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "hookstart.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := newProvider(db)
	if err == nil {
		_, err = provider.UpTo(t.Context(), 19)
	}
	if err == nil {
		_, err = db.ExecContext(t.Context(), `
			WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
			INSERT INTO executions (id, account_id, workflow_id, node_id, queue, source, status, delivery_id, rerun_of, token_id, accepted_at,
				recorded_at, started_at, finished_at, content_type, body_bytes, stream_sequence, error, output, requeued_as)
			SELECT printf('%08x-0000-8000-8000-%012x', n, n), 'account', 'workflow-' || (n % 7), 'node', 'default', 'webhook',
				CASE n % 10 WHEN 0 THEN 'failed' ELSE 'succeeded' END, 'delivery-' || n, '', 'token',
				1767225600000000 + n / 3, 1767225600000000 + n, NULL, 1767225600000000 + 2 * n, 'text/plain', n, n, iif(n % 10, '', 'an error'), x'31', ''
			FROM numbers`, n)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// Two processes open a wide database at once: each record is there once, as it was.
func TestWideRecordsAreCarriedOver(t *testing.T) {
	t.Parallel()
	const n = 3*carryAtOnce + 17
	path := wide(t, n)
	opened := make(chan *Store, 2)
	for range 2 {
		go func() {
			s, err := Open(t.Context(), path)
			if err != nil {
				t.Error(err)
			}
			opened <- s
		}()
	}
	stores := []*Store{<-opened, <-opened}
	defer func() {
		for _, s := range stores {
			if s != nil {
				_ = s.Close()
			}
		}
	}()
	if t.Failed() {
		return
	}
	s := stores[0]
	all, err := s.List(t.Context(), store.Filter{}, store.Position{}, 2*n)
	if err != nil || len(all) != n {
		t.Fatalf("%d records, %v", len(all), err)
	}
	for i, r := range all {
		number := n - i
		at := time.UnixMicro(1767225600000000).UTC()
		want := store.Record{
			ID: fmt.Sprintf("%08x-0000-8000-8000-%012x", number, number), AccountID: "account", WorkflowID: fmt.Sprint("workflow-", number%7), NodeID: "node", Queue: "default",
			Source: execution.Webhook, Status: execution.Succeeded, DeliveryID: fmt.Sprint("delivery-", number), TokenID: "token",
			AcceptedAt: at.Add(time.Duration(number/3) * time.Microsecond), RecordedAt: at.Add(time.Duration(number) * time.Microsecond),
			FinishedAt: at.Add(time.Duration(2*number) * time.Microsecond), ContentType: "text/plain", BodyBytes: int64(number), StreamSequence: uint64(number),
			Output: []byte("1"),
		}
		if number%10 == 0 {
			want.Status, want.Error = execution.Failed, "an error"
		}
		if got, want := fmt.Sprintf("%+v", r), fmt.Sprintf("%+v", want); got != want {
			t.Fatalf("record %d\n got %s\nwant %s", number, got, want)
		}
	}
	if exists, err := hasTable(t.Context(), s.reader, wideTable); err != nil || exists {
		t.Errorf("the wide table is still there: %v", err)
	}
	if dead, err := s.List(t.Context(), store.Filter{DeadLetter: true, WorkflowID: "workflow-3"}, store.Position{}, n); err != nil || len(dead) != (n-10)/70+1 {
		t.Errorf("%d dead letters, %v", len(dead), err)
	}
}

// A process that ends while it carries records over leaves what the next one completes.
func TestCarryingOverGoesOn(t *testing.T) {
	t.Parallel()
	const n = 2*carryAtOnce + 5
	path := wide(t, n)
	db, err := sql.Open("sqlite", dataSource(path, "_txlock", "immediate"))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	if err := migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	columns, err := wideColumns(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	var known origins
	if err := transact(t.Context(), db, func(tx *sql.Tx) error {
		records, _, err := wideRecords(t.Context(), tx, columns, store.Position{})
		if err == nil {
			_, err = insertRecords(t.Context(), tx, known.begin(), records)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, path)
	defer func() { _ = s.Close() }()
	if all, err := s.List(t.Context(), store.Filter{}, store.Position{}, 2*n); err != nil || len(all) != n {
		t.Errorf("%d records, %v", len(all), err)
	}
}

// Back to wide records and to narrow ones again, nothing is lost.
func TestNarrowRecordsCanBeMadeWideAgain(t *testing.T) {
	t.Parallel()
	path := wide(t, 50)
	s := mustOpen(t, path)
	before, err := s.List(t.Context(), store.Filter{}, store.Position{}, 100)
	if err != nil || len(before) != 50 {
		t.Fatalf("%d, %v", len(before), err)
	}
	provider, err := newProvider(s.writer)
	if err == nil {
		_, err = provider.DownTo(t.Context(), 19)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, path)
	defer func() { _ = s.Close() }()
	after, err := s.List(t.Context(), store.Filter{}, store.Position{}, 100)
	if err != nil || fmt.Sprintf("%+v", after) != fmt.Sprintf("%+v", before) {
		t.Errorf("%v\n%+v\n%+v", err, before, after)
	}
}
