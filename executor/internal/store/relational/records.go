package relational

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Get implements store.Records.
func (s *Store) Get(ctx context.Context, id string) (store.Record, error) {
	records, err := s.queryRecords(ctx, "get", `WHERE e.id = ?`, ExecutionID(id))
	if err != nil {
		return store.Record{}, err
	}
	if len(records) == 0 {
		return store.Record{}, store.ErrNotFound
	}
	return records[0], nil
}

// GetMany implements store.Records.
func (s *Store) GetMany(ctx context.Context, ids []string) ([]store.Record, error) {
	if len(ids) > store.MaxGetMany {
		return nil,
			fmt.Errorf("%s: get many: %d IDs, at most %d", s.dialect.Name, len(ids),
				store.MaxGetMany)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return s.queryRecords(ctx, "get many", `WHERE e.id = ANY (?::bytea[])`, ExecutionIDs(ids))
}

// List implements store.Records.
func (s *Store) List(
	ctx context.Context, filter store.RecordFilter, after store.RecordPosition, limit int,
) ([]store.Record, error) {
	return s.list(ctx, "list", NewestFirst, filter, after, limit)
}

// ListOldest implements store.Records.
func (s *Store) ListOldest(
	ctx context.Context, filter store.RecordFilter, after store.RecordPosition, limit int,
) ([]store.Record, error) {
	return s.list(ctx, "list oldest", oldestFirst, filter, after, limit)
}

func (s *Store) list(
	ctx context.Context, what string, in SortOrder, filter store.RecordFilter,
	after store.RecordPosition,
	limit int,
) ([]store.Record, error) {
	if limit <= 0 {
		return nil, nil
	}
	where, err := s.Conditions(ctx, what, filter, in, after)
	if err != nil {
		return nil, err
	}
	// Read one record more than requested, in the order of a time index. If the additional record
	// has the same time as the record before it, the page ends within a group of records with equal
	// times, and a second query sorts these by ID as well.
	records, err := s.queryRecords(ctx, what, where.String()+in.OrderByTime+` LIMIT ?`,
		append(slices.Clip(where.Args), int64(limit)+1)...)
	if err != nil {
		return nil, err
	}
	if len(records) > limit {
		if records[limit].AcceptedAt.Equal(records[limit-1].AcceptedAt) {
			return s.queryRecords(ctx, what, where.String()+in.OrderByTimeAndID+` LIMIT ?`,
				append(where.Args, limit)...)
		}
		records = records[:limit]
	}
	slices.SortStableFunc(records, func(a, b store.Record) int {
		if !a.AcceptedAt.Equal(b.AcceptedAt) {
			return 0 // already in order
		}
		return in.idSortSign * bytes.Compare(store.EncodeID(a.ID), store.EncodeID(b.ID))
	})
	return records, nil
}

// CountByTime implements store.Records.
func (s *Store) CountByTime(
	ctx context.Context, filter store.RecordFilter, step time.Duration,
) ([]store.IntervalCount, error) {
	const what = "count by time"
	where, err := s.Conditions(ctx, what, filter, NewestFirst, store.RecordPosition{})
	if err != nil {
		return nil, err
	}
	return Collect(ctx, s.db, what, func(row Row) (c store.IntervalCount, err error) {
		err = row.Scan(timeField{&c.At}, &c.Records)
		return c, err
	},
		`SELECT `+fmt.Sprintf(s.dialect.TruncatedTimeExpr, step.Microseconds())+
			` AS step, count(*) FROM executions e `+where.String()+` GROUP BY step ORDER BY step`,
		where.Args...)
}

// queryRecords returns the records that SelectRecords, followed by condition, selects. condition
// holds the WHERE, ORDER BY and LIMIT clauses.
func (s *Store) queryRecords(
	ctx context.Context, what, condition string, args ...any,
) ([]store.Record, error) {
	var found []store.Record
	var origins []int64
	read := func(ctx context.Context, row func(Row) error, query string, args ...any) error {
		return s.db.Read(ctx, what, row, query, args...)
	}
	if err := read(ctx, func(row Row) error {
		r, origin, err := scanRecord(row)
		found, origins = append(found, r), append(origins, origin)
		return err
	}, SelectRecords+condition, args...); err != nil {
		return nil, err
	}
	if err := s.Origins.fillOrigins(ctx, read, found, origins); err != nil {
		return nil, err
	}
	return found, nil
}

// backUpRecords adds all records to a backup, oldest first.
func (s *Store) backUpRecords(ctx context.Context, from Snapshot, parts *store.BackupWriter) error {
	var records []store.Record
	var origins []int64
	return from.QueryInPages(ctx, func(row Row) error {
		r, origin, err := scanRecord(row)
		records, origins = append(records, r), append(origins, origin)
		return err
	}, func() error {
		if err := s.Origins.fillOrigins(ctx, from.Query, records, origins); err != nil {
			return err
		}
		for _, r := range records {
			if err := parts.AddRecord(r); err != nil {
				return err
			}
		}
		records, origins = records[:0], origins[:0]
		return nil
	}, SelectRecords+`ORDER BY e.accepted_at, e.id`)
}
