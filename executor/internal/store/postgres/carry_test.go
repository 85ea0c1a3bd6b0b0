package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
	"github.com/hookstart/hookstart/shared/execution"
)

// migrateTo brings a database to the schema of a version, up or down, and then runs a statement.
func migrateTo(t *testing.T, url string, version int64, statement string, args ...any) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	provider, err := newProvider(db)
	if err == nil {
		current, currentErr := provider.GetDBVersion(t.Context())
		if err = currentErr; err == nil && current > version {
			_, err = provider.DownTo(t.Context(), version)
		} else if err == nil {
			_, err = provider.UpTo(t.Context(), version)
		}
	}
	if err == nil {
		_, err = pool.Exec(t.Context(), statement, args...)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// wide makes a database as it was before records were narrow, with n records: see storetest.Carried.
func wide(t *testing.T, n int) (url string) {
	t.Helper()
	url = pgtest.Start(t)
	migrateTo(t, url, 22, `INSERT INTO executions (id, account_id, workflow_id, node_id, queue, source, status, delivery_id, rerun_of, token_id, accepted_at,
			recorded_at, started_at, finished_at, content_type, body_bytes, stream_sequence, error, output, requeued_as)
		SELECT lpad(to_hex(n), 8, '0') || '-0000-8000-8000-' || lpad(to_hex(n), 12, '0'), 'account', 'workflow-' || (n % 7), 'node', 'default', 'webhook',
			CASE n % 10 WHEN 0 THEN 'failed' ELSE 'succeeded' END, 'delivery-' || n, '', 'token',
			timestamptz '2026-01-01T00:00:00Z' + n / 3 * interval '1 microsecond', timestamptz '2026-01-01T00:00:00Z' + n * interval '1 microsecond', NULL,
			timestamptz '2026-01-01T00:00:00Z' + 2 * n * interval '1 microsecond', 'text/plain', n, n, CASE n % 10 WHEN 0 THEN 'an error' ELSE '' END, '\x31', ''
		FROM generate_series(1, $1::integer) AS numbers (n)`, n)
	return url
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

// Three executors open a wide database at once: each record is there once, as it was.
func TestWideRecordsAreCarriedOver(t *testing.T) {
	t.Parallel()
	const n = 2*carryAtOnce + 17
	url := wide(t, n)
	opened := make(chan *Store, 3)
	for range cap(opened) {
		go func() {
			s, err := Open(t.Context(), url)
			if err != nil {
				t.Error(err)
			}
			opened <- s
		}()
	}
	for range cap(opened) {
		s := <-opened
		if s == nil {
			continue
		}
		defer func() { _ = s.Close() }()
		storetest.Carried(t, s, n)
		var exists bool
		if err := s.pool.QueryRow(t.Context(), `SELECT to_regclass('executions_wide') IS NOT NULL`).Scan(&exists); err != nil || exists {
			t.Errorf("the wide table is still there: %v", err)
		}
	}
}

// An executor that is killed while it carries records over leaves what the next one completes.
func TestCarryingOverGoesOn(t *testing.T) {
	t.Parallel()
	const n = 2*carryAtOnce + 5
	url := wide(t, n)
	migrateTo(t, url, 71, `SELECT 1`)
	killed := connect(t, url)
	if _, err := killed.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, int64(carrying)); err != nil {
		t.Fatal(err)
	}
	var known relational.Origins
	if records, err := carrySome(t.Context(), killed, &known, store.Position{AcceptedAt: beforeAll}); err != nil || len(records) != carryAtOnce {
		t.Fatalf("%d records, %v", len(records), err)
	}
	// Another one waits, until the server finds out, and longer than it would for a server that is away.
	db := connect(t, url)
	starting, started := context.WithCancel(t.Context())
	defer started()
	opened := make(chan store.Store, 1)
	log, lines := test.NewNullLogger()
	go func() {
		s, err := OpenWait(t.Context(), starting, url, log)
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	for waiting := false; !waiting && t.Context().Err() == nil; {
		if err := db.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	started()
	if _, err := db.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, int64(killed.PgConn().PID())); err != nil {
		t.Fatal(err)
	}
	if s := <-opened; s != nil {
		defer func() { _ = s.Close() }()
		storetest.Carried(t, s, n)
	}
	if last := lines.LastEntry(); last == nil || !strings.Contains(last.Message, "are narrow") {
		t.Errorf("the log ends with %+v", last)
	}
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

// Every field of a record is carried over, and an ID that is no UUID.
func TestEveryFieldIsCarriedOver(t *testing.T) {
	t.Parallel()
	url := pgtest.Start(t)
	migrateTo(t, url, 22, `INSERT INTO executions (id, account_id, workflow_id, node_id, queue, source, status, delivery_id, rerun_of, token_id, accepted_at,
			recorded_at, started_at, finished_at, content_type, body_bytes, stream_sequence, error, output, requeued_as, replay_of, dismissed_at, sender, verified)
		SELECT id, 'a', 'w', 'n', 'q', 'rerun', 'failed', 'd', 'rerun', 't', at, at + interval '1 s', at + interval '2 s', at + interval '3 s', 'c', 4, 5, 'e', '\x6f',
			'requeued', 'replayed', at + interval '4 s', 'github', true
		FROM unnest(ARRAY['00000001-0000-8000-8000-000000000001', 'no UUID', 'sixteen letters!']) AS id, (SELECT timestamptz '2026-01-01T00:00:00.123456Z' AS at) AS at`)
	at := time.Date(2026, 1, 1, 0, 0, 0, 123_456_000, time.UTC)
	want := store.Record{
		AccountID: "a", WorkflowID: "w", NodeID: "n", Queue: "q", Source: execution.Rerun, Status: execution.Failed, DeliveryID: "d", RerunOf: "rerun", TokenID: "t",
		AcceptedAt: at, RecordedAt: at.Add(time.Second), StartedAt: at.Add(2 * time.Second), FinishedAt: at.Add(3 * time.Second), ContentType: "c", BodyBytes: 4,
		StreamSequence: 5, Error: "e", Output: []byte("o"), RequeuedAs: "requeued", ReplayOf: "replayed", DismissedAt: at.Add(4 * time.Second), Sender: "github", Verified: true,
	}
	s := mustOpen(t, url)
	for _, id := range []string{"00000001-0000-8000-8000-000000000001", "no UUID", "sixteen letters!"} {
		want.ID = id
		if got, err := s.Get(t.Context(), id); err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%v\n got %+v\nwant %+v", err, got, want)
		}
	}
	if found, err := s.List(t.Context(), store.Filter{DeliveryID: "d"}, store.Position{}, 5); err != nil || len(found) != 3 {
		t.Errorf("%d by delivery ID, %v", len(found), err)
	}
}

// Back to wide records and to narrow ones again, nothing is lost.
func TestNarrowRecordsCanBeMadeWideAgain(t *testing.T) {
	t.Parallel()
	url := wide(t, 50)
	s := mustOpen(t, url)
	if err := s.AddDuplicates(t.Context(), "report", time.Now(), map[string]int64{fmt.Sprintf("%08x-0000-8000-8000-%012x", 1, 1): 7}); err != nil {
		t.Fatal(err)
	}
	before, err := s.List(t.Context(), store.Filter{}, store.Position{}, 100)
	if err != nil || len(before) != 50 {
		t.Fatalf("%d, %v", len(before), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	migrateTo(t, url, 22, `SELECT 1`)
	after, err := mustOpen(t, url).List(t.Context(), store.Filter{}, store.Position{}, 100)
	if err != nil || fmt.Sprintf("%+v", after) != fmt.Sprintf("%+v", before) || after[49].Duplicates != 7 {
		t.Errorf("%v\n%+v\n%+v", err, before, after)
	}
}
