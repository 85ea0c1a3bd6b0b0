package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// Each statement takes a whole batch as arrays: one round trip, and no limit on its size.
const (
	// unnestRecords is the rows of recordArrays.
	unnestRecords = `SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
		$9::text[], $10::text[], $11::timestamptz[], $12::timestamptz[], $13::timestamptz[], $14::timestamptz[],
		$15::text[], $16::bigint[], $17::bigint[], $18::text[], $19::bytea[], $20::text[],
		$21::text[], $22::timestamptz[], $23::text[], $24::boolean[])`

	insertRecords = `INSERT INTO executions (` + columns + `) ` + unnestRecords + ` ON CONFLICT DO NOTHING RETURNING id`

	// Takes the lock relational.Early: alone if a step has no record, else shared.
	lockEarly = `SELECT missing, CASE WHEN missing THEN pg_advisory_xact_lock($2)::text ELSE pg_advisory_xact_lock_shared($2)::text END
		FROM (SELECT EXISTS (SELECT FROM unnest($1::text[]) AS named (id)
			WHERE NOT EXISTS (SELECT FROM executions e WHERE e.id = named.id)) AS missing OFFSET 0) AS looked`

	// The locks are taken in the order of IDs: locking comes after sorting.
	lockStanding = `SELECT id, status, queue, workflow_id FROM executions WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE`

	updateRecords = `UPDATE executions e SET status = m.status, started_at = coalesce(e.started_at, m.started_at),
			finished_at = coalesce(m.finished_at, e.finished_at), error = coalesce(nullif(m.error, ''), e.error),
			output = coalesce(m.output, e.output)
		FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::bytea[])
			AS m (id, status, started_at, finished_at, error, output)
		WHERE e.id = m.id`
)

// LockEarly implements relational.Tx. It makes this transaction and those of other executors see what each keeps or records.
func (tx transaction) LockEarly(ctx context.Context, batch store.Batch) (mayKeep bool, err error) {
	if len(batch.New)+len(batch.Progress) == 0 {
		return false, nil
	}
	var locked string
	err = tx.QueryRow(ctx, lockEarly, store.EarlyIDs(batch), int64(relational.Early)).Scan(&mayKeep, &locked)
	return mayKeep, err
}

// HasEarly implements relational.Tx. To ask would be one more round trip.
func (tx transaction) HasEarly(context.Context) (bool, error) { return true, nil }

// InsertNew implements relational.Tx.
func (tx transaction) InsertNew(ctx context.Context, records []store.Record) (inserted []store.Record, err error) {
	if len(records) == 0 {
		return nil, nil
	}
	// By ID, so that executors that insert the same records wait for each other in one order. Stable: of two records of one ID
	// the first counts.
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b store.Record) int { return strings.Compare(a.ID, b.ID) })
	ids, err := updated(ctx, tx, pgx.RowTo[string], insertRecords, recordArrays(records)...)
	if err != nil {
		return nil, err
	}
	fresh := make(map[string]bool, len(ids))
	for _, id := range ids {
		fresh[id] = true
	}
	inserted = store.Inserted(records, fresh)
	if again := store.Again(records, inserted); len(again) > 0 {
		_, err = tx.Exec(ctx, moveRecords, column(again, func(r store.Record) string { return r.ID }),
			column(again, func(r store.Record) int64 { return store.Sequence(r.StreamSequence) }))
	}
	return inserted, err
}

// Standing implements relational.Tx.
func (tx transaction) Standing(ctx context.Context, ids []string) (map[string]store.Standing, error) {
	rows, err := tx.Tx.Query(ctx, lockStanding, ids)
	if err != nil {
		return nil, err
	}
	standing := make(map[string]store.Standing)
	var id string
	var at store.Standing
	_, err = pgx.ForEachRow(rows, []any{&id, &at.Status, &at.Queue, &at.WorkflowID}, func() error {
		standing[id] = at
		return nil
	})
	return standing, err
}

// Move implements relational.Tx.
func (tx transaction) Move(ctx context.Context, moves []store.Move) error {
	_, err := tx.Tx.Exec(ctx, updateRecords, moveArrays(moves)...)
	return err
}
