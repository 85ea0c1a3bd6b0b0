package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/shared/execution"
)

// Each statement takes a whole batch as arrays: one round trip, and no limit on its size.
const (
	// Takes the lock relational.Early: alone if a step has no record, else shared.
	lockEarly = `SELECT missing, CASE WHEN missing THEN pg_advisory_xact_lock($2)::text ELSE pg_advisory_xact_lock_shared($2)::text END
		FROM (SELECT EXISTS (SELECT FROM unnest($1::bytea[]) AS named (id)
			WHERE NOT EXISTS (SELECT FROM executions e WHERE e.id = named.id)) AS missing OFFSET 0) AS looked`

	// What this transaction has inserted, of some records.
	insertedHere = `SELECT id FROM executions WHERE id = ANY ($1) AND xmin = pg_current_xact_id()::xid`

	// The locks are taken in the order of IDs: locking comes after sorting.
	lockStanding = `SELECT id, status, origin, accepted_at FROM executions WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE`

	updateRecords = `UPDATE executions e SET status = m.status, started_after = coalesce(e.started_after, m.started_after),
			finished_after = coalesce(m.finished_after, e.finished_after), error = coalesce(nullif(m.error, ''), e.error),
			output = coalesce(m.output, e.output)
		FROM unnest($1::bytea[], $2::smallint[], $3::bigint[], $4::bigint[], $5::text[], $6::bytea[])
			AS m (id, status, started_after, finished_after, error, output)
		WHERE e.id = m.id`
)

// LockEarly implements relational.Tx. It makes this transaction and those of other executors see what each keeps or records.
func (tx transaction) LockEarly(ctx context.Context, batch store.Batch) (mayKeep bool, err error) {
	if len(batch.New)+len(batch.Progress) == 0 {
		return false, nil
	}
	var locked string
	err = tx.QueryRow(ctx, lockEarly, keys(store.EarlyIDs(batch)), int64(relational.Early)).Scan(&mayKeep, &locked)
	return mayKeep, err
}

// HasEarly implements relational.Tx. To ask would be one more round trip.
func (tx transaction) HasEarly(context.Context) (bool, error) { return true, nil }

// InsertNew implements relational.Tx.
func (tx transaction) InsertNew(ctx context.Context, records []store.Record) (inserted []store.Record, err error) {
	if len(records) == 0 {
		return nil, nil
	}
	records = inOrder(records)
	numbers, err := numbersOf(ctx, tx.Tx, tx.origins, records) // Prepare has made them known
	if err != nil {
		return nil, err
	}
	n, err := insertRecords(ctx, tx.Tx, records, numbers)
	if err != nil || n == int64(len(records)) {
		return records, err
	}
	rows, err := tx.Tx.Query(ctx, insertedHere, column(records, func(r store.Record) []byte { return store.IDKey(r.ID) }))
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, err
	}
	fresh := make(map[string]bool, len(ids))
	for _, id := range ids {
		fresh[store.IDOf(id)] = true
	}
	inserted = store.Inserted(records, fresh)
	again := store.Again(records, inserted)
	_, err = tx.Tx.Exec(ctx, moveRecords, column(again, func(r store.Record) []byte { return store.IDKey(r.ID) }),
		column(again, func(r store.Record) int64 { return store.Sequence(r.StreamSequence) }))
	return inserted, err
}

// inOrder are records in the order in which they were accepted: rows and the indexes of times grow at their ends, and executors that
// insert the same ones wait for each other in one order. Of two records of one ID it has the first. Numbers are sorted, not records:
// those are large.
func inOrder(records []store.Record) []store.Record {
	known := make(map[string]bool, len(records))
	order := make([]int, 0, len(records))
	for i := range records {
		if id := records[i].ID; !known[id] {
			known[id] = true
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(records[a].AcceptedAt.Compare(records[b].AcceptedAt), strings.Compare(records[a].ID, records[b].ID))
	})
	return column(order, func(i int) store.Record { return records[i] })
}

// insertRecords inserts those records whose IDs are not there yet, and returns how many those are.
func insertRecords(ctx context.Context, on runner, records []store.Record, numbers map[store.Origin]relational.Numbers) (inserted int64, err error) {
	arrays, short := recordArrays(records, numbers)
	insert := insertLong
	if short {
		insert = insertShort
	}
	done, err := on.Exec(ctx, insert, arrays...)
	return done.RowsAffected(), err
}

// Prepare implements relational.Database.
func (s *Store) Prepare(ctx context.Context, operation string, records []store.Record) error {
	began := time.Now()
	numbers, err := numbersOf(ctx, s.pool, s.Origins, records)
	if err != nil {
		return s.Ended(ctx, operation, began, blame(withCancellation(ctx, err)))
	}
	s.Origins.Learn(numbers)
	return nil
}

// Standing implements relational.Tx.
func (tx transaction) Standing(ctx context.Context, ids []string) (map[string]store.Standing, error) {
	rows, err := tx.Tx.Query(ctx, lockStanding, keys(ids))
	if err != nil {
		return nil, err
	}
	var (
		id             []byte
		status, origin int64
		accepted       time.Time
		all            []string
		statuses       []execution.Status
		numbers        []int64
	)
	if _, err := pgx.ForEachRow(rows, []any{&id, &status, &origin, &accepted}, func() error {
		all, statuses, numbers = append(all, store.IDOf(id)), append(statuses, relational.StatusOf(status)), append(numbers, origin)
		tx.accepted[all[len(all)-1]] = accepted
		return nil
	}); err != nil {
		return nil, err
	}
	origins, err := tx.origins.Named(ctx, tx.Query, numbers)
	if err != nil {
		return nil, err
	}
	standing := make(map[string]store.Standing, len(all))
	for i, id := range all {
		of := origins[numbers[i]]
		standing[id] = store.Standing{Status: statuses[i], Queue: of.Queue, WorkflowID: of.WorkflowID}
	}
	return standing, nil
}

// Move implements relational.Tx.
func (tx transaction) Move(ctx context.Context, moves []store.Move) error {
	_, err := tx.Tx.Exec(ctx, updateRecords, moveArrays(moves, tx.accepted)...)
	return err
}
