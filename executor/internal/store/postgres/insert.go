package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// InsertNew implements relational.Tx.
func (tx transaction) InsertNew(
	ctx context.Context, records []store.Record,
) (inserted []store.Record, err error) {
	if len(records) == 0 {
		return nil, nil
	}
	records = sortedByAcceptance(records)
	// Read the row numbers of the origins, which EnsureOrigins has already stored.
	numbers, err := ensureOriginRowIDs(ctx, tx.Tx, tx.origins, records)
	if err != nil {
		return nil, err
	}
	arrays, short := recordArrays(records, numbers)
	if short && len(records) >= minRecordsForCopy {
		if copied, err := tryCopyRecords(ctx, tx.Tx, arrays, len(records)); copied || err != nil {
			return records, err
		}
	}
	ids, err := insertArrays(ctx, tx.Tx, arrays, short)
	if err != nil || len(ids) == len(records) {
		return records, err
	}
	fresh := make(map[string]bool, len(ids))
	for _, id := range ids {
		fresh[store.DecodeID(id)] = true
	}
	inserted = store.TakeInserted(records, fresh)
	again := store.AlreadyRecorded(records, inserted)
	_, err = tx.Tx.Exec(ctx, updateSequences, mapSlice(again, func(r store.Record) []byte {
		return store.EncodeID(r.ID)
	}),
		mapSlice(again,
			func(r store.Record) int64 { return store.StoredSequence(r.StreamSequence) }))
	return inserted, err
}

// sortedByAcceptance returns records in the order in which they were accepted. In this order, rows
// are appended at the end of the table and of the time indexes, and executors that insert the same
// records lock them in the same order. Of two records with the same ID, only the first is returned.
// Because records are large, sortedByAcceptance sorts indices instead of records.
func sortedByAcceptance(records []store.Record) []store.Record {
	known := make(map[string]bool, len(records))
	order := make([]int, 0, len(records))
	for i := range records {
		if id := records[i].ID; !known[id] {
			known[id] = true
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(records[a].AcceptedAt.Compare(records[b].AcceptedAt),
			strings.Compare(records[a].ID, records[b].ID))
	})
	return mapSlice(order, func(i int) store.Record { return records[i] })
}

// insertArrays inserts the records whose IDs do not exist yet, and returns their IDs. arrays holds
// one array per column: those of shortFormColumns if short is true, otherwise all.
func insertArrays(
	ctx context.Context, on querier, arrays []any, short bool,
) (ids [][]byte, err error) {
	insert := insertLong
	if short {
		insert = insertShort
	}
	rows, err := on.Query(ctx, insert, arrays...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[[]byte])
}

// uniqueViolation is the SQLSTATE for a violated unique constraint.
const uniqueViolation = "23505"

// minRecordsForCopy is the minimum number of records for which the store uses COPY. For 250
// records, COPY takes 0.7 times the server CPU time of an INSERT, but more round trips.
const minRecordsForCopy = 100

// tryCopyRecords uses COPY to insert n records. It writes only the columns in shortFormColumnNames,
// so all records must have the short form. arrays holds one array for each of these columns. If one
// of the records already exists, tryCopyRecords inserts nothing and returns false.
func tryCopyRecords(ctx context.Context, tx pgx.Tx, arrays []any, n int) (copied bool, err error) {
	point, err := tx.Begin(ctx)
	if err != nil {
		return false, err
	}
	_, err = point.CopyFrom(ctx, pgx.Identifier{"executions"}, shortFormColumnNames,
		pgx.CopyFromSlice(n, func(i int) ([]any, error) {
			return shortRow(arrays, i), nil
		}))
	if failure, ok := errors.AsType[*pgconn.PgError](err); ok && failure.Code == uniqueViolation {
		return false, point.Rollback(ctx)
	}
	if err != nil {
		return false, err
	}
	return true, point.Commit(ctx)
}
