package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	upsertMinute = `INSERT INTO minutes (minute, kind, n) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n`

	// The right-hand sides see the row as it was.
	upsertRefusal = `INSERT INTO refusals (workflow_id, minute, code, n, last_at, body_bytes, user_agent) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET n = n + excluded.n, last_at = max(last_at, excluded.last_at),
			body_bytes = CASE WHEN excluded.last_at >= last_at THEN excluded.body_bytes ELSE body_bytes END,
			user_agent = CASE WHEN excluded.last_at >= last_at THEN excluded.user_agent ELSE user_agent END`
)

func addMinutes(ctx context.Context, tx *sql.Tx, counts []store.MinuteCount) error {
	return each(ctx, tx, upsertMinute, counts, func(c store.MinuteCount) []any { return []any{c.Minute.UnixMicro(), c.Kind, c.Count} })
}

// AddRefusals implements store.Store.
func (s *Store) AddRefusals(ctx context.Context, reportID string, at time.Time, refusals []store.Refusal) error {
	refusals = store.StorableRefusals(refusals)
	return s.write(ctx, "add refusals", func(tx *sql.Tx) error {
		if fresh, err := isNewReport(ctx, tx, reportID, store.Time(at).UnixMicro()); err != nil || !fresh {
			return err
		}
		if err := addMinutes(ctx, tx, store.RefusedMinutes(refusals)); err != nil {
			return err
		}
		return each(ctx, tx, upsertRefusal, refusals, refusalValues)
	})
}

func refusalValues(r store.Refusal) []any {
	return []any{r.WorkflowID, r.Minute.UnixMicro(), r.Code, r.Count, r.Last.At.UnixMicro(), r.Last.BodyBytes, r.Last.UserAgent}
}

// Refusals implements store.Store.
func (s *Store) Refusals(ctx context.Context, workflowID string, since time.Time) ([]store.RefusalSum, error) {
	var sums []store.RefusalSum
	err := s.read(ctx, "refusals", func(rows *sql.Rows) error {
		var sum store.RefusalSum
		var at int64
		if err := rows.Scan(&sum.Code, &sum.Count, &at, &sum.Last.BodyBytes, &sum.Last.UserAgent); err != nil {
			return err
		}
		sum.Last.At = fromMicros(at)
		sums = append(sums, sum)
		return nil
		// With max(), SQLite takes the other columns from the row that has it.
	}, `SELECT code, sum(n), max(last_at), body_bytes, user_agent FROM refusals WHERE workflow_id = ? AND minute >= ? GROUP BY code`,
		store.Text(workflowID), since.Truncate(time.Minute).UnixMicro())
	if err != nil {
		return nil, err
	}
	store.SortSums(sums)
	return sums, nil
}

// AllRefusals implements store.Store.
func (s *Store) AllRefusals(ctx context.Context, since time.Time, after store.RefusalPosition, limit int) ([]store.WorkflowRefusalSum, error) {
	query := `SELECT * FROM (SELECT workflow_id, code, sum(n), max(last_at) AS last, body_bytes, user_agent
		FROM refusals WHERE minute >= ? GROUP BY workflow_id, code)`
	args := []any{since.Truncate(time.Minute).UnixMicro()}
	if after != (store.RefusalPosition{}) {
		query += ` WHERE (last, workflow_id, code) < (?, ?, ?)`
		args = append(args, after.LastAt.UnixMicro(), store.Text(after.WorkflowID), store.Text(after.Code))
	}
	var sums []store.WorkflowRefusalSum
	err := s.read(ctx, "all refusals", func(rows *sql.Rows) error {
		var sum store.WorkflowRefusalSum
		var at int64
		if err := rows.Scan(&sum.WorkflowID, &sum.Code, &sum.Count, &at, &sum.Last.BodyBytes, &sum.Last.UserAgent); err != nil {
			return err
		}
		sum.Last.At = fromMicros(at)
		sums = append(sums, sum)
		return nil
	}, query+` ORDER BY last DESC, workflow_id DESC, code DESC LIMIT ?`, append(args, max(limit, 0))...)
	if err != nil {
		return nil, err
	}
	return sums, nil
}

// Minutes implements store.Store.
func (s *Store) Minutes(ctx context.Context, since time.Time) ([]store.MinuteCount, error) {
	var counts []store.MinuteCount
	err := s.read(ctx, "minutes", func(rows *sql.Rows) error {
		var c store.MinuteCount
		var minute int64
		if err := rows.Scan(&minute, &c.Kind, &c.Count); err != nil {
			return err
		}
		c.Minute = fromMicros(minute)
		counts = append(counts, c)
		return nil
	}, `SELECT minute, kind, n FROM minutes WHERE minute >= ? ORDER BY minute, kind`, since.Truncate(time.Minute).UnixMicro())
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// PruneCounts implements store.Store.
func (s *Store) PruneCounts(ctx context.Context, before time.Time, keep, limit int) (int, error) {
	bound := store.Bound(before).UnixMicro()
	var pruned int64
	err := s.write(ctx, "prune counts", func(tx *sql.Tx) error {
		for _, query := range []string{`DELETE FROM minutes WHERE minute < ?`, `DELETE FROM duplicate_reports WHERE reported_at < ?`} {
			if _, err := tx.ExecContext(ctx, query, bound); err != nil {
				return err
			}
		}
		result, err := tx.ExecContext(ctx, `DELETE FROM refusals WHERE (workflow_id, minute, code) IN (
			SELECT workflow_id, minute, code FROM refusals
			WHERE minute < max(?, coalesce((SELECT minute FROM refusals ORDER BY minute DESC LIMIT 1 OFFSET ?), 0))
			ORDER BY minute LIMIT ?)`, bound, max(keep, 1)-1, max(limit, 0))
		if err != nil {
			return err
		}
		pruned, err = result.RowsAffected()
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(pruned), nil
}
