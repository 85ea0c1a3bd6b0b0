package stream

import (
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
)

// startSizeHint is the approximate number of bytes of an encoded start message without its body.
const startSizeHint = 1 << 10

// encodeStart encodes a start message as proto.Marshal does, but does not use generated code, which
// would need about three allocations for each header; encodeStart needs one in total. A test
// compares its results with those of the generated code. If buffer is large enough, the result uses
// its memory. buffer may be nil.
func encodeStart(buffer []byte, s *execution.Start) ([]byte, error) {
	e := encoder{slices.Grow(buffer[:0], startSizeHint+len(s.Payload.Body)), nil}
	e.text(1, s.ID)
	e.text(2, s.WorkflowID)
	e.text(3, s.NodeID)
	e.text(4, s.AccountID)
	e.text(5, s.Queue)
	e.varint(6, int32(sourceToWire(s.Source)))
	e.text(7, s.DeliveryID)
	e.text(8, s.RerunOf)
	e.time(9, s.AcceptedAt)
	e.text(10, s.Payload.ContentType)
	e.varint(11, int32(hookstartv1.BodyKind(s.Payload.Kind)))
	e.bytes(12, s.Payload.Body)
	e.values(13, s.Headers)
	e.values(14, s.Query)
	e.text(15, s.TokenID)
	e.text(16, s.Sender)
	e.bool(17, s.Verified)
	e.bool(18, s.DeliveryIDDerived)
	e.text(19, s.ReplayOf)
	e.text(20, s.OrderKey)
	return e.data, e.err
}

// encodeProgress encodes a progress report in the same way as encodeStart.
func encodeProgress(p *execution.Progress) ([]byte, error) {
	e := encoder{make([]byte, 0, 96+len(p.Error)+len(p.Output)+len(p.Group)), nil}
	e.text(1, p.ID)
	if state := stateToWire(p.Status); state != 0 {
		e.varint(2, int32(state))
	}
	e.time(3, p.At)
	e.text(4, p.Error)
	e.bytes(5, p.Output)
	if !p.StartedAt.IsZero() {
		e.time(6, p.StartedAt)
	}
	if p.Attempt > 0 {
		e.varint(7, int32(min(p.Attempt, math.MaxInt32)))
	}
	e.text(8, p.Group)
	for _, group := range p.EndedGroups {
		e.textEvenIfEmpty(9, group)
	}
	return e.data, e.err
}

// encoder encodes a protobuf message by appending its fields to data. Empty fields are omitted.
type encoder struct {
	data []byte
	err  error // errNotUTF8 if a string is not valid UTF-8
}

func (e *encoder) text(field protowire.Number, s string) {
	if s != "" {
		e.textEvenIfEmpty(field, s)
	}
}

// textEvenIfEmpty appends a string field even if the string is empty. It is for elements of a list,
// which must not be omitted.
func (e *encoder) textEvenIfEmpty(field protowire.Number, s string) {
	if !utf8.ValidString(s) {
		e.err = errNotUTF8
	}
	e.data = protowire.AppendTag(e.data, field, protowire.BytesType)
	e.data = protowire.AppendString(e.data, s)
}

func (e *encoder) bytes(field protowire.Number, b []byte) {
	if len(b) > 0 {
		e.data = protowire.AppendTag(e.data, field, protowire.BytesType)
		e.data = protowire.AppendBytes(e.data, b)
	}
}

func (e *encoder) varint(field protowire.Number, value int32) {
	e.data = protowire.AppendTag(e.data, field, protowire.VarintType)
	//nolint:gosec // the enums have no negative values
	e.data = protowire.AppendVarint(e.data, uint64(value))
}

func (e *encoder) bool(field protowire.Number, value bool) {
	if value {
		e.varint(field, 1)
	}
}

// time appends a time as a google.protobuf.Timestamp, even if it is the zero time.
func (e *encoder) time(field protowire.Number, t time.Time) {
	//nolint:gosec // two's complement is what the format wants
	seconds, nanos := uint64(t.Unix()), uint64(t.Nanosecond())
	size := 0
	if seconds != 0 {
		size += 1 + protowire.SizeVarint(seconds)
	}
	if nanos != 0 {
		size += 1 + protowire.SizeVarint(nanos)
	}
	b := protowire.AppendTag(e.data, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	if seconds != 0 {
		b = protowire.AppendTag(b, 1, protowire.VarintType)
		b = protowire.AppendVarint(b, seconds)
	}
	if nanos != 0 {
		b = protowire.AppendTag(b, 2, protowire.VarintType)
		b = protowire.AppendVarint(b, nanos)
	}
	e.data = b
}

// values appends one hookstart.v1.NamedValues per name. The computed size of such a message
// includes one byte for each field tag, because the field numbers are below 16.
func (e *encoder) values(field protowire.Number, values execution.Values) {
	for name, list := range values {
		size := 0
		if name != "" {
			size = 1 + protowire.SizeBytes(len(name))
		}
		for _, v := range list {
			size += 1 + protowire.SizeBytes(len(v))
		}
		e.data = protowire.AppendTag(e.data, field, protowire.BytesType)
		e.data = protowire.AppendVarint(e.data, uint64(size))
		e.text(1, name)
		for _, v := range list {
			e.textEvenIfEmpty(2, v)
		}
	}
}
