package postgres

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
	"github.com/hookstart/hookstart/shared/execution"
)

func TestOpenErrorsAreOneLineWithoutThePassword(t *testing.T) {
	t.Setenv("PGCONNECT_TIMEOUT", "5")
	for _, url := range []string{
		"postgres://user:geh%40eim@127.0.0.1:1/db",
		"postgres://user:geh%40eim@127.0.0.1:1,127.0.0.1:2/db?sslmode=disable",
		"postgres://user:geh%40eim@127.0.0.1:port/db",
		"postgres://user:geh%40eim@127.0.0.1:1/db?sslmode=nonsense",
		"postgres://user:geh%40eim@127.0.0.1:1/db?pool_max_conns=many",
		"postgres://user:geh%40eim@127.0.0.1:1/db?sslmode=verify-full&sslrootcert=/nowhere",
		"postgres://user:geh%40eim%zz@127.0.0.1:1/db",
		"postgres://user:geh@eim@127.0.0.1:99999/db",
		"postgres://user:geh/@eim@127.0.0.1/db",
		"postgres://127.0.0.1:1/db?password=geh%40eim&connect_timeout=x",
		"user=u password=geh@eim host=127.0.0.1 port=x",
		"user=u password='geh@eim host=127.0.0.1",
		"mysql://user:geh%40eim@127.0.0.1:1/db",
	} {
		s, err := Open(t.Context(), url)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s was opened", url)
			continue
		}
		if text := err.Error(); strings.Contains(text, "geh") || strings.Contains(text, "eim") ||
			strings.Contains(text, "\n") {
			t.Errorf("%s: %s", url, text)
		}
	}
}

func TestOpenErrorsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"": "postgres://user:password@host",
		"postgres://u:secret@127.0.0.1:1/db": "cannot open the database db on 127.0.0.1 port 1 " +
			"as u: ",
		"postgres://u:secret@h/db?sslmode=strange":     "sslmode",
		"postgres://u:secret@h/db?pool_max_conns=many": "pool_max_conns",
	} {
		s, err := Open(t.Context(), url)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s was opened", url)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
	var network net.Error
	if _, err := Open(t.Context(), "postgres://u:secret@127.0.0.1:1/db"); !errors.As(err,
		&network) {
		t.Errorf("the cause is hidden: %v", err)
	}
}

func TestOpenRefusesDatabaseOfNewerCode(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	s, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(t.Context(),
		`INSERT INTO goose_db_version (version_id, is_applied) VALUES (90000, true)`); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first refusal must change nothing
		s, err := Open(t.Context(), url)
		if err == nil {
			_ = s.Close()
			t.Fatal("it was opened")
		}
		if !strings.Contains(err.Error(), "schema has version 90000") {
			t.Error(err)
		}
	}
}

// A database whose tables were not created by the baseline migration is rejected immediately,
// without a retry, and stays unchanged.
func TestOpenRefusesDatabaseFromBeforeTheFirstRelease(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	if err := mustOpen(t, url).Close(); err != nil {
		t.Fatal(err)
	}
	db := connect(t, url)
	for _, version := range []int64{71, 20240101000000} {
		// The lower version was written by a program from before the first release, and the higher
		// one by an unrelated program that also uses goose.
		if _, err := db.Exec(t.Context(),
			`UPDATE goose_db_version SET version_id = $1 WHERE version_id > 0`,
			version); err != nil {
			t.Fatal(err)
		}
		s, err := OpenWithRetry(t.Context(), t.Context(), url)
		if err == nil {
			_ = s.Close()
			t.Fatalf("a database of version %d was opened", version)
		}
		storetest.CheckEarlierSchemaRefused(t, err, version)
		var applied, newest int64
		if err := db.QueryRow(t.Context(),
			`SELECT count(*), max(version_id) FROM goose_db_version`).Scan(&applied,
			&newest); err != nil || applied != 2 || newest != version {
			t.Errorf("%d rows, version %d, %v", applied, newest, err)
		}
	}
}

