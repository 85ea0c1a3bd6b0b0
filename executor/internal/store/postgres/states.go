package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/shared/execution"
)

// Each statement takes a whole batch as arrays: one round trip, and no limit on the batch size.
const (
	// lockPending acquires the relational.Pending lock: exclusively if the record of any step is
	// missing, otherwise shared.
	lockPending = `SELECT missing, CASE WHEN missing THEN pg_advisory_xact_lock($2)::text
		ELSE pg_advisory_xact_lock_shared($2)::text END
		FROM (SELECT EXISTS (SELECT FROM unnest($1::bytea[]) AS named (id)
			WHERE NOT EXISTS (SELECT FROM executions e
			WHERE e.id = named.id)) AS missing OFFSET 0) AS looked`

	// lockRecords locks the rows in ID order, because PostgreSQL locks them after sorting.
	lockRecords = `SELECT id, status, origin, accepted_at, coalesce(attempts, 0) FROM executions
		WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE`

	updateRecords = `UPDATE executions e SET status = m.status,
		started_after = coalesce(e.started_after, m.started_after),
			finished_after = coalesce(m.finished_after, e.finished_after),
			error = coalesce(nullif(m.error, ''), e.error),
			output = coalesce(m.output, e.output), attempts = coalesce(m.attempts, e.attempts),
			cancel_requested_at = coalesce(e.cancel_requested_at, m.canceled_at)
		FROM unnest($1::bytea[], $2::smallint[], $3::bigint[], $4::bigint[], $5::text[],
		$6::bytea[], $7::integer[], $8::timestamptz[])
			AS m (id, status, started_after, finished_after, error, output, attempts, canceled_at)
		WHERE e.id = m.id`
)

// LockPendingProgress implements relational.Tx. While it holds the lock, this transaction sees the
// steps and records that other executors' transactions have committed. Later transactions will see
// what this one commits.
func (tx transaction) LockPendingProgress(
	ctx context.Context, batch store.Batch,
) (mayKeepPending bool, err error) {
	if len(batch.New)+len(batch.Progress) == 0 {
		return false, nil
	}
	var locked string
	err = tx.QueryRow(ctx, lockPending, storedIDs(store.UnmatchedProgressExecutionIDs(batch)),
		int64(relational.PendingProgressLock)).Scan(&mayKeepPending, &locked)
	return mayKeepPending, err
}

// HasPendingProgress implements relational.Tx. Checking would cost one more round trip.
func (tx transaction) HasPendingProgress(context.Context) (bool, error) { return true, nil }

// InsertNew implements relational.Tx.
func (tx transaction) InsertNew(
	ctx context.Context, records []store.Record,
) (inserted []store.Record, err error) {
	if len(records) == 0 {
		return nil, nil
	}
	records = sortedByAcceptance(records)
	// EnsureOrigins has stored the origins.
	numbers, err := originRowIDsOf(ctx, tx.Tx, tx.origins, records)
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
	inserted = store.SelectInserted(records, fresh)
	again := store.AlreadyRecorded(records, inserted)
	_, err = tx.Tx.Exec(ctx, updateSequences, mapSlice(again, func(r store.Record) []byte {
		return store.EncodeID(r.ID)
	}),
		mapSlice(again,
			func(r store.Record) int64 { return store.StoredSequence(r.StreamSequence) }))
	return inserted, err
}

// sortedByAcceptance returns records in the order in which they were accepted. As a result, rows
// are appended at the end of the table and of the time indexes, and executors that insert the same
// records lock them in the same order. If two records have the same ID, it returns only the first.
// It sorts indices instead of records, because records are large.
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

// insertArrays inserts the records whose IDs do not exist yet, and returns their IDs.
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

// tryCopyRecords inserts records in short form with COPY, if none of them exists yet. Otherwise it
// inserts none, and copied is false.
func tryCopyRecords(ctx context.Context, tx pgx.Tx, arrays []any, n int) (copied bool, err error) {
	point, err := tx.Begin(ctx)
	if err != nil {
		return false, err
	}
	_, err = point.CopyFrom(ctx, pgx.Identifier{"executions"}, shortColumnNames,
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

// EnsureOrigins implements relational.Database.
func (s *Store) EnsureOrigins(ctx context.Context, operation string, records []store.Record) error {
	began := time.Now()
	numbers, err := originRowIDsOf(ctx, s.pool, s.Origins, records)
	if err != nil {
		return s.FinishOperation(ctx, operation, began, asDataError(withCancellation(ctx, err)))
	}
	s.Origins.Add(numbers)
	return nil
}

// CurrentStates implements relational.Tx.
func (tx transaction) CurrentStates(
	ctx context.Context, ids []string,
) (map[string]store.CurrentState, error) {
	rows, err := tx.Tx.Query(ctx, lockRecords, storedIDs(ids))
	if err != nil {
		return nil, err
	}
	var (
		id             []byte
		status, origin int64
		accepted       time.Time
		attempt        int
		all            []string
		statuses       []execution.Status
		numbers        []int64
		attempts       []int
	)
	if _, err := pgx.ForEachRow(rows, []any{&id, &status, &origin, &accepted, &attempt},
		func() error {
			all, statuses, numbers = append(all, store.DecodeID(id)),
				append(statuses, relational.StatusOf(status)), append(numbers, origin)
			attempts = append(attempts, attempt)
			tx.accepted[all[len(all)-1]] = accepted
			return nil
		}); err != nil {
		return nil, err
	}
	origins, err := tx.origins.ByRowID(ctx, tx.Query, numbers)
	if err != nil {
		return nil, err
	}
	standing := make(map[string]store.CurrentState, len(all))
	for i, id := range all {
		named := origins[numbers[i]]
		standing[id] = store.CurrentState{
			Status:     statuses[i],
			AccountID:  named.AccountID,
			Queue:      named.Queue,
			WorkflowID: named.WorkflowID,
			Attempts:   attempts[i],
		}
	}
	return standing, nil
}

// UpdateStates implements relational.Tx.
func (tx transaction) UpdateStates(ctx context.Context, updates []store.StateUpdate) error {
	_, err := tx.Tx.Exec(ctx, updateRecords, stateUpdateArgs(updates, tx.accepted)...)
	return err
}
