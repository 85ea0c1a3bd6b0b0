package postgres

import (
	"context"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/postgres/pgtest"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
)

// openForBenchmark has a server of its own that syncs its commits, as a real one does.
func openForBenchmark(b *testing.B) *Store {
	b.Helper()
	s, err := Open(b.Context(), pgtest.StartServer(b, "fsync=on", "full_page_writes=on", "max_wal_size=4GB").URL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

func BenchmarkListNewest(b *testing.B) {
	storetest.BenchmarkListNewest(b, func(b *testing.B) store.Store {
		b.Helper()
		return openForBenchmark(b)
	})
}

func BenchmarkApply(b *testing.B) {
	storetest.BenchmarkApply(b, func(b *testing.B) (store.Store, func(context.Context, []store.Record) error) {
		b.Helper()
		s := openForBenchmark(b)
		if _, err := s.pool.Exec(b.Context(), `CREATE TABLE bare AS SELECT `+columns+` FROM executions`); err != nil {
			b.Fatal(err)
		}
		return s, func(ctx context.Context, records []store.Record) error {
			_, err := s.pool.Exec(ctx, `INSERT INTO bare SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[],
				$5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::timestamptz[], $12::timestamptz[],
				$13::timestamptz[], $14::timestamptz[], $15::text[], $16::bigint[], $17::bigint[], $18::text[], $19::bytea[], $20::text[],
				$21::text[], $22::timestamptz[])`,
				recordArrays(records)...)
			return err
		}
	})
}
