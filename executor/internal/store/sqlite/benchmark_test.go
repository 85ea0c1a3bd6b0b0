package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/storetest"
)

func openForBenchmark(b *testing.B) *Store {
	b.Helper()
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "hookstart.db"))
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
		return s, func(n int) error {
			_, err := s.writer.ExecContext(b.Context(), `
				WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
				INSERT INTO executions (`+columns+`)
				SELECT lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-8000-8000-' || hex(randomblob(6))),
					'account', 'workflow-' || (n % ?), 'node', 'default', 'webhook',
					CASE n % ? WHEN 0 THEN 'failed' ELSE 'succeeded' END, ? || n, '', 'token',
					1767225600000000 + n * 1000000, 1767225600000000 + n * 1000000, NULL, NULL, 'application/json', 100, n, '', NULL, '', '', NULL
				FROM numbers`, n, storetest.FillWorkflows, storetest.FillFailed, storetest.FillDeliveryID)
			return err
		}
	})
}

func BenchmarkApply(b *testing.B) {
	storetest.BenchmarkApply(b, func(b *testing.B) (store.Store, func(context.Context, []store.Record) error) {
		b.Helper()
		s := openForBenchmark(b)
		// In a file of its own, so that the two do not share a WAL.
		bare := openForBenchmark(b).writer
		if _, err := bare.ExecContext(b.Context(), `CREATE TABLE bare (`+columns+`)`); err != nil {
			b.Fatal(err)
		}
		return s, func(ctx context.Context, records []store.Record) error {
			return transact(ctx, bare, func(tx *sql.Tx) error {
				return each(ctx, tx, `INSERT INTO bare VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, records, values)
			})
		}
	})
}
