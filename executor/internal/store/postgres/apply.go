package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/tables"
	"github.com/hookstart/hookstart/shared/execution"
)

// Each statement takes a whole batch as arrays: one round trip, and no limit on its size.
const (
	// unnestRecords is the rows of recordArrays.
	unnestRecords = `SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
		$9::text[], $10::text[], $11::timestamptz[], $12::timestamptz[], $13::timestamptz[], $14::timestamptz[],
		$15::text[], $16::bigint[], $17::bigint[], $18::text[], $19::bytea[], $20::text[],
		$21::text[], $22::timestamptz[], $23::text[], $24::boolean[])`

	insertRecords = `INSERT INTO executions (` + columns + `) ` + unnestRecords + ` ON CONFLICT DO NOTHING RETURNING id`

	// Who records shares the lock tables.Early; who keeps a step whose execution is not recorded has it alone.
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

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, batch store.Batch) (store.Applied, error) {
	if len(batch.New)+len(batch.Progress)+len(batch.Unreadable)+len(batch.Recovered)+len(batch.Audit) == 0 {
		return store.Applied{}, nil
	}
	batch = batch.Storable()
	var applied store.Applied
	err := s.write(ctx, "apply", func(tx transaction) error {
		alone, err := lockForEarly(ctx, tx, batch)
		if err != nil {
			return err
		}
		inserted, err := insertNew(ctx, tx.Tx, batch.New)
		if err != nil {
			return err
		}
		var kept []store.Early
		if len(batch.New) > 0 {
			if kept, err = tables.TakeEarly(ctx, tx, batch.New); err != nil {
				return err
			}
		}
		if err := tables.PutAside(ctx, tx, batch); err != nil {
			return err
		}
		moves, unknown, foreign, err := advance(ctx, tx.Tx, store.Steps(kept, batch.Progress))
		if err != nil {
			return err
		}
		applied = store.Applied{Changed: store.Changed(inserted, moves), Unknown: unknown, Foreign: foreign}
		if alone && len(unknown) > 0 {
			if applied.Dropped, err = tables.KeepEarly(ctx, tx, batch.Progress, unknown); err != nil {
				return err
			}
		}
		if err := tx.AddMinutes(ctx, store.AcceptedMinutes(inserted)); err != nil {
			return err
		}
		// Last: the rows of busy tokens are what executors wait for each other on.
		return tables.AddTokenUses(ctx, tx, store.TokenUses(inserted))
	})
	if err != nil {
		return store.Applied{}, err
	}
	return applied, nil
}

// lockForEarly makes this transaction and those of other executors see what each keeps or
// records. It says whether steps may be kept.
func lockForEarly(ctx context.Context, tx transaction, batch store.Batch) (alone bool, err error) {
	if len(batch.New)+len(batch.Progress) == 0 {
		return false, nil
	}
	var locked string
	err = tx.QueryRow(ctx, lockEarly, store.EarlyIDs(batch), int64(tables.Early)).Scan(&alone, &locked)
	return alone, err
}

func insertNew(ctx context.Context, tx pgx.Tx, records []store.Record) (inserted []store.Record, err error) {
	if len(records) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, insertRecords, recordArrays(records)...)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
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

func advance(ctx context.Context, tx pgx.Tx, steps []execution.Progress) (moves []store.Move, unknown, foreign []string, err error) {
	if len(steps) == 0 {
		return nil, nil, nil, nil
	}
	rows, err := tx.Query(ctx, lockStanding, store.StepIDs(steps))
	if err != nil {
		return nil, nil, nil, err
	}
	standing := make(map[string]store.Standing)
	var id string
	var at store.Standing
	if _, err := pgx.ForEachRow(rows, []any{&id, &at.Status, &at.Queue, &at.WorkflowID}, func() error {
		standing[id] = at
		return nil
	}); err != nil {
		return nil, nil, nil, err
	}
	moves, unknown, foreign = store.Advance(standing, steps)
	if len(moves) > 0 {
		_, err = tx.Exec(ctx, updateRecords, moveArrays(moves)...)
	}
	return moves, unknown, foreign, err
}
