package relational

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// handledRangeTable is the table of the ranges of messages that have been recorded or put aside.
// Batches can add rows without waiting for other executors, because the table has no index and no
// two executors change the same row.
var handledRangeTable = table[store.HandledRange]{
	name:    "decided",
	columns: "stream, created, first_sequence, last_sequence",
	fields: func(r *store.HandledRange) []any {
		return []any{
			&r.Stream, &r.StreamCreated, &r.First,
			&r.Last,
		}
	},
}

// minRowsSavedByMerge is the minimum number of rows that merging a stream's ranges must save. If it
// saves fewer, HandledRanges does not merge the ranges in the database. The total number of rows
// does not matter, because ranges that are not adjacent cannot be merged.
const minRowsSavedByMerge = 64

// HandledRanges implements store.HandledMessages.
func (s *Store) HandledRanges(
	ctx context.Context,
	stream, created string,
) ([]store.HandledRange, error) {
	rows, err := Collect(ctx, s.db, "decided", handledRangeTable.scan,
		handledRangeTable.selectClause()+`WHERE stream = ?`, stream)
	if err != nil {
		return nil, err
	}
	ranges, foreign := rangesOfStream(rows, created)
	if len(rows)-len(ranges) < minRowsSavedByMerge && !foreign {
		return ranges, nil
	}
	return s.replaceHandledRanges(ctx, stream, created,
		func(ranges []store.HandledRange) []store.HandledRange {
			return ranges
		})
}

// ForgetHandled implements store.HandledMessages.
func (s *Store) ForgetHandled(ctx context.Context, stream, created string, from uint64) error {
	_, err := s.replaceHandledRanges(ctx, stream, created,
		func(ranges []store.HandledRange) []store.HandledRange {
			return store.RangesBefore(ranges, from)
		})
	return err
}

// replaceHandledRanges calls keep with the merged ranges of a stream, replaces the stored ranges
// with keep's result, and returns that result. It does not change rows that another transaction
// adds concurrently.
func (s *Store) replaceHandledRanges(
	ctx context.Context,
	stream, created string,
	keep func([]store.HandledRange) []store.HandledRange,
) ([]store.HandledRange, error) {
	return write(ctx, s, "merge decided", func(tx Tx) ([]store.HandledRange, error) {
		if err := tx.Lock(ctx, HandledRangesLock, true); err != nil {
			return nil, err
		}
		var rows []store.HandledRange
		if err := tx.Query(ctx, func(row Row) error {
			r, err := handledRangeTable.scan(row)
			rows = append(rows, r)
			return err
		}, `DELETE FROM decided WHERE stream = ? RETURNING `+handledRangeTable.columns, stream); err != nil {
			return nil, err
		}
		ranges, _ := rangesOfStream(rows, created)
		ranges = keep(ranges)
		return ranges, handledRangeTable.insert(ctx, tx, ranges)
	})
}

// rangesOfStream returns the merged ranges of the stream that was created at the given time.
// foreign reports whether rows also contains ranges of an earlier stream with the same name.
func rangesOfStream(
	rows []store.HandledRange,
	created string,
) (ranges []store.HandledRange, foreign bool) {
	for _, r := range rows {
		if r.StreamCreated == created {
			ranges = append(ranges, r)
		}
	}
	return store.MergeRanges(ranges), len(ranges) < len(rows)
}
