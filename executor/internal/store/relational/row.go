package relational

import (
	"database/sql"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// SelectRecords is the beginning of a query that reads records. Of a record's origin, it reads only
// the row number: see OriginCache.
const SelectRecords = `SELECT e.id, e.status, e.accepted_at, e.recorded_after, e.started_after,
	e.finished_after, e.content_type,
	e.body_bytes, e.stream_sequence, ` + deliveryIDExpr + `, e.rerun_of, e.replay_of, e.requeued_as,
		e.dismissed_at, e.error, e.output, e.attempts, e.cancel_requested_at,
	coalesce((SELECT duplicates FROM duplicate_counts d WHERE d.id = e.id), 0), e.origin
	FROM executions e `

const deliveryIDExpr = `coalesce(e.delivery_id, e.other_delivery)`

// UsualContentType is the most common Content-Type, which is stored as NULL to save space.
const UsualContentType = "application/json"

// StatusCode returns the stored code of a status: its position in execution.Statuses, starting at
// 1, or 0 for an unknown status.
func StatusCode(s execution.Status) int64 { return int64(slices.Index(execution.Statuses, s) + 1) }

// StatusFromCode returns the status for a stored code, or "" if there is none.
func StatusFromCode(code int64) execution.Status {
	if code < 1 || code > int64(len(execution.Statuses)) {
		return ""
	}
	return execution.Statuses[code-1]
}

// FitsShortForm reports whether a record can be inserted in short form, that is, whether every
// column that the short form omits would be empty, as in most new records. computed is the result
// of r.HasIDFromDelivery.
func FitsShortForm(r store.Record, computed bool) bool {
	return (computed || r.DeliveryID == "") && r.RerunOf == "" && r.ReplayOf == "" &&
		r.RequeuedAs == "" &&
		r.DismissedAt.IsZero() && r.StartedAt.IsZero() && r.FinishedAt.IsZero() && r.Error == "" &&
		r.Output == nil && r.Attempts == 0 && r.CancelRequestedAt.IsZero()
}

// scanRecord reads a record. It leaves the fields of the record's origin zero, and returns the
// origin's row number.
func scanRecord(row Row) (r store.Record, origin int64, err error) {
	var (
		id                                                    []byte
		status, recordedAfter                                 int64
		startedAfter, finishedAfter, attempts                 sql.NullInt64
		content, delivery, rerun, replay, requeued, errorText sql.NullString
	)
	err = row.Scan(
		&id, &status, timeField{&r.AcceptedAt}, &recordedAfter, &startedAfter, &finishedAfter,
		&content,
		&r.BodyBytes, &r.StreamSequence, &delivery, &rerun, &replay, &requeued, timeField{
			&r.DismissedAt,
		}, &errorText, &r.Output, &attempts, timeField{&r.CancelRequestedAt},
		&r.Duplicates, &origin,
	)
	if err != nil {
		return r, 0, err
	}
	r.ID, r.Status, r.Attempts = store.DecodeID(id), StatusFromCode(status), int(attempts.Int64)
	after := func(micros int64) time.Time {
		return time.UnixMicro(r.AcceptedAt.UnixMicro() + micros).UTC()
	}
	r.RecordedAt = after(recordedAfter)
	if startedAfter.Valid {
		r.StartedAt = after(startedAfter.Int64)
	}
	if finishedAfter.Valid {
		r.FinishedAt = after(finishedAfter.Int64)
	}
	if r.ContentType = content.String; !content.Valid {
		r.ContentType = UsualContentType
	}
	r.DeliveryID, r.RerunOf, r.ReplayOf, r.RequeuedAs, r.Error = delivery.String, rerun.String,
		replay.String, requeued.String, errorText.String
	return r, origin, nil
}
