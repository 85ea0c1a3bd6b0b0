package postgres_test

import (
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store/postgres"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
)

// A standby responds to queries but does not accept writes, so Ping fails until the standby is
// promoted. Reconnected reports that the store is now connected to the standby.
func TestAStandbyIsNoDatabase(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartReplicatedPair(t)
	if err := pair.StartStandby(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(),
		strings.Replace(pair.URL(), "target_session_attrs=read-write", "target_session_attrs=any",
			1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	written, err := pair.Primary().Query(t.Context(), `SELECT pg_current_wal_flush_lsn()`)
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.AwaitReplay(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	<-s.Reconnected()
	if err := pair.Primary().Kill(); err != nil {
		t.Fatal(err)
	}
	for err == nil || !strings.Contains(err.Error(), "standby") {
		// Retry until the error names the standby: the first calls may fail with other errors,
		// because they still use broken connections to the primary.
		if err = s.Ping(t.Context()); err == nil {
			t.Fatal("a standby counts as a database")
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	<-s.Reconnected()
	if err := pair.FailOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
