package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Backup implements store.Store. Rows are fetched some hundred at a time, and nothing is under way on the
// connection while write works: how long that takes is up to who reads the backup.
func (s *Store) Backup(ctx context.Context, write func(store.Part) error) error {
	var refused error // by write
	parts := store.NewParts(func(part store.Part) error {
		refused = write(part)
		return refused
	})
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = '2min'`); err != nil {
			return err
		}
		for _, read := range []func(context.Context, pgx.Tx, *store.Parts) error{backUpRecords, backUpCounts, backUpMessages} {
			if err := read(ctx, tx, parts); err != nil {
				return err
			}
		}
		return parts.Flush()
	})
	switch {
	case refused != nil:
		return refused
	case err != nil:
		return fmt.Errorf("postgres: backup: %w", withCancellation(ctx, err))
	}
	return nil
}

func backUpRecords(ctx context.Context, tx pgx.Tx, parts *store.Parts) error {
	return eachRow(ctx, tx, selectRecords+`ORDER BY accepted_at, id`, scan, parts.AddRecord)
}

func backUpCounts(ctx context.Context, tx pgx.Tx, parts *store.Parts) error {
	if err := eachRow(ctx, tx, `SELECT execution_id, duplicates, counted_at FROM duplicate_counts ORDER BY counted_at, execution_id`,
		func(row pgx.CollectableRow) (d store.DuplicateCount, err error) {
			err = row.Scan(&d.ExecutionID, &d.Count, &d.CountedAt)
			d.CountedAt = d.CountedAt.UTC()
			return d, err
		}, func(d store.DuplicateCount) error {
			return parts.Add(0, func(p *store.Part) { p.Duplicates = append(p.Duplicates, d) })
		}); err != nil {
		return err
	}
	if err := eachRow(ctx, tx, `SELECT report_id, reported_at FROM duplicate_reports ORDER BY reported_at`,
		func(row pgx.CollectableRow) (r store.AppliedReport, err error) {
			err = row.Scan(&r.ID, &r.At)
			r.At = r.At.UTC()
			return r, err
		}, func(r store.AppliedReport) error {
			return parts.Add(0, func(p *store.Part) { p.Reports = append(p.Reports, r) })
		}); err != nil {
		return err
	}
	if err := eachRow(ctx, tx, `SELECT token_id, last_used_at FROM token_uses ORDER BY token_id`,
		func(row pgx.CollectableRow) (u store.TokenUse, err error) {
			err = row.Scan(&u.TokenID, &u.At)
			u.At = u.At.UTC()
			return u, err
		}, func(u store.TokenUse) error {
			return parts.Add(0, func(p *store.Part) { p.TokenUses = append(p.TokenUses, u) })
		}); err != nil {
		return err
	}
	if err := eachRow(ctx, tx, `SELECT minute, kind, sum(n)::bigint FROM minutes GROUP BY minute, kind ORDER BY minute, kind`,
		func(row pgx.CollectableRow) (m store.MinuteCount, err error) {
			err = row.Scan(&m.Minute, &m.Kind, &m.Count)
			m.Minute = m.Minute.UTC()
			return m, err
		}, func(m store.MinuteCount) error {
			return parts.Add(0, func(p *store.Part) { p.Minutes = append(p.Minutes, m) })
		}); err != nil {
		return err
	}
	return eachRow(ctx, tx, `SELECT workflow_id, code, minute, n, last_at, body_bytes, user_agent FROM refusals ORDER BY minute`,
		func(row pgx.CollectableRow) (r store.Refusal, err error) {
			err = row.Scan(&r.WorkflowID, &r.Code, &r.Minute, &r.Count, &r.Last.At, &r.Last.BodyBytes, &r.Last.UserAgent)
			r.Minute, r.Last.At = r.Minute.UTC(), r.Last.At.UTC()
			return r, err
		}, func(r store.Refusal) error {
			return parts.Add(len(r.Last.UserAgent), func(p *store.Part) { p.Refusals = append(p.Refusals, r) })
		})
}

func backUpMessages(ctx context.Context, tx pgx.Tx, parts *store.Parts) error {
	if err := eachRow(ctx, tx, selectSenders+`ORDER BY workflow_id COLLATE "C", node_id COLLATE "C"`, scanSender, func(one store.SenderSeen) error {
		return parts.Add(len(one.RefusedReason), func(p *store.Part) { p.Senders = append(p.Senders, one) })
	}); err != nil {
		return err
	}
	if err := eachRow(ctx, tx, selectAudit+`ORDER BY at, id`, scanAudit, func(e store.AuditEntry) error {
		return parts.Add(len(e.Changes), func(p *store.Part) { p.Audit = append(p.Audit, e) })
	}); err != nil {
		return err
	}
	if err := eachRow(ctx, tx, `SELECT stream_sequence, subject, reason, at, dismissed_at FROM unreadable ORDER BY at, stream_sequence, subject`,
		func(row pgx.CollectableRow) (u store.KeptMessage, err error) {
			var dismissed *time.Time
			err = row.Scan(&u.StreamSequence, &u.Subject, &u.Reason, &u.At, &dismissed)
			if u.At = u.At.UTC(); dismissed != nil {
				u.DismissedAt = dismissed.UTC()
			}
			return u, err
		}, func(u store.KeptMessage) error {
			return parts.Add(len(u.Reason), func(p *store.Part) { p.Unreadable = append(p.Unreadable, u) })
		}); err != nil {
		return err
	}
	return eachRow(ctx, tx, `SELECT position, execution_id, queue, workflow_id, status, at, started_at, error, output FROM early_progress ORDER BY position`,
		scanEarly, func(e store.Early) error {
			e.At, e.StartedAt = e.At.UTC(), e.StartedAt.UTC()
			return parts.AddEarly(e)
		})
}

// eachRow hands on what a query finds, through a cursor.
func eachRow[T any](ctx context.Context, tx pgx.Tx, query string, scan pgx.RowToFunc[T], each func(T) error) error {
	const fetched = 500
	if _, err := tx.Exec(ctx, `DECLARE backup NO SCROLL CURSOR FOR `+query); err != nil {
		return err
	}
	for {
		// Described each time: the cursor of that name is of another query the next time.
		rows, err := tx.Query(ctx, fmt.Sprintf(`FETCH %d FROM backup`, fetched), pgx.QueryExecModeDescribeExec)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, scan)
		if err != nil {
			return err
		}
		for _, one := range found {
			if err := each(one); err != nil {
				return err
			}
		}
		if len(found) < fetched {
			_, err := tx.Exec(ctx, `CLOSE backup`)
			return err
		}
	}
}

const restoreUnreadable = `INSERT INTO unreadable (stream_sequence, subject, reason, at, dismissed_at)
	SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[]) ON CONFLICT DO NOTHING`

// Restore implements store.Store.
func (s *Store) Restore(ctx context.Context, part store.Part) error {
	part = part.Storable()
	return s.write(ctx, "restore", func(tx pgx.Tx) error {
		if _, err := insertNew(ctx, tx, part.Records); err != nil {
			return err
		}
		if err := s.addMinutes(ctx, tx, part.Minutes); err != nil {
			return err
		}
		for _, of := range []struct {
			rows      int
			statement string
			arrays    func() []any
		}{
			{len(part.Duplicates), addDuplicateCounts, func() []any {
				return []any{
					column(part.Duplicates, func(d store.DuplicateCount) string { return d.ExecutionID }),
					column(part.Duplicates, func(d store.DuplicateCount) int64 { return d.Count }),
					column(part.Duplicates, func(d store.DuplicateCount) time.Time { return d.CountedAt }),
				}
			}},
			{len(part.Reports), `INSERT INTO duplicate_reports (report_id, reported_at) SELECT * FROM unnest($1::text[], $2::timestamptz[]) ON CONFLICT DO NOTHING`, func() []any {
				return []any{
					column(part.Reports, func(r store.AppliedReport) string { return r.ID }),
					column(part.Reports, func(r store.AppliedReport) time.Time { return r.At }),
				}
			}},
			{len(part.TokenUses), upsertTokenUses, func() []any { return tokenUseArrays(part.TokenUses) }},
			{len(part.Refusals), upsertRefusals, func() []any { return refusalArrays(part.Refusals) }},
			{len(part.Audit), insertAudit, func() []any { return auditArrays(part.Audit) }},
			{len(part.Senders), upsertSenders, func() []any { return senderArrays(part.Senders) }},
			{len(part.Unreadable), restoreUnreadable, func() []any {
				return []any{
					column(part.Unreadable, func(u store.KeptMessage) int64 { return store.Sequence(u.StreamSequence) }),
					column(part.Unreadable, func(u store.KeptMessage) string { return u.Subject }),
					column(part.Unreadable, func(u store.KeptMessage) string { return u.Reason }),
					column(part.Unreadable, func(u store.KeptMessage) time.Time { return u.At }),
					column(part.Unreadable, func(u store.KeptMessage) *time.Time { return optional(u.DismissedAt) }),
				}
			}},
			{len(part.Early), insertEarly, func() []any { return earlyArrays(part.Early) }},
		} {
			if of.rows == 0 {
				continue
			}
			if _, err := tx.Exec(ctx, of.statement, of.arrays()...); err != nil {
				return err
			}
		}
		return nil
	})
}

// IsEmpty implements store.Store.
func (s *Store) IsEmpty(ctx context.Context) (bool, error) {
	found, err := read(ctx, s, "is empty", pgx.RowTo[bool],
		`SELECT NOT EXISTS (SELECT FROM executions) AND NOT EXISTS (SELECT FROM minutes WHERE kind = $1)`, store.KindAccepted)
	return err == nil && found[0], err
}
