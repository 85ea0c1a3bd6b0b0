package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Backup implements store.Store. A transaction that reads sees the database as it was at its first query,
// and disturbs nobody: who writes meanwhile writes to the WAL.
func (s *Store) Backup(ctx context.Context, write func(store.Part) error) error {
	s.underway.RLock()
	defer s.underway.RUnlock()
	tx, err := s.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("sqlite: backup: %w", err)
	}
	defer tx.Rollback()
	var refused error // by write
	parts := store.NewParts(func(part store.Part) error {
		refused = write(part)
		return refused
	})
	for _, read := range []func(context.Context, *sql.Tx, *store.Parts) error{s.backUpRecords, backUpCounts, backUpMessages} {
		if err = read(ctx, tx, parts); err != nil {
			break
		}
	}
	if err == nil {
		err = parts.Flush()
	}
	switch {
	case refused != nil:
		return refused
	case err != nil:
		return fmt.Errorf("sqlite: backup: %w", err)
	}
	return nil
}

func (s *Store) backUpRecords(ctx context.Context, tx *sql.Tx, parts *store.Parts) error {
	const atOnce = 200
	var records []store.Record
	var origins []int64
	flush := func() error {
		if err := s.withOrigins(ctx, tx, records, origins); err != nil {
			return err
		}
		for _, r := range records {
			if err := parts.AddRecord(r); err != nil {
				return err
			}
		}
		records, origins = records[:0], origins[:0]
		return nil
	}
	if err := rowsOf(ctx, tx, selectRecords+joined(store.Filter{})+`ORDER BY e.accepted_at, e.id`, func(rows *sql.Rows) error {
		r, origin, err := scan(rows)
		if err != nil {
			return err
		}
		if records, origins = append(records, r), append(origins, origin); len(records) < atOnce {
			return nil
		}
		return flush()
	}); err != nil {
		return err
	}
	return flush()
}

func backUpCounts(ctx context.Context, tx *sql.Tx, parts *store.Parts) error {
	var text, kind, agent string
	var id []byte
	var n, bytes, at, last int64
	for _, of := range []struct {
		query string
		into  []any
		add   func(*store.Part)
	}{
		{`SELECT id, duplicates, counted_at FROM duplicate_counts ORDER BY counted_at, id`, []any{&id, &n, &at}, func(p *store.Part) {
			p.Duplicates = append(p.Duplicates, store.DuplicateCount{ExecutionID: idOf(id), Count: n, CountedAt: fromMicros(at)})
		}},
		{`SELECT report_id, reported_at FROM duplicate_reports ORDER BY reported_at`, []any{&text, &at}, func(p *store.Part) {
			p.Reports = append(p.Reports, store.AppliedReport{ID: text, At: fromMicros(at)})
		}},
		{`SELECT token_id, last_used_at FROM token_uses ORDER BY token_id`, []any{&text, &at}, func(p *store.Part) {
			p.TokenUses = append(p.TokenUses, store.TokenUse{TokenID: text, At: fromMicros(at)})
		}},
		{`SELECT minute, kind, n FROM minutes ORDER BY minute, kind`, []any{&at, &kind, &n}, func(p *store.Part) {
			p.Minutes = append(p.Minutes, store.MinuteCount{Minute: fromMicros(at), Kind: kind, Count: n})
		}},
		{`SELECT workflow_id, code, minute, n, last_at, body_bytes, user_agent FROM refusals ORDER BY minute`, []any{&text, &kind, &at, &n, &last, &bytes, &agent}, func(p *store.Part) {
			p.Refusals = append(p.Refusals, store.Refusal{
				WorkflowID: text, Code: kind, Minute: fromMicros(at), Count: n,
				Last: store.RefusedRequest{At: fromMicros(last), BodyBytes: bytes, UserAgent: agent},
			})
		}},
	} {
		if err := rowsOf(ctx, tx, of.query, func(rows *sql.Rows) error {
			if err := rows.Scan(of.into...); err != nil {
				return err
			}
			return parts.Add(len(text), of.add)
		}); err != nil {
			return err
		}
	}
	return nil
}

