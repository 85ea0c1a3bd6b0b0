package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// pruneLock is an advisory lock, held for a transaction. Prune takes it alone, so that two
// prunes at once do not count the same records; adding duplicates shares it, so that the
// two need no common order on the rows of counts.
const pruneLock = 7_303_014_917_201

// earlyLock is another one: see lockEarly.
const earlyLock = 7_303_014_917_202

const addDuplicateCounts = `INSERT INTO duplicate_counts AS c (execution_id, duplicates, counted_at)
	SELECT execution_id, n, at FROM unnest($1::text[], $2::bigint[], $3::timestamptz[]) AS r (execution_id, n, at)
	ORDER BY execution_id COLLATE "C"
	ON CONFLICT (execution_id) DO UPDATE
	SET duplicates = c.duplicates + excluded.duplicates, counted_at = greatest(c.counted_at, excluded.counted_at)`

// AddDuplicates implements store.Store.
func (s *Store) AddDuplicates(ctx context.Context, reportID string, at time.Time, counts map[string]int64) error {
	at = store.Time(at)
	// Two of these IDs can be one text in the database, and one statement cannot add to a row twice.
	sums := make(map[string]int64, len(counts))
	for id, n := range counts {
		sums[store.Text(id)] += n
	}
	ids := make([]string, 0, len(sums))
	ns := make([]int64, 0, len(sums))
	for id, n := range sums {
		ids, ns = append(ids, id), append(ns, n)
	}
	return s.write(ctx, "add duplicates", func(tx pgx.Tx) error {
		if fresh, err := isNewReport(ctx, tx, reportID, at); err != nil || !fresh {
			return err
		}
		_, err := tx.Exec(ctx, addDuplicateCounts, ids, ns, slices.Repeat([]time.Time{at}, len(ids)))
		if err != nil {
			return err
		}
		return s.addMinutes(ctx, tx, store.DeduplicatedMinute(at, counts))
	})
}

// isNewReport says whether a report has not been applied before, and remembers it. One
// that another transaction is just applying is waited for. Until the end of the
// transaction nothing is pruned.
func isNewReport(ctx context.Context, tx pgx.Tx, reportID string, at time.Time) (bool, error) {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock_shared($1)`, int64(pruneLock)); err != nil {
		return false, err
	}
	added, err := tx.Exec(ctx, `INSERT INTO duplicate_reports (report_id, reported_at) VALUES ($1, $2) ON CONFLICT DO NOTHING`, store.Text(reportID), at)
	return added.RowsAffected() > 0, err
}
