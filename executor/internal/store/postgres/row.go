package postgres

import (
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// columns are what a record writes, in the order of recordArrays.
const columns = `id, account_id, workflow_id, node_id, queue, source, status, delivery_id, rerun_of, token_id,
	accepted_at, recorded_at, started_at, finished_at, content_type, body_bytes, stream_sequence, error, output, requeued_as,
	replay_of, dismissed_at, sender, verified`

// selectRecords is the beginning of every query that scan reads.
const selectRecords = `SELECT ` + columns + `,
	coalesce((SELECT duplicates FROM duplicate_counts WHERE execution_id = executions.id), 0) FROM executions `

func scan(row relational.Row) (store.Record, error) {
	var r store.Record
	var started, finished, dismissed *time.Time
	var sequence int64
	err := row.Scan(
		&r.ID, &r.AccountID, &r.WorkflowID, &r.NodeID, &r.Queue, &r.Source, &r.Status, &r.DeliveryID, &r.RerunOf, &r.TokenID,
		&r.AcceptedAt, &r.RecordedAt, &started, &finished, &r.ContentType, &r.BodyBytes, &sequence, &r.Error, &r.Output, &r.RequeuedAs,
		&r.ReplayOf, &dismissed, &r.Sender, &r.Verified,
		&r.Duplicates,
	)
	r.StreamSequence = uint64(sequence) //nolint:gosec // written by store.Sequence, never negative
	r.AcceptedAt, r.RecordedAt = r.AcceptedAt.UTC(), r.RecordedAt.UTC()
	if started != nil {
		r.StartedAt = started.UTC()
	}
	if finished != nil {
		r.FinishedAt = finished.UTC()
	}
	if dismissed != nil {
		r.DismissedAt = dismissed.UTC()
	}
	return r, err
}

func recordArrays(records []store.Record) []any {
	text := func(of func(store.Record) string) []string { return column(records, of) }
	return []any{
		text(func(r store.Record) string { return r.ID }),
		text(func(r store.Record) string { return r.AccountID }),
		text(func(r store.Record) string { return r.WorkflowID }),
		text(func(r store.Record) string { return r.NodeID }),
		text(func(r store.Record) string { return r.Queue }),
		text(func(r store.Record) string { return string(r.Source) }),
		text(func(r store.Record) string { return string(r.Status) }),
		text(func(r store.Record) string { return r.DeliveryID }),
		text(func(r store.Record) string { return r.RerunOf }),
		text(func(r store.Record) string { return r.TokenID }),
		column(records, func(r store.Record) time.Time { return r.AcceptedAt }),
		column(records, func(r store.Record) time.Time { return r.RecordedAt }),
		column(records, func(r store.Record) *time.Time { return optional(r.StartedAt) }),
		column(records, func(r store.Record) *time.Time { return optional(r.FinishedAt) }),
		text(func(r store.Record) string { return r.ContentType }),
		column(records, func(r store.Record) int64 { return r.BodyBytes }),
		column(records, func(r store.Record) int64 { return store.Sequence(r.StreamSequence) }),
		text(func(r store.Record) string { return r.Error }),
		column(records, func(r store.Record) []byte { return r.Output }),
		text(func(r store.Record) string { return r.RequeuedAs }),
		text(func(r store.Record) string { return r.ReplayOf }),
		column(records, func(r store.Record) *time.Time { return optional(r.DismissedAt) }),
		text(func(r store.Record) string { return r.Sender }),
		column(records, func(r store.Record) bool { return r.Verified }),
	}
}

func moveArrays(moves []store.Move) []any {
	return []any{
		column(moves, func(m store.Move) string { return m.ID }),
		column(moves, func(m store.Move) string { return string(m.Status) }),
		column(moves, func(m store.Move) *time.Time { return optional(m.StartedAt) }),
		column(moves, func(m store.Move) *time.Time { return optional(m.FinishedAt) }),
		column(moves, func(m store.Move) string { return m.Error }),
		column(moves, func(m store.Move) []byte { return m.Output }),
	}
}

// column is one value of each item.
func column[T, V any](items []T, of func(T) V) []V {
	values := make([]V, len(items))
	for i, item := range items {
		values[i] = of(item)
	}
	return values
}

// optional is nil for the zero time, and so NULL.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
