// Package pgtest starts temporary PostgreSQL servers for tests. It creates each server with initdb.
// The servers listen only on a Unix socket, not on a network port. Without PostgreSQL, the tests
// are skipped; if HOOKSTART_TEST_REQUIRE contains postgres, they fail instead.
package pgtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sharedServer is the server that the tests of a test binary share. Tests that need a server of
// their own do not use it.
var sharedServer struct {
	mu          sync.Mutex
	server      *Server
	activeTests int
	ownedByMain bool // whether Main stops the server; if not, its last user does

	databaseCount  int      // number of databases created
	emptyDatabases []string // empty databases that no test is using
}

// NewDatabase returns the URL of an empty database for one test. The tests of a binary share one
// server. If the binary uses Main, the server runs until Main stops it. Without Main, it stops as
// soon as no test is using it.
func NewDatabase(t testing.TB) (url string) {
	t.Helper()
	server := acquireServer(t)
	name := takeEmptyDatabase()
	if name == "" {
		name = server.createDatabase(t)
	}
	t.Cleanup(func() {
		server.resetDatabase(t, name)
		releaseServer(t)
	})
	return server.url(name)
}

func takeEmptyDatabase() (name string) {
	sharedServer.mu.Lock()
	defer sharedServer.mu.Unlock()
	if last := len(sharedServer.emptyDatabases) - 1; last >= 0 {
		name, sharedServer.emptyDatabases = sharedServer.emptyDatabases[last],
			sharedServer.emptyDatabases[:last]
	}
	return name
}

func (s *Server) createDatabase(t testing.TB) (name string) {
	t.Helper()
	sharedServer.mu.Lock()
	sharedServer.databaseCount++
	name = fmt.Sprint("test_", sharedServer.databaseCount)
	sharedServer.mu.Unlock()
	s.exec(t, t.Context(), "postgres", "CREATE DATABASE "+name)
	return name
}

// resetDatabase empties a database so that the next test can reuse it. A database consists of 300
// files, so creating one takes longer than most tests.
func (s *Server) resetDatabase(t testing.TB, name string) {
	t.Helper()
	s.exec(t, context.Background(), name,
		"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = "+
			"current_database() AND pid <> pg_backend_pid()",
		"DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
	sharedServer.mu.Lock()
	defer sharedServer.mu.Unlock()
	sharedServer.emptyDatabases = append(sharedServer.emptyDatabases, name)
}

// Main runs the tests of a binary with one shared server, which the first test that needs it
// starts. Use it as func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }.
func Main(m *testing.M) (exitCode int) {
	sharedServer.ownedByMain = true
	defer func() {
		if sharedServer.server == nil {
			return
		}
		if err := sharedServer.server.Remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			exitCode = max(exitCode, 1)
		}
	}()
	return m.Run()
}

func acquireServer(t testing.TB) *Server {
	t.Helper()
	programs := programsFolder(t)
	sharedServer.mu.Lock()
	defer sharedServer.mu.Unlock()
	if sharedServer.server == nil {
		server, err := newServer(programs, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		sharedServer.server = server
	}
	sharedServer.activeTests++
	return sharedServer.server
}

func releaseServer(t testing.TB) {
	t.Helper()
	sharedServer.mu.Lock()
	defer sharedServer.mu.Unlock()
	sharedServer.activeTests--
	if sharedServer.activeTests > 0 || sharedServer.ownedByMain {
		return
	}
	if err := sharedServer.server.Remove(); err != nil {
		t.Error(err)
	}
	sharedServer.server, sharedServer.emptyDatabases = nil, nil
}

// programsFolder returns the folder with the programs of PostgreSQL. If PostgreSQL is not
// installed, it skips the test, or fails it if HOOKSTART_TEST_REQUIRE contains postgres.
func programsFolder(t testing.TB) string {
	t.Helper()
	folder, err := findPrograms()
	if err == nil {
		return folder
	}
	//nolint:forbidigo // a test kit has no cmd/ that could read it
	required := os.Getenv("HOOKSTART_TEST_REQUIRE")
	if slices.Contains(strings.Split(required, ","), "postgres") {
		t.Fatalf("HOOKSTART_TEST_REQUIRE has postgres, and %v", err)
	}
	t.Skipf("%v: install it to run this test, or set HOOKSTART_TEST_REQUIRE=postgres to make "+
		"this a failure", err)
	return ""
}

// exec runs statements in a database.
//
//nolint:revive // t first, as in all test helpers
func (s *Server) exec(
	t testing.TB, ctx context.Context, database string, statements ...string,
) {
	t.Helper()
	if _, err := s.query(ctx, database, statements); err != nil {
		t.Fatal(err)
	}
}
