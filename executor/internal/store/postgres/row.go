package postgres

import (
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/relational"
)

// Columns of new records. Most records need only those of the short form (shortFormColumns).
const (
	shortFormColumns = `id, workflow, origin, status, accepted_at, recorded_after, body_bytes, ` +
		`stream_sequence, content_type, delivery_id`
	fullFormColumns = shortFormColumns +
		`, other_delivery, rerun_of, replay_of, requeued_as, dismissed_at, started_after, ` +
		`finished_after, error, output, attempts, cancel_requested_at`

	shortArrayParams = `$1::bytea[], $2::integer[], $3::integer[], $4::smallint[], ` +
		`$5::timestamptz[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[], $10::text[]`
	longArrayParams = shortArrayParams +
		`, $11::text[], $12::text[], $13::text[], $14::text[], $15::timestamptz[], ` +
		`$16::bigint[], $17::bigint[], $18::text[], $19::bytea[], $20::integer[], ` +
		`$21::timestamptz[]`

	selectShort = `SELECT * FROM unnest(` + shortArrayParams + `)`
	insertShort = `INSERT INTO executions (` + shortFormColumns + `) ` + selectShort +
		` ON CONFLICT (id) DO NOTHING RETURNING id`
	insertLong = `INSERT INTO executions (` + fullFormColumns + `) SELECT * FROM unnest(` +
		longArrayParams + `) ON CONFLICT (id) DO NOTHING RETURNING id`
)

// recordArrays returns one array per column of records. short reports whether all records have the
// short form; arrays then has only the columns of shortFormColumns.
func recordArrays(
	records []store.Record, numbers map[store.Origin]relational.OriginRowIDs,
) (arrays []any, short bool) {
	keys := mapSlice(records,
		func(r store.Record) relational.OriginRowIDs { return numbers[r.Origin()] })
	computed := mapSlice(records, store.Record.HasIDFromDelivery)
	short = true
	deliveries, others := make([]*string, len(records)), make([]*string, len(records))
	for i, r := range records {
		short = short && relational.FitsShortForm(r, computed[i])
		if computed[i] {
			deliveries[i] = nilIf(r.DeliveryID, "")
		} else {
			others[i] = nilIf(r.DeliveryID, "")
		}
	}
	text := func(value func(store.Record) string) []*string {
		return mapSlice(records, func(r store.Record) *string { return nilIf(value(r), "") })
	}
	arrays = []any{
		mapSlice(records, func(r store.Record) []byte { return store.EncodeID(r.ID) }),
		mapSlice(keys, func(n relational.OriginRowIDs) int64 { return n.Workflow }),
		mapSlice(keys, func(n relational.OriginRowIDs) int64 { return n.Origin }),
		mapSlice(records, func(r store.Record) int64 { return relational.StatusCode(r.Status) }),
		mapSlice(records, func(r store.Record) time.Time { return r.AcceptedAt }),
		mapSlice(records, func(r store.Record) int64 {
			return r.RecordedAt.UnixMicro() - r.AcceptedAt.UnixMicro()
		}),
		mapSlice(records, func(r store.Record) int64 { return r.BodyBytes }),
		mapSlice(
			records,
			func(r store.Record) int64 { return store.StoredSequence(r.StreamSequence) },
		),
		mapSlice(records, func(r store.Record) *string {
			return nilIf(r.ContentType, relational.UsualContentType)
		}),
		deliveries,
	}
	if short {
		return arrays, true
	}
	return append(arrays, others,
		text(func(r store.Record) string { return r.RerunOf }),
		text(func(r store.Record) string { return r.ReplayOf }),
		text(func(r store.Record) string { return r.RequeuedAs }),
		mapSlice(records, func(r store.Record) *time.Time { return nullableTime(r.DismissedAt) }),
		mapSlice(records, func(r store.Record) *int64 {
			return microsBetween(r.AcceptedAt, r.StartedAt)
		}),
		mapSlice(records, func(r store.Record) *int64 {
			return microsBetween(r.AcceptedAt, r.FinishedAt)
		}),
		text(func(r store.Record) string { return r.Error }),
		mapSlice(records, func(r store.Record) []byte { return r.Output }),
		mapSlice(records, func(r store.Record) *int64 { return nullableCount(r.Attempts) }),
		mapSlice(records, func(r store.Record) *time.Time {
			return nullableTime(r.CancelRequestedAt)
		}),
	), false
}

// shortFormColumnNames lists the names of shortFormColumns.
var shortFormColumnNames = strings.Split(shortFormColumns, ", ")

// shortRow returns the values at index i of arrays, which holds one array per column in
// shortFormColumns.
func shortRow(arrays []any, i int) []any {
	row := make([]any, len(arrays))
	for c, array := range arrays {
		switch values := array.(type) {
		case [][]byte:
			row[c] = values[i]
		case []int64:
			row[c] = values[i]
		case []time.Time:
			row[c] = values[i]
		case []*string:
			row[c] = values[i]
		}
	}
	return row
}

func stateUpdateArgs(updates []store.StateUpdate, accepted map[string]time.Time) []any {
	return []any{
		mapSlice(updates, func(m store.StateUpdate) []byte { return store.EncodeID(m.ID) }),
		mapSlice(updates,
			func(m store.StateUpdate) int64 { return relational.StatusCode(m.Status) }),
		mapSlice(updates, func(m store.StateUpdate) *int64 {
			return microsBetween(accepted[m.ID], m.StartedAt)
		}),
		mapSlice(updates, func(m store.StateUpdate) *int64 {
			return microsBetween(accepted[m.ID], m.FinishedAt)
		}),
		mapSlice(updates, func(m store.StateUpdate) string { return m.Error }),
		mapSlice(updates, func(m store.StateUpdate) []byte { return m.Output }),
		mapSlice(updates, func(m store.StateUpdate) *int64 { return nullableCount(m.Attempts) }),
		mapSlice(updates,
			func(m store.StateUpdate) *time.Time { return nullableTime(m.CanceledAt) }),
	}
}

// mapSlice returns one value for each item.
func mapSlice[T, V any](items []T, value func(T) V) []V {
	values := make([]V, len(items))
	for i, item := range items {
		values[i] = value(item)
	}
	return values
}

// encodeIDs returns the stored form of IDs.
func encodeIDs(ids []string) [][]byte { return mapSlice(ids, store.EncodeID) }

// nilIf returns nil, which is stored as NULL, if text equals none, and otherwise a pointer to text.
func nilIf(text, none string) *string {
	if text == none {
		return nil
	}
	return &text
}

// nullableCount returns a pointer to n, or nil if n is 0. nil is stored as NULL.
func nullableCount(n int) *int64 {
	if n == 0 {
		return nil
	}
	number := int64(n)
	return &number
}

// nullableTime returns a pointer to t, or nil if t is zero. nil is stored as NULL.
func nullableTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// microsBetween returns the number of microseconds from begin to t, or nil if t is zero.
func microsBetween(begin, t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixMicro() - begin.UnixMicro()
	return &n
}
