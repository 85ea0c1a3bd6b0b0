package relational

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// decided is the table of the ranges of messages that have been recorded or quarantined. A batch
// adds rows to it without waiting for other executors, because the table has no index and no two
// executors change the same row.
var decided = table[store.Range]{
	name:    "decided",
	columns: "stream, created, first_sequence, last_sequence",
	fields:  func(r *store.Range) []any { return []any{&r.Stream, &r.Created, &r.First, &r.Last} },
}

// maxRanges is the number of rows of a stream from which on Decided merges them.
const maxRanges = 64

// Decided implements store.Store.
func (s *Store) Decided(ctx context.Context, stream, created string) ([]store.Range, error) {
	rows, err := Collect(ctx, s.db, "decided", decided.scan, decided.selection()+`WHERE stream = ?`,
		stream)
	if err != nil {
		return nil, err
	}
	ranges, foreign := ofStream(rows, created)
	if len(rows) < maxRanges && !foreign {
		return ranges, nil
	}
	return s.replaceDecided(ctx, stream, created, func(ranges []store.Range) []store.Range {
		return ranges
	})
}

// ForgetDecided implements store.Store.
func (s *Store) ForgetDecided(ctx context.Context, stream, created string, from uint64) error {
	_, err := s.replaceDecided(ctx, stream, created, func(ranges []store.Range) []store.Range {
		return store.RangesBefore(ranges, from)
	})
	return err
}

// replaceDecided calls keep with the merged ranges of a stream and replaces all of them with the
// result. Rows that another transaction adds in the meantime are not affected.
func (s *Store) replaceDecided(
	ctx context.Context, stream, created string, keep func([]store.Range) []store.Range,
) ([]store.Range, error) {
	return write(ctx, s, "merge decided", func(tx Tx) ([]store.Range, error) {
		var rows []store.Range
		if err := tx.Query(ctx, func(row Row) error {
			r, err := decided.scan(row)
			rows = append(rows, r)
			return err
		}, `DELETE FROM decided WHERE stream = ? RETURNING `+decided.columns, stream); err != nil {
			return nil, err
		}
		ranges, _ := ofStream(rows, created)
		ranges = keep(ranges)
		return ranges, decided.insert(ctx, tx, ranges)
	})
}

// ofStream returns the merged ranges of the stream that has this identity. foreign reports whether
// rows contains ranges with another identity.
func ofStream(rows []store.Range, created string) (ranges []store.Range, foreign bool) {
	for _, r := range rows {
		if r.Created == created {
			ranges = append(ranges, r)
		}
	}
	return store.MergeRanges(ranges), len(ranges) < len(rows)
}