// The time limit for connecting expires during a migration. The migration is not canceled.
func TestMigrationOutlastsConnecting(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	db := connect(t, url)
	// Hold the migration lock, as another executor does while it migrates, so that the migration
	// waits.
	if _, err := db.Exec(t.Context(), `SELECT pg_advisory_lock($1)`,
		int64(relational.MigrationLock)); err != nil {
		t.Fatal(err)
	}
	starting, timeOut := context.WithCancel(t.Context())
	defer timeOut()
	opened := make(chan error, 1)
	go func() {
		s, err := OpenWithRetry(t.Context(), starting, url)
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	for waiting := false; !waiting; {
		if err := db.QueryRow(t.Context(), `SELECT EXISTS (
			SELECT FROM pg_locks JOIN pg_database ON oid = database
			WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
		)`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-opened:
			t.Fatalf("it was opened without waiting for the lock: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	timeOut()
	if _, err := db.Exec(t.Context(), `SELECT pg_advisory_unlock_all()`); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// The database crashes, and calls fail. When it is back, the same store works again and has
// everything that was committed.
func TestDatabaseAwayAndBack(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	s, err := Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	first := store.Record{ID: "a", Status: execution.Queued, AcceptedAt: at, RecordedAt: at}
	second := first
	second.ID = "b"
	if _, err := s.Apply(t.Context(), store.Batch{NewRecords: []store.Record{first}}); err != nil {
		t.Fatal(err)
	}
	server.Stop(t)
	if _, err := s.Apply(t.Context(), store.Batch{NewRecords: []store.Record{second}}); err == nil {
		t.Error("applied without a database")
	}
	if _, err := s.Get(t.Context(), "a"); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get: %v", err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("ping without a database")
	}
	server.Start(t)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	batch := store.Batch{NewRecords: []store.Record{first, second}}
	if _, err := s.Apply(t.Context(), batch); err != nil {
		t.Error(err)
	}
	if found, err := s.List(t.Context(), store.RecordFilter{}, store.RecordPosition{},
		5); err != nil ||
		len(found) != 2 {
		t.Errorf("%v, %v", found, err)
	}
}

// Every connection has the driver's settings, even if the server has other defaults.
func TestConnectionSettings(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	s, err := Open(t.Context(),
		url+
			"&synchronous_commit=off&lock_timeout=1234ms&"+
			"default_transaction_isolation=serializable")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for setting, want := range map[string]string{
		"synchronous_commit":                  "on",
		"plan_cache_mode":                     "force_custom_plan",
		"idle_in_transaction_session_timeout": "5s",
		"lock_timeout":                        "1234ms",
		"statement_timeout":                   "1min",
	} {
		var got string
		if err := s.pool.QueryRow(t.Context(), `SELECT current_setting($1)`,
			setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", setting, got, err, want)
		}
	}
}

func TestNewerSchema(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	var pool *pgxpool.Pool
	storetest.TestNewerSchema(t, func(t *testing.T) store.Store {
		t.Helper()
		s, err := Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		pool = s.pool
		return s
	}, func(t *testing.T, statement string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	})
}

// A migration waits for the transactions that began before it, and transactions that begin during
// the migration wait for it.
func TestMigrationWaitsForTransactions(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	s, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	tryLock := func(tx pgx.Tx) (got bool) {
		t.Helper()
		if err := tx.QueryRow(t.Context(), `SELECT pg_try_advisory_xact_lock($1)`,
			int64(relational.MigrationLock)).Scan(&got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	migration, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = migration.Close(t.Context()) }()
	try := func() (got bool) {
		t.Helper()
		if err := pgx.BeginFunc(t.Context(), migration, func(tx pgx.Tx) error {
			got = tryLock(tx)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if err := s.write(t.Context(), "test", func(transaction) error {
		if try() {
			t.Error("a migration began while a transaction was under way")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !try() {
		t.Error("a migration cannot begin after the transaction")
	}
}

// Reconnected receives a value when the store connects to a restarted server, but not when the pool
// opens further connections to the same server.
func TestReconnectedMeansAnotherServer(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	s, err := Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-s.Reconnected()
	opened := s.pool.Stat().NewConnsCount()
	for range 3 {
		conn, err := s.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
	if s.pool.Stat().NewConnsCount() == opened {
		t.Fatal("the pool has opened no connection")
	}
	select {
	case <-s.Reconnected():
		t.Error("a further connection to the same server counts as one to another server")
	default:
	}
	server.Stop(t)
	server.Start(t)
	s.pool.Reset()
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-s.Reconnected()
}
