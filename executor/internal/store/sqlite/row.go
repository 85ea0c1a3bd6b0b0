package sqlite

import (
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// The columns that are set when a record is inserted, and how many they are. Most records need only
// the columns of the short form: see relational.FitsShortForm.
const (
	shortFormColumns = `id, workflow, origin, status, accepted_at, recorded_after, body_bytes, ` +
		`stream_sequence, content_type, delivery_id`
	fullFormColumns = shortFormColumns +
		`, other_delivery, rerun_of, replay_of, requeued_as, dismissed_at, started_after, ` +
		`finished_after, error, output, attempts, cancel_requested_at`
	shortColumnCount    = 10
	fullFormColumnCount = 21
)

// appendShortFormColumns appends the values that r has in shortFormColumns to values.
func appendShortFormColumns(
	values []any, r store.Record, numbers relational.OriginRowIDs, computedID bool,
) []any {
	content := any(r.ContentType)
	if r.ContentType == relational.UsualContentType {
		content = nil
	}
	delivery := any(nil)
	if computedID {
		delivery = r.DeliveryID
	}
	return append(values, store.EncodeID(r.ID), numbers.Workflow, numbers.Origin,
		relational.StatusCode(r.Status), r.AcceptedAt.UnixMicro(),
		r.RecordedAt.UnixMicro()-r.AcceptedAt.UnixMicro(), r.BodyBytes,
		store.StoredSequence(r.StreamSequence), content, delivery)
}

// appendFullFormColumns appends the values that r has in fullFormColumns to values.
func appendFullFormColumns(
	values []any, r store.Record, numbers relational.OriginRowIDs, computedID bool,
) []any {
	other := r.DeliveryID
	if computedID {
		other = ""
	}
	return append(appendShortFormColumns(values, r, numbers, computedID), textOrNull(other),
		textOrNull(r.RerunOf), textOrNull(r.ReplayOf), textOrNull(r.RequeuedAs),
		nullableMicros(r.DismissedAt), microsBetween(r.AcceptedAt, r.StartedAt),
		microsBetween(r.AcceptedAt, r.FinishedAt), textOrNull(r.Error), blobOrNull(r.Output),
		countOrNull(r.Attempts), nullableMicros(r.CancelRequestedAt))
}

// textOrNull returns s, or nil if s is "". nil is stored as NULL.
func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// blobOrNull returns b, or an untyped nil if b is nil. nil is stored as NULL.
func blobOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// countOrNull returns n, or nil if n is 0. nil is stored as NULL.
func countOrNull(n int) any {
	if n == 0 {
		return nil
	}
	return int64(n)
}

// microsBetween returns the number of microseconds from begin to t, or nil if t is zero. nil is
// stored as NULL.
func microsBetween(begin, t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro() - begin.UnixMicro()
}
