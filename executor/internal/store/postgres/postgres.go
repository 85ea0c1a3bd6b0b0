// Package postgres stores records in PostgreSQL. It is the driver for deployments with several
// executors.
//
// Executors may write the same rows concurrently. They cannot deadlock, because every transaction
// acquires its locks in the same order: new executions, messages put aside, records whose state
// changes, per-minute counts, token uses. In each of these groups, it locks the rows in the order
// of their keys, except that it locks new executions in the order in which they were accepted. New
// rows in the dimension tables of origins are added beforehand, in separate transactions.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// Store is a store.Store backed by one PostgreSQL database.
type Store struct {
	relational.Store

	pool *pgxpool.Pool
	// writerID is a random number that distinguishes this store's rows of per-minute counts from
	// the rows of other stores, so that the stores do not wait for each other. Two stores that
	// happen to have the same number sometimes wait for each other, but their sums are still
	// correct.
	writerID      int16
	schemaVersion int64 // the schema version that this program uses
	// reconnected is the channel that Reconnected returns. It can hold one value until the caller
	// receives it.
	reconnected  chan struct{}
	newestServer atomic.Value // the serverIdentity of the newest connection
}

var _ store.Store = (*Store)(nil)

// Open connects to the database at a URL, postgres://user:password@host:port/database, and migrates
// its tables. The pool_max_conns parameter of the URL sets the pool size. Errors never contain the
// password.
func Open(ctx context.Context, url string) (*Store, error) { return open(ctx, ctx, url) }

// open is like Open, but stops trying to connect when the second context (starting) is done. Only
// ctx cancels a migration, which may take longer.
func open(ctx, starting context.Context, url string) (*Store, error) {
	config, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	//nolint:gosec // no secret
	s := &Store{writerID: int16(rand.IntN(math.MaxInt16)), reconnected: make(chan struct{}, 1)}
	s.Store = relational.New(s, dialect)
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		s.Origins.Clear() // the connection may lead to another server
		server, err := identifyServer(ctx, conn)
		if err != nil {
			return err
		}
		if s.newestServer.Swap(server) != any(server) {
			select {
			case s.reconnected <- struct{}{}:
			default:
			}
		}
		return prepareConnection(ctx, conn)
	}
	configureDialer(config.ConnConfig)
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, wrapOpenError(config, err)
	}
	if s.schemaVersion, err = migrate(ctx, starting, config.ConnConfig); err != nil {
		s.pool.Close()
		return nil, wrapOpenError(config, err)
	}
	return s, nil
}

// OpenWithRetry is like Open, but retries while the server is unavailable, until the second context
// (starting) is done. Only ctx cancels a migration, which may take longer. starting must be derived
// from ctx.
func OpenWithRetry(ctx, starting context.Context, url string) (store.Store, error) {
	var why error
	for {
		s, err := open(ctx, starting, url)
		if err == nil {
			return s, nil
		}
		if why == nil || starting.Err() == nil || !errors.Is(err, starting.Err()) {
			// Keep the last error that names a cause: when starting is done, an attempt to connect
			// reports only the timeout.
			why = err
		}
		if errors.Is(err, errWrongURL) || errors.Is(err, relational.ErrBeforeBaseline) {
			return nil, err
		}
		select {
		case <-starting.Done():
			return nil, why
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// errStandby means that the server is a standby, which does not accept writes.
var errStandby = errors.New("the server is a standby that is not promoted, and takes no writes: " +
	"promote it, or let the database URL lead to the primary (several hosts with " +
	"target_session_attrs=read-write)")

// Ping implements store.Database. A standby also responds to queries, so Ping asks the server
// whether it is one.
func (s *Store) Ping(ctx context.Context) error {
	var version int64
	var standby bool
	err := s.pool.QueryRow(ctx, relational.SelectSchemaVersion).Scan(&version)
	if err == nil {
		err = s.pool.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&standby)
	}
	switch {
	case err != nil:
	case standby:
		err = errStandby
	default:
		err = relational.CheckSchemaVersion(version, s.schemaVersion)
	}
	if err != nil {
		return fmt.Errorf("postgres: ping: %w", err)
	}
	return nil
}

// SupportedSchemaVersion implements store.Database.
func (s *Store) SupportedSchemaVersion() int64 { return s.schemaVersion }

// Reconnected implements store.HandledMessages.
func (s *Store) Reconnected() <-chan struct{} { return s.reconnected }

// Close implements store.Store.
func (s *Store) Close() error {
	s.pool.Close() // waits for every connection in use
	return nil
}

// withContextError adds ctx's error to err if ctx is done, because pgx may report only a
// consequence, such as a closed connection.
func withContextError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
