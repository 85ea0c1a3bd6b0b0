package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, id string) (store.Record, error) {
	records, err := s.records(ctx, "get", `WHERE e.id = ?`, store.IDKey(id))
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
	return s.records(ctx, "get many", `WHERE e.id IN (SELECT unhex(value) FROM json_each(?))`, keyList(ids))
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
	where, err := s.conditions(ctx, what, filter, in, after)
	if err != nil {
		return nil, err
	}
	// In the order of an index, and one more, which says whether the last ones are those of their time that belong to the page.
	records, err := s.records(ctx, what, where.String()+in.byTime+` LIMIT ?`, append(slices.Clip(where.Args), int64(limit)+1)...)
	if err != nil {
		return nil, err
	}
	if len(records) > limit {
		if records[limit].AcceptedAt.Equal(records[limit-1].AcceptedAt) {
			return s.records(ctx, what, where.String()+in.by+` LIMIT ?`, append(where.Args, limit)...)
		}
		records = records[:limit]
	}
	slices.SortStableFunc(records, func(a, b store.Record) int {
		if !a.AcceptedAt.Equal(b.AcceptedAt) {
			return 0 // they are in their order
		}
		return in.ids * bytes.Compare(store.IDKey(a.ID), store.IDKey(b.ID))
	})
	return records, nil
}

// CountByTime implements store.Store.
func (s *Store) CountByTime(ctx context.Context, filter store.Filter, step time.Duration) ([]store.Count, error) {
	const what = "count by time"
	where, err := s.conditions(ctx, what, filter, newestFirst, store.Position{})
	if err != nil {
		return nil, err
	}
	micros := step.Microseconds()
	return relational.Collect(ctx, s, what, func(row relational.Row) (c store.Count, err error) {
		var at int64
		err = row.Scan(&at, &c.Records)
		c.At = fromMicros(at)
		return c, err
	}, `SELECT e.accepted_at / ? * ? AS step, count(*) FROM executions e `+where.String()+` GROUP BY step ORDER BY step`, append([]any{micros, micros}, where.Args...)...)
}

// records reads records that meet a condition.
func (s *Store) records(ctx context.Context, what, condition string, args ...any) ([]store.Record, error) {
	var found []store.Record
	var origins []int64
	err := s.reading(ctx, what, func() error {
		if err := eachRow(ctx, s.reader, func(row relational.Row) error {
			r, origin, err := scan(row)
			found, origins = append(found, r), append(origins, origin)
			return err
		}, selectRecords+condition, stored(args)...); err != nil {
			return err
		}
		return s.withOrigins(ctx, s.reader, found, origins)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// read runs one query in the read pool.
func (s *Store) read(ctx context.Context, what string, row func(relational.Row) error, query string, args ...any) error {
	return s.reading(ctx, what, func() error { return eachRow(ctx, s.reader, row, query, stored(args)...) })
}

// reading is what reads in the read pool.
func (s *Store) reading(ctx context.Context, what string, do func() error) error {
	s.underway.RLock()
	defer s.underway.RUnlock()
	began := time.Now()
	return s.Ended(ctx, what, began, do())
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// eachRow hands on what a query finds.
func eachRow(ctx context.Context, db querier, row func(relational.Row) error, query string, args ...any) error {
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
