package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	upsertMinutes = `INSERT INTO minutes AS m (minute, kind, writer, n)
		SELECT minute, kind, $4::smallint, n FROM unnest($1::timestamptz[], $2::text[], $3::bigint[]) AS r (minute, kind, n)
		ON CONFLICT (minute, kind, writer) DO UPDATE SET n = m.n + excluded.n`

	// In the order of keys, as StorableRefusals has sorted them. The right-hand sides see the row as it was.
	upsertRefusals = `INSERT INTO refusals AS r (workflow_id, minute, code, n, last_at, body_bytes, user_agent)
		SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::bigint[], $5::timestamptz[], $6::bigint[], $7::text[])
		ON CONFLICT (workflow_id, minute, code) DO UPDATE SET n = r.n + excluded.n, last_at = greatest(r.last_at, excluded.last_at),
			body_bytes = CASE WHEN excluded.last_at >= r.last_at THEN excluded.body_bytes ELSE r.body_bytes END,
			user_agent = CASE WHEN excluded.last_at >= r.last_at THEN excluded.user_agent ELSE r.user_agent END`
)

// addMinutes adds to this executor's own rows.
func (s *Store) addMinutes(ctx context.Context, tx pgx.Tx, counts []store.MinuteCount) error {
	if len(counts) == 0 {
		return nil
	}
	minutes, kinds, ns := make([]time.Time, len(counts)), make([]string, len(counts)), make([]int64, len(counts))
	for i, c := range counts {
		minutes[i], kinds[i], ns[i] = c.Minute, c.Kind, c.Count
	}
	_, err := tx.Exec(ctx, upsertMinutes, minutes, kinds, ns, s.writer)
	return err
}

// AddRefusals implements store.Store.
func (s *Store) AddRefusals(ctx context.Context, reportID string, at time.Time, refusals []store.Refusal) error {
	refusals = store.StorableRefusals(refusals)
	return s.write(ctx, "add refusals", func(tx pgx.Tx) error {
		if fresh, err := isNewReport(ctx, tx, reportID, store.Time(at)); err != nil || !fresh {
			return err
		}
		if _, err := tx.Exec(ctx, upsertRefusals, refusalArrays(refusals)...); err != nil {
			return err
		}
		return s.addMinutes(ctx, tx, store.RefusedMinutes(refusals))
	})
}

func refusalArrays(refusals []store.Refusal) []any {
	n := len(refusals)
	workflows, minutes, codes, counts := make([]string, n), make([]time.Time, n), make([]string, n), make([]int64, n)
	lasts, sizes, agents := make([]time.Time, n), make([]int64, n), make([]string, n)
	for i, r := range refusals {
		workflows[i], minutes[i], codes[i], counts[i] = r.WorkflowID, r.Minute, r.Code, r.Count
		lasts[i], sizes[i], agents[i] = r.Last.At, r.Last.BodyBytes, r.Last.UserAgent
	}
	return []any{workflows, minutes, codes, counts, lasts, sizes, agents}
}

// Refusals implements store.Store.
func (s *Store) Refusals(ctx context.Context, workflowID string, since time.Time) ([]store.RefusalSum, error) {
	sums, err := read(ctx, s, "refusals", func(row pgx.CollectableRow) (sum store.RefusalSum, err error) {
		err = row.Scan(&sum.Code, &sum.Count, &sum.Last.At, &sum.Last.BodyBytes, &sum.Last.UserAgent)
		sum.Last.At = sum.Last.At.UTC()
		return sum, err
	}, `SELECT DISTINCT ON (code) code, (sum(n) OVER (PARTITION BY code))::bigint, last_at, body_bytes, user_agent
		FROM refusals WHERE workflow_id = $1 AND minute >= $2 ORDER BY code, last_at DESC`, store.Text(workflowID), since.Truncate(time.Minute))
	if err != nil {
		return nil, err
	}
	store.SortSums(sums)
	return sums, nil
}

// AllRefusals implements store.Store.
func (s *Store) AllRefusals(ctx context.Context, since time.Time, after store.RefusalPosition, limit int) ([]store.WorkflowRefusalSum, error) {
	query := `SELECT * FROM (
		SELECT DISTINCT ON (workflow_id, code) workflow_id, code, (sum(n) OVER (PARTITION BY workflow_id, code))::bigint, last_at, body_bytes, user_agent
		FROM refusals WHERE minute >= $1 ORDER BY workflow_id, code, last_at DESC) AS sums`
	args := []any{since.Truncate(time.Minute), max(limit, 0)}
	if after != (store.RefusalPosition{}) {
		query += ` WHERE (last_at, workflow_id, code) < ($3, $4, $5)`
		args = append(args, after.LastAt, store.Text(after.WorkflowID), store.Text(after.Code))
	}
	return read(ctx, s, "all refusals", func(row pgx.CollectableRow) (sum store.WorkflowRefusalSum, err error) {
		err = row.Scan(&sum.WorkflowID, &sum.Code, &sum.Count, &sum.Last.At, &sum.Last.BodyBytes, &sum.Last.UserAgent)
		sum.Last.At = sum.Last.At.UTC()
		return sum, err
	}, query+` ORDER BY last_at DESC, workflow_id DESC, code DESC LIMIT $2`, args...)
}

// Minutes implements store.Store.
func (s *Store) Minutes(ctx context.Context, since time.Time) ([]store.MinuteCount, error) {
	return read(ctx, s, "minutes", func(row pgx.CollectableRow) (c store.MinuteCount, err error) {
		err = row.Scan(&c.Minute, &c.Kind, &c.Count)
		c.Minute = c.Minute.UTC()
		return c, err
	}, `SELECT minute, kind, sum(n)::bigint FROM minutes WHERE minute >= $1 GROUP BY minute, kind ORDER BY minute, kind`, since.Truncate(time.Minute))
}

// PruneCounts implements store.Store.
func (s *Store) PruneCounts(ctx context.Context, before time.Time, keep, limit int) (int, error) {
	before = store.Bound(before)
	pruned := 0
	err := s.write(ctx, "prune counts", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(pruneLock)); err != nil {
			return err
		}
		for _, query := range []string{`DELETE FROM minutes WHERE minute < $1`, `DELETE FROM duplicate_reports WHERE reported_at < $1`} {
			if _, err := tx.Exec(ctx, query, before); err != nil {
				return err
			}
		}
		done, err := tx.Exec(ctx, `DELETE FROM refusals WHERE ctid = ANY (ARRAY (
			SELECT ctid FROM refusals
			WHERE minute < greatest($1, (SELECT minute FROM refusals ORDER BY minute DESC LIMIT 1 OFFSET $2))
			ORDER BY minute LIMIT $3))`, before, max(keep, 1)-1, max(limit, 0))
		pruned = int(done.RowsAffected())
		return err
	})
	if err != nil {
		return 0, err
	}
	return pruned, nil
}
