package sqlite

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	addDuplicateCount = `INSERT INTO duplicate_counts (id, duplicates, counted_at) VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET duplicates = duplicates + excluded.duplicates, counted_at = max(counted_at, excluded.counted_at)`

	insertReport = `INSERT INTO duplicate_reports (report_id, reported_at) VALUES (?, ?) ON CONFLICT DO NOTHING`
)

// AddDuplicates implements store.Store.
func (s *Store) AddDuplicates(ctx context.Context, reportID string, at time.Time, counts map[string]int64) error {
	micros := store.Time(at).UnixMicro()
	return s.write(ctx, "add duplicates", func(tx *sql.Tx) error {
		if fresh, err := isNewReport(ctx, tx, reportID, micros); err != nil || !fresh {
			return err
		}
		if err := addMinutes(ctx, tx, store.DeduplicatedMinute(at, counts)); err != nil {
			return err
		}
		return each(ctx, tx, addDuplicateCount, slices.Collect(maps.Keys(counts)), func(id string) []any { return []any{keyOf(id), counts[id], micros} })
	})
}

// isNewReport says whether a report has not been applied before, and remembers it.
func isNewReport(ctx context.Context, tx *sql.Tx, reportID string, micros int64) (bool, error) {
	result, err := tx.ExecContext(ctx, insertReport, store.Text(reportID), micros)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
