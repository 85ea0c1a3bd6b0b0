package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hookstart/hookstart/shared/retry"
)

// ReplicatedPair is a primary server and its standby, which can fall behind and can be promoted.
type ReplicatedPair struct {
	servers      [2]*Server
	primaryIndex int // the index of the primary in servers
}

// StartReplicatedPair starts a primary for one test and stops both servers when the test ends. Call
// StartStandby to create the standby.
func StartReplicatedPair(t testing.TB, settings ...string) *ReplicatedPair {
	t.Helper()
	p := &ReplicatedPair{}
	for n := range p.servers {
		p.servers[n] = StartServer(t, settings...)
	}
	p.servers[1].Stop(t)
	return p
}

// URL returns a database URL that lists both servers. A client that uses it connects to the one
// that accepts writes.
func (p *ReplicatedPair) URL() string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/postgres"}
	u.RawQuery = url.Values{
		"host":                 {p.servers[0].folder + "," + p.servers[1].folder},
		"port":                 {"5432,5432"},
		"target_session_attrs": {"read-write"},
	}.Encode()
	return u.String()
}

// Primary returns the server that accepts writes.
func (p *ReplicatedPair) Primary() *Server { return p.servers[p.primaryIndex] }

// Standby returns the server that is not the primary.
func (p *ReplicatedPair) Standby() *Server { return p.servers[1-p.primaryIndex] }

// StartStandby makes the other server a standby of the primary. It returns when the standby has
// replayed everything that the primary has written.
func (p *ReplicatedPair) StartStandby(ctx context.Context) error {
	primary, standby := p.Primary(), p.Standby()
	if err := standby.stopWithSignal(immediateShutdown); err != nil {
		return err
	}
	if err := os.RemoveAll(standby.dataFolder()); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, filepath.Join(primary.programsFolder, "pg_basebackup"),
		"--host", primary.folder, "--port", "5432", "--username", "postgres",
		// #nosec G204 -- found on this machine.
		"--pgdata", standby.dataFolder(), "--write-recovery-conf", "--wal-method=stream",
		"--checkpoint=fast", "--no-sync")
	command.Dir = standby.folder
	if err := runAsServerUser(command); err != nil {
		return err
	}
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: pg_basebackup: %w\n%s", err, output)
	}
	if err := standby.start(ctx); err != nil {
		return err
	}
	written, err := primary.Query(ctx, `SELECT pg_current_wal_lsn()`)
	if err != nil {
		return err
	}
	return p.AwaitReplay(ctx, written)
}

// AwaitReplay waits until the standby has replayed the primary's log up to a position (LSN).
func (p *ReplicatedPair) AwaitReplay(ctx context.Context, written string) error {
	return pollUntil(ctx, "the standby does not follow", func() (bool, error) {
		state, err := p.Primary().Query(ctx,
			`SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'
				AND replay_lsn >= '`+written+`'`)
		return state != "0", err
	})
}

// StopStandby stops the standby, so that it falls behind.
func (p *ReplicatedPair) StopStandby() error {
	return p.Standby().stopWithSignal(immediateShutdown)
}

// FailOver kills the primary and promotes the standby, even if the standby has fallen behind. It
// returns when the standby accepts writes.
func (p *ReplicatedPair) FailOver(ctx context.Context) error {
	if err := p.Primary().Kill(); err != nil {
		return err
	}
	p.primaryIndex = 1 - p.primaryIndex
	if p.Primary().process == nil {
		if err := p.Primary().start(ctx); err != nil {
			return err
		}
	}
	return p.Primary().promote(ctx)
}

// serializationFailure is the SQLSTATE of a statement that a standby canceled because of a conflict
// with recovery.
const serializationFailure = "40001"

// promote ends the recovery of a standby, so that it accepts writes. It retries if the server
// cancels its query: a standby that is still replaying the last records of the primary cancels
// queries that conflict with them.
func (s *Server) promote(ctx context.Context) error {
	return pollUntil(ctx, "the standby was not promoted", func() (bool, error) {
		promoted, err := s.Query(ctx,
			`SELECT CASE WHEN pg_is_in_recovery() THEN pg_promote() ELSE true END`)
		if e, ok := errors.AsType[*pgconn.PgError](err); ok &&
			e.Code == serializationFailure {
			return false, nil
		}
		return strings.HasPrefix(promoted, "t"), err
	})
}

func pollUntil(ctx context.Context, problem string, done func() (bool, error)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ok := false
	retry.Until(ctx, 20*time.Millisecond, func() bool {
		ok, err = done()
		return ok || err != nil
	})
	if err == nil && !ok {
		err = errors.New("pgtest: " + problem)
	}
	return err
}
