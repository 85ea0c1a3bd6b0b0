package relational

import (
	"context"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// refusalTable is the table of refusals by workflow, minute and code. In its ON CONFLICT clause,
// each assignment reads the row as it was before the update, so the order of the assignments does
// not matter.
var refusalTable = table[store.RefusalCount]{
	name:    "refusals",
	columns: "workflow_id, minute, code, n, last_at, body_bytes, user_agent",
	fields: func(r *store.RefusalCount) []any {
		return []any{
			&r.WorkflowID,
			timeField{&r.Minute},
			&r.Code, &r.Count,
			timeField{&r.Last.At},
			&r.Last.BodyBytes, &r.Last.UserAgent,
		}
	},
	onConflict: `ON CONFLICT (workflow_id, minute, code) DO UPDATE SET n = refusals.n + excluded.n,
		last_at = greatest(refusals.last_at, excluded.last_at),
		body_bytes = CASE WHEN excluded.last_at >= refusals.last_at THEN excluded.body_bytes
		ELSE refusals.body_bytes END,
		user_agent = CASE WHEN excluded.last_at >= refusals.last_at THEN excluded.user_agent
		ELSE refusals.user_agent END`,
	backupOrder: "minute",
	partRows:    func(p *store.BackupPart) *[]store.RefusalCount { return &p.Refusals },
}

// AddRefusals implements store.Reports.
func (s *Store) AddRefusals(
	ctx context.Context, reportID string, at time.Time, refused []store.RefusalCount,
) error {
	refused = store.StorableRefusals(refused)
	return s.applyReportOnce(ctx, "add refusals", reportID, at, func(tx Tx) error {
		if err := refusalTable.insert(ctx, tx, refused); err != nil {
			return err
		}
		return tx.AddMinutes(ctx, store.RefusedMinuteCounts(refused))
	})
}

// Refusals implements store.RequestCounts.
func (s *Store) Refusals(
	ctx context.Context, workflowID string, since time.Time,
) ([]store.RefusalSum, error) {
	found, err := Collect(ctx, s.db, "refusals", scanRefusalSum,
		s.refusalSumQuery(`workflow_id = ? AND minute >= ?`)+` ORDER BY last_at DESC, code`,
		store.SanitizeText(workflowID), since.Truncate(time.Minute))
	var sums []store.RefusalSum
	for _, sum := range found {
		sums = append(sums, sum.RefusalSum)
	}
	return sums, err
}

// AllRefusals implements store.RequestCounts.
func (s *Store) AllRefusals(
	ctx context.Context, since time.Time, after store.RefusalPosition, limit int,
) ([]store.WorkflowRefusalSum, error) {
	query, args := s.refusalSumQuery(`minute >= ?`), []any{since.Truncate(time.Minute)}
	if after != (store.RefusalPosition{}) {
		query += ` WHERE (last_at, workflow_id, code) < (?, ?, ?)`
		args = append(args, after.LastAt, store.SanitizeText(after.WorkflowID),
			store.SanitizeText(after.Code))
	}
	return Collect(ctx, s.db, "all refusals", scanRefusalSum,
		query+` ORDER BY last_at DESC, workflow_id DESC, code DESC LIMIT ?`,
		append(args, max(limit, 0))...)
}

func (s *Store) refusalSumQuery(condition string) string {
	return `SELECT * FROM (` + fmt.Sprintf(s.dialect.RefusalSumsQuery, condition) + `) AS sums`
}

func scanRefusalSum(row Row) (sum store.WorkflowRefusalSum, err error) {
	err = row.Scan(&sum.WorkflowID, &sum.Code, &sum.Count, timeField{&sum.Last.At},
		&sum.Last.BodyBytes, &sum.Last.UserAgent)
	return sum, err
}

// These clauses add up the counts of each minute and kind, because every store that writes counts
// may have its own row for that minute and kind.
const (
	selectMinutes = `SELECT minute, kind, CAST(sum(n) AS bigint) FROM minutes `
	groupByMinute = `GROUP BY minute, kind ORDER BY minute, kind`
)

func scanMinute(row Row) (c store.MinuteCount, err error) {
	err = row.Scan(timeField{&c.Minute}, &c.Kind, &c.Count)
	return c, err
}

// MinuteCounts implements store.RequestCounts.
func (s *Store) MinuteCounts(ctx context.Context, since time.Time) ([]store.MinuteCount, error) {
	return Collect(ctx, s.db, "minutes", scanMinute, selectMinutes+`WHERE minute >= ? `+groupByMinute,
		since.Truncate(time.Minute))
}

// PruneCounts implements store.Pruner.
func (s *Store) PruneCounts(ctx context.Context, before time.Time, keep, limit int) (int, error) {
	before = store.CeilTime(before)
	return s.runPrune(ctx, "prune counts", PruningLock, func(tx Tx) (int64, error) {
		for _, query := range []string{
			`DELETE FROM minutes WHERE minute < ?`,
			`DELETE FROM duplicate_reports WHERE reported_at < ?`,
		} {
			if _, err := tx.Exec(ctx, query, before); err != nil {
				return 0, err
			}
		}
		var oldest time.Time // the start of the oldest minute that is kept
		if err := tx.Query(ctx, func(row Row) error { return row.Scan(timeField{&oldest}) },
			`SELECT minute FROM refusals ORDER BY minute DESC LIMIT 1 OFFSET ?`,
			max(keep, 1)-1); err != nil {
			return 0, err
		}
		if oldest.Before(before) {
			oldest = before
		}
		return tx.Exec(ctx, `DELETE FROM refusals WHERE (workflow_id, minute, code) IN (
			SELECT workflow_id, minute, code FROM refusals WHERE minute < ? ORDER BY minute
			LIMIT ?)`, oldest, max(limit, 0))
	})
}
