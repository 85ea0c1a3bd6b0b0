package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
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
	storetest.Carried(t, s, n)
	if exists, err := hasTable(t.Context(), s.reader, wideTable); err != nil || exists {
		t.Errorf("the wide table is still there: %v", err)
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
	if _, err := migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	columns, err := wideColumns(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	var known relational.Origins
	if err := transact(t.Context(), db, func(tx *sql.Tx) error {
		records, err := wideRecords(t.Context(), tx, columns, store.Position{})
		if err == nil {
			_, err = insertRecords(t.Context(), tx, &lookup{known: &known}, records)
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
	storetest.Carried(t, s, n)
}

// While another process writes to the database, one that carries records over waits, however long that takes.
func TestCarryingOverWaitsForAnotherProcess(t *testing.T) {
	t.Parallel()
	const n = 20
	path := wide(t, n)
	var dbs [2]*sql.DB
	for i := range dbs {
		var err error
		if dbs[i], err = sql.Open("sqlite", dataSource(path, "_txlock", "immediate")); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = dbs[i].Close() }()
		dbs[i].SetMaxOpenConns(1)
	}
	db, other := dbs[0], dbs[1]
	if _, err := migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `PRAGMA busy_timeout = 1`); err != nil {
		t.Fatal(err)
	}
	writing, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	log, _ := logtest.NewNullLogger()
	waits := make(chan struct{}, 1)
	log.AddHook(hook(func(e *logrus.Entry) {
		if strings.Contains(e.Message, "another process writes") {
			select {
			case waits <- struct{}{}:
			default:
			}
		}
	}))
	carried := make(chan error, 1)
	go func() { carried <- carry(t.Context(), db, log) }()
	select {
	case <-waits:
	case err := <-carried:
		t.Fatalf("it did not wait: %v", err)
	}
	if err := writing.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-carried; err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, path)
	defer func() { _ = s.Close() }()
	storetest.Carried(t, s, n)
}

// hook hears of every line of a log.
type hook func(*logrus.Entry)

func (hook) Levels() []logrus.Level { return logrus.AllLevels }

func (h hook) Fire(e *logrus.Entry) error {
	h(e)
	return nil
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
