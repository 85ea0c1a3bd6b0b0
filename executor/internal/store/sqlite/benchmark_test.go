package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
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
	storetest.BenchmarkListNewest(b, func(b *testing.B) store.Store {
		b.Helper()
		return openForBenchmark(b)
	})
}

func BenchmarkApply(b *testing.B) {
	storetest.BenchmarkApply(b,
		func(b *testing.B) storetest.ApplyTarget {
			b.Helper()
			s := openForBenchmark(b)
			// InsertBare's table is in a separate file, so that it does not share a WAL with the
			// store.
			bare := openForBenchmark(b).writer
			if _, err := bare.ExecContext(b.Context(),
				`CREATE TABLE bare (`+fullFormColumns+`)`); err != nil {
				b.Fatal(err)
			}
			return storetest.ApplyTarget{Store: s, InsertBare: func(
				ctx context.Context, records []store.Record,
			) error {
				return transact(ctx, bare, func(tx *sql.Tx) error {
					return execEach(ctx, tx,
						`INSERT INTO bare VALUES (`+
							strings.Repeat("?, ", fullFormColumnCount-1)+`?)`,
						records, func(r store.Record) []any {
							return appendFullFormColumns(nil, r, relational.OriginRowIDs{
								Workflow: 1,
								Origin:   1,
							},
								true)
						})
				})
			}}
		})
}
