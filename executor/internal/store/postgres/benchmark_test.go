package postgres

import (
	"context"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
)

// openForBenchmark starts a separate server with fsync on, so that commits cost as much as in
// production, and opens a store in it.
func openForBenchmark(b *testing.B) (*Store, *pgtest.Server) {
	b.Helper()
	server := pgtest.StartServer(b, "fsync=on", "full_page_writes=on", "max_wal_size=4GB")
	s, err := Open(b.Context(), server.URL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s, server
}

func BenchmarkListNewest(b *testing.B) {
	storetest.BenchmarkListNewest(b, func(b *testing.B) store.Store {
		b.Helper()
		s, _ := openForBenchmark(b)
		return s
	})
}

func BenchmarkApply(b *testing.B) {
	storetest.BenchmarkApply(b,
		func(b *testing.B) storetest.ApplyTarget {
			b.Helper()
			s, server := openForBenchmark(b)
			if _, err := s.pool.Exec(b.Context(),
				`CREATE TABLE bare AS SELECT `+shortFormColumns+` FROM executions`); err != nil {
				b.Fatal(err)
			}
			bare := func(ctx context.Context, records []store.Record) error {
				numbers, err := ensureOriginRowIDs(ctx, s.pool, s.Origins, records)
				if err != nil {
					return err
				}
				arrays, _ := recordArrays(records, numbers)
				_, err = s.pool.Exec(ctx, `INSERT INTO bare `+selectShort, arrays...)
				return err
			}
			return storetest.ApplyTarget{Store: s, InsertBare: bare, ServerCPU: server.CPU}
		})
}
