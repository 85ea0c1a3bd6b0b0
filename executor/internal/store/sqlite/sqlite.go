// Package sqlite stores records in one SQLite file. It is the driver for deployments with a single
// executor.
//
// The database is in WAL mode, and every commit is synced (synchronous=FULL), because the recorder
// acknowledges a message to the stream as soon as the message is committed. Several processes may
// have the file open; they write one at a time.
package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// readPoolSize is the number of connections in the read pool. In WAL mode, readers block neither
// each other nor the writer. A few connections are enough for operators' requests, and each one
// needs its own page cache.
const readPoolSize = 4

// busyTimeout is how long a connection waits for another process that holds the write lock.
const busyTimeout = 10 * time.Second

// Store is a store.Store backed by one SQLite file.
type Store struct {
	relational.Store

	// writer has a single connection: SQLite allows one writer at a time, and waiting for the
	// connection is cheaper than polling a busy database.
	writer        *sql.DB
	reader        *sql.DB // refuses writes
	schemaVersion int64   // the schema version that this program uses
	folder        string  // the folder that contains the file

	// closeMu is read-locked by every operation in progress. Close write-locks it, and so waits
	// until these operations have finished.
	closeMu sync.RWMutex
}

var _ store.Store = (*Store)(nil)

// Open opens the database at path, creating the file and its folder if they do not exist, and
// migrates its tables.
func Open(ctx context.Context, path string) (*Store, error) {
	absolute, err := ensureFile(path)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, absolute)
	if err != nil {
		return nil, fmt.Errorf("cannot open the database %s: %w", absolute, err)
	}
	return s, nil
}

func open(ctx context.Context, path string) (*Store, error) {
	writer, err := sql.Open("sqlite", dataSourceName(path, "_txlock", "immediate"))
	if err != nil {
		return nil, err
	}
	writer.SetMaxOpenConns(1)
	err = connect(ctx, writer)
	var schema int64
	if err == nil {
		schema, err = migrate(ctx, writer)
	}
	if err != nil {
		_ = writer.Close()
		return nil, err
	}
	reader, err := sql.Open("sqlite", dataSourceName(path, "_pragma", "query_only(1)"))
	if err != nil {
		_ = writer.Close()
		return nil, err
	}
	reader.SetMaxOpenConns(readPoolSize)
	reader.SetMaxIdleConns(readPoolSize)
	s := &Store{writer: writer, reader: reader, schemaVersion: schema, folder: filepath.Dir(path)}
	s.Store = relational.New(s, dialect)
	return s, nil
}

// Ping implements store.Database.
func (s *Store) Ping(ctx context.Context) error {
	s.closeMu.RLock()
	defer s.closeMu.RUnlock()
	// PingContext would show only that a connection is in the pool, so run a query.
	var result int
	err := checkSchemaVersion(ctx, s.reader, s.schemaVersion)
	if err == nil {
		err = s.reader.QueryRowContext(ctx,
			`SELECT count(*) FROM (SELECT 1 FROM executions LIMIT 1)`).Scan(&result)
	}
	if err != nil {
		return fmt.Errorf("sqlite: ping: %w", err)
	}
	return nil
}

// SupportedSchemaVersion implements store.Database.
func (s *Store) SupportedSchemaVersion() int64 { return s.schemaVersion }

// Stats implements store.Database.
func (s *Store) Stats(ctx context.Context) (store.DatabaseStats, error) {
	size, err := s.Store.Stats(ctx)
	if err == nil {
		size.FreeBytes = freeBytes(s.folder)
	}
	return size, err
}

// Reconnected implements store.HandledMessages. It returns nil, because a store uses the same file
// from Open to Close, and never switches to another copy of the data.
func (s *Store) Reconnected() <-chan struct{} { return nil }

// Close implements store.Store.
func (s *Store) Close() error {
	s.closeMu.Lock()
	defer s.closeMu.Unlock()
	// Close the writer last: it merges the WAL into the file if no other process has the file open.
	readerErr := s.reader.Close()
	if err := s.writer.Close(); err != nil {
		return fmt.Errorf("sqlite: close: %w", err)
	}
	if readerErr != nil {
		return fmt.Errorf("sqlite: close: %w", readerErr)
	}
	return nil
}
