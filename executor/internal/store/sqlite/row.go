package sqlite

import (
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// Columns of new records. Most records need only those of the short form.
const (
	shortColumns = `id, workflow, origin, status, accepted_at, recorded_after, body_bytes, ` +
		`stream_sequence, content_type, delivery_id`
	longColumns = shortColumns +
		`, other_delivery, rerun_of, replay_of, requeued_as, dismissed_at, started_after, ` +
		`finished_after, error, output, attempts, cancel_requested_at`
	shortWidth = 10
	longWidth  = 21
)

// appendShort appends the values of shortColumns.
func appendShort(
	values []any, r store.Record, numbers relational.OriginNumbers, computed bool,
) []any {
	content := any(r.ContentType)
	if r.ContentType == relational.UsualContentType {
		content = nil
	}
	delivery := any(nil)
	if computed {
		delivery = r.DeliveryID
	}
	return append(values, store.IDKey(r.ID), numbers.Workflow, numbers.Origin,
		relational.StatusCode(r.Status), r.AcceptedAt.UnixMicro(),
		r.RecordedAt.UnixMicro()-r.AcceptedAt.UnixMicro(), r.BodyBytes,
		store.StoredSequence(r.StreamSequence), content, delivery)
}

// appendLong appends the values of longColumns.
func appendLong(
	values []any, r store.Record, numbers relational.OriginNumbers, computed bool,
) []any {
	other := r.DeliveryID
	if computed {
		other = ""
	}
	return append(appendShort(values, r, numbers, computed), text(other), text(r.RerunOf),
		text(r.ReplayOf), text(r.RequeuedAs), nullableMicros(r.DismissedAt),
		microsSince(r.AcceptedAt, r.StartedAt), microsSince(r.AcceptedAt, r.FinishedAt),
		text(r.Error),
		blob(r.Output), count(r.Attempts), nullableMicros(r.CancelRequestedAt))
}

// text returns s, or NULL for "".
func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// blob returns b, or NULL if it is nil.
func blob(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// count returns n, or NULL for 0.
func count(n int) any {
	if n == 0 {
		return nil
	}
	return int64(n)
}

// microsSince returns the number of microseconds from begin to t, or NULL if t is zero.
func microsSince(begin, t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro() - begin.UnixMicro()
}
