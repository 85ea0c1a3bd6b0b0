package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// LockPendingProgress implements relational.Tx. Because SQLite allows only one writing transaction
// at a time, it needs no lock.
func (tx *transaction) LockPendingProgress(context.Context, store.Batch) (mayKeepPending bool,
	err error,
) {
	return true, nil
}

// MayHavePendingProgress implements relational.Tx. Usually no steps are pending. Checking this is
// cheaper than the DELETE statement that the caller would otherwise run.
func (tx *transaction) MayHavePendingProgress(ctx context.Context) (exist bool, err error) {
	err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM early_progress)`).Scan(&exist)
	return exist, err
}

// execEach prepares a statement and runs it for each item.
func execEach[T any](
	ctx context.Context, tx *sql.Tx, query string, items []T, args func(T) []any,
) error {
	if len(items) == 0 {
		return nil
	}
	statement, err := tx.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = statement.Close() }()
	for _, item := range items {
		if _, err := statement.ExecContext(ctx, args(item)...); err != nil {
			return err
		}
	}
	return nil
}

// LockCurrentStates implements relational.Tx.
func (tx *transaction) LockCurrentStates(
	ctx context.Context, ids []string,
) (map[string]store.CurrentState, error) {
	standing := make(map[string]store.CurrentState, len(ids))
	tx.rowIDs = make(map[string]int64, len(ids))
	var (
		seq, status int64
		key         []byte
		at          store.CurrentState
	)
	columns := []any{&seq, &key, &status, &at.AccountID, &at.Queue, &at.WorkflowID, &at.Attempts}
	err := eachRow(ctx, tx, func(row relational.Row) error {
		if err := row.Scan(columns...); err != nil {
			return err
		}
		id := store.DecodeID(key)
		at.Status = relational.StatusFromCode(status)
		standing[id], tx.rowIDs[id] = at, seq
		return nil
	}, `SELECT e.seq, e.id, e.status, o.account_id, o.queue, w.workflow_id, coalesce(e.attempts, 0)
		FROM executions e CROSS JOIN origins o ON o.origin = e.origin CROSS JOIN workflows w
		ON w.workflow = e.workflow
		WHERE e.id IN (SELECT unhex(value) FROM json_each(?))`, encodeIDsJSON(ids))
	return standing, err
}

// encodeIDsJSON returns the stored forms of IDs as a JSON array of hex strings. SQLite has no array
// parameters.
func encodeIDsJSON(ids []string) string {
	array := make([]byte, 0, 2+len(ids)*35)
	array = append(array, '[')
	for i, id := range ids {
		if i > 0 {
			array = append(array, ',')
		}
		array = append(array, '"')
		array = hex.AppendEncode(array, store.EncodeID(id))
		array = append(array, '"')
	}
	return string(append(array, ']'))
}

// nullableMicros returns a time in microseconds since 1970, or NULL for the zero time.
func nullableMicros(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: !t.IsZero()}
}

// UpdateStates implements relational.Tx.
func (tx *transaction) UpdateStates(ctx context.Context, updates []store.StateUpdate) error {
	const width = 8
	rows := make([]any, 0, len(updates)*width)
	for _, m := range updates {
		rows = append(
			rows,
			tx.rowIDs[m.ID],
			relational.StatusCode(m.Status),
			nullableMicros(m.StartedAt),
			nullableMicros(m.FinishedAt),
			textOrNull(m.Error),
			blobOrNull(m.Output),
			countOrNull(m.Attempts),
			nullableMicros(m.CanceledAt),
		)
	}
	_, err := execRows(ctx, tx.Tx, rows, width, func(values string) string {
		return `UPDATE OR ROLLBACK executions SET status = m.column2,
			started_after = coalesce(started_after, m.column3 - accepted_at),
			finished_after = coalesce(m.column4 - accepted_at, finished_after),
			error = coalesce(m.column5, error), output = coalesce(m.column6, output),
			attempts = coalesce(m.column7, attempts),
			cancel_requested_at = coalesce(cancel_requested_at, m.column8)
			FROM (VALUES ` + values + `) AS m WHERE seq = m.column1`
	})
	return err
}
