package sqlite

import (
	"database/sql"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// columns are what a record writes, in the order of values.
const columns = `id, account_id, workflow_id, node_id, queue, source, status, delivery_id, rerun_of, token_id,
	accepted_at, recorded_at, started_at, finished_at, content_type, body_bytes, stream_sequence, error, output, requeued_as,
	replay_of, dismissed_at`

// selectRecords is the beginning of every query that scan reads.
const selectRecords = `SELECT ` + columns + `,
	coalesce((SELECT duplicates FROM duplicate_counts WHERE execution_id = executions.id), 0) FROM executions `

func values(r store.Record) []any {
	return []any{
		r.ID, r.AccountID, r.WorkflowID, r.NodeID, r.Queue, string(r.Source), string(r.Status), r.DeliveryID, r.RerunOf, r.TokenID,
		r.AcceptedAt.UnixMicro(), r.RecordedAt.UnixMicro(), micros(r.StartedAt), micros(r.FinishedAt),
		r.ContentType, r.BodyBytes, store.Sequence(r.StreamSequence), r.Error, r.Output, r.RequeuedAs,
		r.ReplayOf, micros(r.DismissedAt),
	}
}

func scan(rows *sql.Rows) (store.Record, error) {
	var r store.Record
	var accepted, recorded int64
	var started, finished, dismissed sql.NullInt64
	err := rows.Scan(
		&r.ID, &r.AccountID, &r.WorkflowID, &r.NodeID, &r.Queue, &r.Source, &r.Status, &r.DeliveryID, &r.RerunOf, &r.TokenID,
		&accepted, &recorded, &started, &finished, &r.ContentType, &r.BodyBytes, &r.StreamSequence, &r.Error, &r.Output, &r.RequeuedAs,
		&r.ReplayOf, &dismissed,
		&r.Duplicates,
	)
	r.AcceptedAt, r.RecordedAt = fromMicros(accepted), fromMicros(recorded)
	if started.Valid {
		r.StartedAt = fromMicros(started.Int64)
	}
	if finished.Valid {
		r.FinishedAt = fromMicros(finished.Int64)
	}
	if dismissed.Valid {
		r.DismissedAt = fromMicros(dismissed.Int64)
	}
	return r, err
}

// micros is a time that may be absent.
func micros(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: !t.IsZero()}
}

func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }
