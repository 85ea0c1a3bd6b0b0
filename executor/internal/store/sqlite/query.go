package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, id string) (store.Record, error) {
	records, err := s.records(ctx, "get", joined(store.Filter{}), `WHERE e.id = ?`, keyOf(id))
	if err != nil {
		return store.Record{}, err
	}
	if len(records) == 0 {
		return store.Record{}, store.ErrNotFound
	}
	return records[0], nil
}

// GetMany implements store.Store.
func (s *Store) GetMany(ctx context.Context, ids []string) ([]store.Record, error) {
	if len(ids) > store.MaxGetMany {
		return nil, fmt.Errorf("sqlite: get many: %d IDs, at most %d", len(ids), store.MaxGetMany)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return s.records(ctx, "get many", joined(store.Filter{}), `WHERE e.id IN (SELECT unhex(value) FROM json_each(?))`, keyList(ids))
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, filter store.Filter, after store.Position, limit int) ([]store.Record, error) {
	return s.list(ctx, "list", newestFirst, filter, after, limit)
}

// ListOldest implements store.Store.
func (s *Store) ListOldest(ctx context.Context, filter store.Filter, after store.Position, limit int) ([]store.Record, error) {
	return s.list(ctx, "list oldest", oldestFirst, filter, after, limit)
}

func (s *Store) list(ctx context.Context, what string, in order, filter store.Filter, after store.Position, limit int) ([]store.Record, error) {
	if limit <= 0 {
		return nil, nil
	}
	where, args, err := s.conditions(ctx, filter, in, after)
	if err != nil {
		return nil, err
	}
	// In the order of an index, and one more, which says whether the last ones are those of their time that belong to the page.
	records, err := s.records(ctx, what, joined(filter), where+in.byTime+` LIMIT ?`, append(slices.Clip(args), int64(limit)+1)...)
	if err != nil {
		return nil, err
	}
	if len(records) > limit {
		if records[limit].AcceptedAt.Equal(records[limit-1].AcceptedAt) {
			return s.records(ctx, what, joined(filter), where+in.by+` LIMIT ?`, append(args, limit)...)
		}
		records = records[:limit]
	}
	slices.SortStableFunc(records, func(a, b store.Record) int {
		if !a.AcceptedAt.Equal(b.AcceptedAt) {
			return 0 // they are in their order
		}
		return in.ids * bytes.Compare(keyOf(a.ID), keyOf(b.ID))
	})
	return records, nil
}

// CountByTime implements store.Store.
func (s *Store) CountByTime(ctx context.Context, filter store.Filter, step time.Duration) ([]store.Count, error) {
	where, args, err := s.conditions(ctx, filter, newestFirst, store.Position{})
	if err != nil {
		return nil, err
	}
	micros := step.Microseconds()
	var counts []store.Count
	err = s.read(ctx, "count by time", func(rows *sql.Rows) error {
		var at int64
		var c store.Count
		if err := rows.Scan(&at, &c.Records); err != nil {
			return err
		}
		c.At = fromMicros(at)
		counts = append(counts, c)
		return nil
	}, `SELECT e.accepted_at / ? * ? AS step, count(*) FROM `+joined(filter)+where+` GROUP BY step ORDER BY step`, append([]any{micros, micros}, args...)...)
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// TokensLastUsed implements store.Store.
func (s *Store) TokensLastUsed(ctx context.Context, tokenIDs []string) (map[string]time.Time, error) {
	used := make(map[string]time.Time)
	err := s.read(ctx, "tokens last used", func(rows *sql.Rows) error {
		var token string
		var at int64
		if err := rows.Scan(&token, &at); err != nil {
			return err
		}
		used[token] = fromMicros(at)
		return nil
	}, `SELECT token_id, last_used_at FROM token_uses WHERE token_id IN (SELECT value FROM json_each(?))`, list(store.Texts(tokenIDs)))
	if err != nil {
		return nil, err
	}
	return used, nil
}

// ListUnreadable implements store.Store.
func (s *Store) ListUnreadable(ctx context.Context, filter store.UnreadableFilter, after store.UnreadablePosition, limit int) ([]store.Unreadable, error) {
	if limit <= 0 {
		return nil, nil
	}
	query, args := `SELECT stream_sequence, subject, reason, at FROM unreadable WHERE dismissed_at IS NULL`, []any{}
	if after != (store.UnreadablePosition{}) {
		query += ` AND (at, stream_sequence) < (?, ?)`
		args = append(args, store.Time(after.At).UnixMicro(), store.Sequence(after.StreamSequence))
	}
	if filter.WorkflowID != "" {
		query, args = query+` AND subject LIKE ? ESCAPE '\'`, append(args, store.SubjectPattern(filter.WorkflowID))
	}
	if filter.Reason != "" {
		query, args = query+` AND instr(reason, ?) > 0`, append(args, store.Text(filter.Reason))
	}
	if !filter.Since.IsZero() {
		query, args = query+` AND at >= ?`, append(args, store.Bound(filter.Since).UnixMicro())
	}
	if !filter.Until.IsZero() {
		query, args = query+` AND at < ?`, append(args, store.Bound(filter.Until).UnixMicro())
	}
	return s.unreadable(ctx, "list unreadable", query+` ORDER BY at DESC, stream_sequence DESC LIMIT ?`, append(args, limit)...)
}

// GetUnreadable implements store.Store.
func (s *Store) GetUnreadable(ctx context.Context, key store.MessageKey) (store.Unreadable, error) {
	found, err := s.unreadable(ctx, "get unreadable",
		`SELECT stream_sequence, subject, reason, at FROM unreadable WHERE stream_sequence = ? AND (subject LIKE 'executions.progress.%') = ?`, store.Sequence(key.StreamSequence), key.Progress)
	if err != nil {
		return store.Unreadable{}, err
	}
	if len(found) == 0 {
		return store.Unreadable{}, store.ErrNotFound
	}
	return found[0], nil
}

func (s *Store) unreadable(ctx context.Context, what, query string, args ...any) ([]store.Unreadable, error) {
	var found []store.Unreadable
	err := s.read(ctx, what, func(rows *sql.Rows) error {
		var u store.Unreadable
		var at int64
		if err := rows.Scan(&u.StreamSequence, &u.Subject, &u.Reason, &at); err != nil {
			return err
		}
		u.At = fromMicros(at)
		found = append(found, u)
		return nil
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// records reads from what joined names.
func (s *Store) records(ctx context.Context, what, from, condition string, args ...any) ([]store.Record, error) {
	var found []store.Record
	var origins []int64
	err := s.read(ctx, what, func(rows *sql.Rows) error {
		r, origin, err := scan(rows)
		if err != nil {
			return err
		}
		found, origins = append(found, r), append(origins, origin)
		return nil
	}, selectRecords+from+condition, args...)
	if err != nil {
		return nil, err
	}
	s.underway.RLock()
	defer s.underway.RUnlock()
	if err := s.withOrigins(ctx, s.reader, found, origins); err != nil {
		return nil, fmt.Errorf("sqlite: %s: %w", what, err)
	}
	return found, nil
}

// read runs one query in the read pool, with the error labelled.
func (s *Store) read(ctx context.Context, what string, row func(*sql.Rows) error, query string, args ...any) error {
	s.underway.RLock()
	defer s.underway.RUnlock()
	if err := eachRow(ctx, s.reader, row, query, args); err != nil {
		return fmt.Errorf("sqlite: %s: %w", what, err)
	}
	return nil
}

func eachRow(ctx context.Context, db *sql.DB, row func(*sql.Rows) error, query string, args []any) error {
	rows, err := db.QueryContext(ctx, query, args...)
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
