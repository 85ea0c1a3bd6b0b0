// Package pgtest is a temporary PostgreSQL for tests of several processes: a server made
// by initdb, without a network port.
package pgtest

import (
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
)

// Server is a PostgreSQL that can be killed and started again.
type Server = pgtest.Server

// StartServer starts a server, which the test's end removes. Where no PostgreSQL is
// installed the test is skipped; with HOOKSTART_TEST_REQUIRE=postgres it fails.
func StartServer(t testing.TB, settings ...string) *Server {
	t.Helper()
	return pgtest.StartServer(t, settings...)
}

// Create starts a server for a program that is no test. Server.Remove ends it.
func Create(settings ...string) (*Server, error) { return pgtest.Create(settings...) }

// CreateIn is Create, with the data in a new folder in parent.
func CreateIn(parent string, settings ...string) (*Server, error) {
	return pgtest.CreateIn(parent, settings...)
}
