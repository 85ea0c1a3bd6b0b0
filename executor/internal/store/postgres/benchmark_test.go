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
	storetest.BenchmarkListNewest(b, func(b *testing.B) (store.Store, func(int) error) {
		b.Helper()
		s := openForBenchmark(b)
		return s, func(n int) error { return s.fill(b.Context(), n) }
	})
}

// fill makes what storetest.BenchmarkListNewest asks for.
func (s *Store) fill(ctx context.Context, n int) error {
	_, err := s.pool.Exec(ctx, `
		INSERT INTO executions (`+columns+`)
		SELECT gen_random_uuid()::text, 'account', 'workflow-' || (n % $2::int), 'node', 'default', 'webhook',
			CASE n % $3::int WHEN 0 THEN 'failed' ELSE 'succeeded' END, $4::text || n, '', 'token',
			timestamptz '2026-01-01Z' + n * interval '1 second', timestamptz '2026-01-01Z' + n * interval '1 second',
			NULL, NULL, 'application/json', 100, n, '', NULL, '', '', NULL
		FROM generate_series(1, $1::int) AS n`, n, storetest.FillWorkflows, storetest.FillFailed, storetest.FillDeliveryID)
	return err
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
