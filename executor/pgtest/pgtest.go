// Package pgtest is a temporary PostgreSQL for tests of several processes: a server made by initdb,
// without a network port.
package pgtest

import (
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
)

// Server is a PostgreSQL that can be killed and started again.
type Server = pgtest.Server

// StartServer starts a server for one test. Without PostgreSQL the test is skipped, or fails with
// HOOKSTART_TEST_REQUIRE=postgres.
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

// Pair is a primary and a standby, which can lag and be promoted.
type Pair = pgtest.Pair

// StartPair starts a primary for one test; Pair.Follow makes the standby.
func StartPair(t testing.TB, settings ...string) *Pair {
	t.Helper()
	return pgtest.StartPair(t, settings...)
}
