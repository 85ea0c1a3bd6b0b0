package sqlite

import (
	"database/sql"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
	"github.com/hookstart/hookstart/shared/execution"
)

// selectRecords is what scan reads. What a record has in common with others it names by a number: see withOrigins.
const selectRecords = `SELECT e.id, e.status, e.accepted_at, e.recorded_after, e.started_after, e.finished_after, e.content_type,
	e.body_bytes, e.stream_sequence, coalesce(e.delivery_id, e.other_delivery), e.rerun_of, e.replay_of, e.requeued_as, e.dismissed_at, e.error, e.output,
	coalesce((SELECT duplicates FROM duplicate_counts WHERE id = e.id), 0), e.origin FROM executions e `

// The columns of new records. Most have those of the short form only.
const (
	shortColumns = `id, workflow, origin, status, accepted_at, recorded_after, body_bytes, stream_sequence, content_type, delivery_id`
	longColumns  = shortColumns + `, other_delivery, rerun_of, replay_of, requeued_as, dismissed_at, started_after, finished_after, error, output`
	shortWidth   = 10
	longWidth    = 19
)

// statusCode is how a status is stored: its place in the order of a life, from 1. 0 is any other text.
func statusCode(s execution.Status) int64 { return int64(slices.Index(execution.Statuses, s) + 1) }

func statusOf(code int64) execution.Status {
	if code < 1 || code > int64(len(execution.Statuses)) {
		return ""
	}
	return execution.Statuses[code-1]
}

// usualContentType is stored as NULL.
const usualContentType = "application/json"

// isShort says that the record has no more than shortColumns.
func isShort(r store.Record, computed bool) bool {
	return (computed || r.DeliveryID == "") && r.RerunOf == "" && r.ReplayOf == "" && r.RequeuedAs == "" &&
		r.DismissedAt.IsZero() && r.StartedAt.IsZero() && r.FinishedAt.IsZero() && r.Error == "" && r.Output == nil
}

// appendShort appends the values of shortColumns.
func appendShort(values []any, r store.Record, of numbers, computed bool) []any {
	content := any(r.ContentType)
	if r.ContentType == usualContentType {
		content = nil
	}
	delivery := any(nil)
	if computed {
		delivery = r.DeliveryID
	}
	return append(values, store.IDKey(r.ID), of.workflow, of.origin, statusCode(r.Status), r.AcceptedAt.UnixMicro(),
		r.RecordedAt.UnixMicro()-r.AcceptedAt.UnixMicro(), r.BodyBytes, store.Sequence(r.StreamSequence), content, delivery)
}

// appendLong appends the values of longColumns.
func appendLong(values []any, r store.Record, of numbers, computed bool) []any {
	other := r.DeliveryID
	if computed {
		other = ""
	}
	return append(appendShort(values, r, of, computed), text(other), text(r.RerunOf), text(r.ReplayOf), text(r.RequeuedAs), micros(r.DismissedAt),
		after(r.AcceptedAt, r.StartedAt), after(r.AcceptedAt, r.FinishedAt), text(r.Error), blob(r.Output))
}

// text is NULL for "".
func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// blob is NULL for nothing.
func blob(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// after is how long a time that may be absent is after another one.
func after(begin, t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro() - begin.UnixMicro()
}

// scan reads a record, without its origin, and the number of that.
func scan(row relational.Row) (r store.Record, origin int64, err error) {
	var (
		id                                                    []byte
		status, accepted, recordedAfter                       int64
		startedAfter, finishedAfter, dismissed                sql.NullInt64
		content, delivery, rerun, replay, requeued, errorText sql.NullString
	)
	err = row.Scan(
		&id, &status, &accepted, &recordedAfter, &startedAfter, &finishedAfter, &content,
		&r.BodyBytes, &r.StreamSequence, &delivery, &rerun, &replay, &requeued, &dismissed, &errorText, &r.Output,
		&r.Duplicates, &origin,
	)
	if err != nil {
		return r, 0, err
	}
	r.ID, r.Status = store.IDOf(id), statusOf(status)
	r.AcceptedAt, r.RecordedAt = fromMicros(accepted), fromMicros(accepted+recordedAfter)
	if startedAfter.Valid {
		r.StartedAt = fromMicros(accepted + startedAfter.Int64)
	}
	if finishedAfter.Valid {
		r.FinishedAt = fromMicros(accepted + finishedAfter.Int64)
	}
	if dismissed.Valid {
		r.DismissedAt = fromMicros(dismissed.Int64)
	}
	if r.ContentType = content.String; !content.Valid {
		r.ContentType = usualContentType
	}
	r.DeliveryID, r.RerunOf, r.ReplayOf, r.RequeuedAs, r.Error = delivery.String, rerun.String, replay.String, requeued.String, errorText.String
	return r, origin, nil
}

func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }
