// Package pgtest starts temporary PostgreSQL servers for tests that involve several processes. It
// creates them with the initdb of the installed PostgreSQL. The servers listen only on Unix
// sockets, not on network ports.
package pgtest

import (
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
)

// Server is a PostgreSQL server that can be killed and restarted.
type Server = pgtest.Server

// StartServer starts a server for one test, and stops it when the test ends. settings are
// PostgreSQL settings, such as "fsync=on". If PostgreSQL is not installed, StartServer skips the
// test, or fails it if HOOKSTART_TEST_REQUIRE contains postgres.
func StartServer(t testing.TB, settings ...string) *Server {
	t.Helper()
	return pgtest.StartServer(t, settings...)
}

// Create starts a server for a program that is not a test. settings are as for StartServer. Call
// Server.Remove to stop and delete the server.
func Create(settings ...string) (*Server, error) { return pgtest.NewServer(settings...) }

// CreateIn is like Create, but keeps the server's data in a new folder in parent.
func CreateIn(parent string, settings ...string) (*Server, error) {
	return pgtest.NewServerIn(parent, settings...)
}

// ReplicatedPair is a primary and a standby. The standby can lag and can be promoted.
type ReplicatedPair = pgtest.ReplicatedPair

// StartReplicatedPair starts a primary for one test. ReplicatedPair.StartStandby creates its
// standby. settings are as for StartServer, and apply to both servers.
func StartReplicatedPair(t testing.TB, settings ...string) *ReplicatedPair {
	t.Helper()
	return pgtest.StartReplicatedPair(t, settings...)
}