func backUpMessages(ctx context.Context, tx *sql.Tx, parts *store.Parts) error {
	if err := rowsOf(ctx, tx, selectSenders+`ORDER BY workflow_id, node_id`, func(rows *sql.Rows) error {
		one, err := scanSender(rows)
		if err != nil {
			return err
		}
		return parts.Add(len(one.RefusedReason), func(p *store.Part) { p.Senders = append(p.Senders, one) })
	}); err != nil {
		return err
	}
	if err := rowsOf(ctx, tx, selectAudit+`ORDER BY at, id`, func(rows *sql.Rows) error {
		e, err := scanAudit(rows)
		if err != nil {
			return err
		}
		return parts.Add(len(e.Changes), func(p *store.Part) { p.Audit = append(p.Audit, e) })
	}); err != nil {
		return err
	}
	err := rowsOf(ctx, tx, `SELECT stream_sequence, subject, reason, at, dismissed_at FROM unreadable ORDER BY at, stream_sequence, subject`, func(rows *sql.Rows) error {
		var u store.KeptMessage
		var at int64
		var dismissed sql.NullInt64
		if err := rows.Scan(&u.StreamSequence, &u.Subject, &u.Reason, &at, &dismissed); err != nil {
			return err
		}
		u.At = fromMicros(at)
		if dismissed.Valid {
			u.DismissedAt = fromMicros(dismissed.Int64)
		}
		return parts.Add(len(u.Reason), func(p *store.Part) { p.Unreadable = append(p.Unreadable, u) })
	})
	if err != nil {
		return err
	}
	return rowsOf(ctx, tx, `SELECT position, execution_id, queue, workflow_id, status, at, started_at, error, output FROM early_progress ORDER BY position`, func(rows *sql.Rows) error {
		var e store.Early
		var at int64
		var started sql.NullInt64
		if err := rows.Scan(&e.Position, &e.ID, &e.Queue, &e.WorkflowID, &e.Status, &at, &started, &e.Error, &e.Output); err != nil {
			return err
		}
		e.At = fromMicros(at)
		if started.Valid {
			e.StartedAt = fromMicros(started.Int64)
		}
		return parts.AddEarly(e)
	})
}

func rowsOf(ctx context.Context, tx *sql.Tx, query string, row func(*sql.Rows) error) error {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

const restoreUnreadable = `INSERT INTO unreadable (stream_sequence, subject, reason, at, dismissed_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

// Restore implements store.Store.
func (s *Store) Restore(ctx context.Context, part store.Part) error {
	part = part.Storable()
	var known *lookup
	err := s.write(ctx, "restore", func(tx *sql.Tx) error {
		known = s.origins.begin()
		if _, err := insertRecords(ctx, tx, known, part.Records); err != nil {
			return err
		}
		if err := addMinutes(ctx, tx, part.Minutes); err != nil {
			return err
		}
		now := time.Now().UnixMicro()
		for _, err := range []error{
			each(ctx, tx, addDuplicateCount, part.Duplicates, func(d store.DuplicateCount) []any {
				return []any{keyOf(d.ExecutionID), d.Count, d.CountedAt.UnixMicro()}
			}),
			each(ctx, tx, insertReport, part.Reports, func(r store.AppliedReport) []any { return []any{r.ID, r.At.UnixMicro()} }),
			each(ctx, tx, upsertTokenUse, part.TokenUses, func(u store.TokenUse) []any { return []any{u.TokenID, u.At.UnixMicro()} }),
			each(ctx, tx, upsertRefusal, part.Refusals, refusalValues),
			each(ctx, tx, insertAudit, part.Audit, auditValues),
			each(ctx, tx, upsertSender, part.Senders, senderValues),
			each(ctx, tx, restoreUnreadable, part.Unreadable, func(u store.KeptMessage) []any {
				return []any{store.Sequence(u.StreamSequence), u.Subject, u.Reason, u.At.UnixMicro(), micros(u.DismissedAt)}
			}),
			each(ctx, tx, insertEarly, part.Early, func(e store.Early) []any {
				return []any{e.Position, e.ID, e.Queue, e.WorkflowID, string(e.Status), e.At.UnixMicro(), micros(e.StartedAt), e.Error, e.Output, now}
			}),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		known.commit()
	}
	return err
}

// IsEmpty implements store.Store.
func (s *Store) IsEmpty(ctx context.Context) (empty bool, err error) {
	err = s.read(ctx, "is empty", func(rows *sql.Rows) error { return rows.Scan(&empty) },
		`SELECT NOT EXISTS (SELECT 1 FROM executions) AND NOT EXISTS (SELECT 1 FROM minutes WHERE kind = ?)`, store.KindAccepted)
	return empty, err
}
