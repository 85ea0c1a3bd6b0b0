package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/shared/execution"
)

// Each statement receives a whole batch as arrays, so that a batch needs only one round trip and
// can have any size.
const (
	// lockPending acquires relational.PendingProgressLock: exclusively if any of the given
	// executions has no record, otherwise shared.
	lockPending = `SELECT missing, CASE WHEN missing THEN pg_advisory_xact_lock($2)::text
		ELSE pg_advisory_xact_lock_shared($2)::text END
		FROM (SELECT EXISTS (SELECT FROM unnest($1::bytea[]) AS named (id)
			WHERE NOT EXISTS (SELECT FROM executions e
			WHERE e.id = named.id)) AS missing OFFSET 0) AS looked`

	// lockRecords locks the rows in the order of their IDs: PostgreSQL sorts the rows before it
	// locks them.
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

// LockPendingProgress implements relational.Tx. Once it has the lock, this transaction sees the
// steps and records that other executors have committed, and transactions that acquire the lock
// later see what this one commits.
func (tx transaction) LockPendingProgress(
	ctx context.Context, batch store.Batch,
) (mayKeepPending bool, err error) {
	if len(batch.NewRecords)+len(batch.Progress) == 0 {
		return false, nil
	}
	var locked string
	err = tx.QueryRow(ctx, lockPending, encodeIDs(store.UnmatchedProgressExecutionIDs(batch)),
		int64(relational.PendingProgressLock)).Scan(&mayKeepPending, &locked)
	return mayKeepPending, err
}

// MayHavePendingProgress implements relational.Tx. It always returns true, because finding out
// whether there is pending progress would cost another round trip.
func (tx transaction) MayHavePendingProgress(context.Context) (bool, error) { return true, nil }

// LockCurrentStates implements relational.Tx.
func (tx transaction) LockCurrentStates(
	ctx context.Context, ids []string,
) (map[string]store.CurrentState, error) {
	rows, err := tx.Tx.Query(ctx, lockRecords, encodeIDs(ids))
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
				append(statuses, relational.StatusFromCode(status)), append(numbers, origin)
			attempts = append(attempts, attempt)
			tx.acceptedAt[all[len(all)-1]] = accepted
			return nil
		}); err != nil {
		return nil, err
	}
	origins, err := tx.origins.LoadByRowIDs(ctx, tx.Query, numbers)
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
	_, err := tx.Tx.Exec(ctx, updateRecords, stateUpdateArgs(updates, tx.acceptedAt)...)
	return err
}
