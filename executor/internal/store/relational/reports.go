package relational

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var duplicateCountTable = table[store.DuplicateCount]{
	name:    "duplicate_counts",
	columns: "id, duplicates, counted_at",
	fields: func(d *store.DuplicateCount) []any {
		return []any{executionIDField{&d.ExecutionID}, &d.Count, timeField{&d.CountedAt}}
	},
	onConflict: `ON CONFLICT (id) DO UPDATE
		SET duplicates = duplicate_counts.duplicates + excluded.duplicates,
		counted_at = greatest(duplicate_counts.counted_at, excluded.counted_at)`,
	backupOrder: "counted_at, id",
	partRows:    func(p *store.BackupPart) *[]store.DuplicateCount { return &p.Duplicates },
}

var appliedReportTable = table[store.AppliedReport]{
	name:        "duplicate_reports",
	columns:     "report_id, reported_at",
	fields:      func(r *store.AppliedReport) []any { return []any{&r.ID, timeField{&r.At}} },
	onConflict:  "ON CONFLICT DO NOTHING",
	backupOrder: "reported_at",
	partRows:    func(p *store.BackupPart) *[]store.AppliedReport { return &p.Reports },
}

// applyReportOnce runs one transaction that calls apply, unless the report with this ID has already
// been applied. If another transaction is applying the report, applyReportOnce waits for that
// transaction to end. Pruning transactions wait until applyReportOnce has finished: see
// PruningLock.
func (s *Store) applyReportOnce(
	ctx context.Context, operation, id string, at time.Time, apply func(Tx) error,
) error {
	return s.db.Write(ctx, operation, func(tx Tx) error {
		if err := tx.Lock(ctx, PruningLock, false); err != nil {
			return err
		}
		added, err := tx.Exec(ctx,
			`INSERT INTO duplicate_reports (report_id, reported_at) VALUES (?, ?)
				ON CONFLICT DO NOTHING`, store.SanitizeText(id), store.StoredTime(at))
		if err != nil || added == 0 {
			return err
		}
		return apply(tx)
	})
}

// AddDuplicates implements store.Reports.
func (s *Store) AddDuplicates(
	ctx context.Context, reportID string, at time.Time, counts map[string]int64,
) error {
	// Add up the counts by stored ID: two IDs can have the same stored form, and one statement
	// cannot update a row twice.
	sums := make(map[string]int64, len(counts))
	for id, n := range counts {
		sums[store.SanitizeText(id)] += n
	}
	rows := make([]store.DuplicateCount, 0, len(sums))
	for _, id := range slices.Sorted(maps.Keys(sums)) {
		rows = append(rows, store.DuplicateCount{
			ExecutionID: id,
			Count:       sums[id],
			CountedAt:   store.StoredTime(at),
		})
	}
	return s.applyReportOnce(ctx, "add duplicates", reportID, at, func(tx Tx) error {
		if err := duplicateCountTable.insert(ctx, tx, rows); err != nil {
			return err
		}
		return tx.AddMinutes(ctx, store.DeduplicatedMinuteCount(at, counts))
	})
}
