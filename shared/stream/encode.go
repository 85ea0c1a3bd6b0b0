package stream

import (
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
)

// encodeStart is proto.Marshal of a start, written out: it needs one allocation, not about three for each header. A test compares
// it with the generated code. It writes into buffer, or into a new one if that is too small.
func encodeStart(buffer []byte, s *execution.Start) []byte {
	b := buffer[:0]
	if size := 256 + len(s.Payload.Body) + len(s.Payload.ContentType) + valuesSize(s.Headers) + valuesSize(s.Query); cap(b) < size {
		b = make([]byte, 0, size)
	}
	b = appendString(b, 1, s.ID)
	b = appendString(b, 2, s.WorkflowID)
	b = appendString(b, 3, s.NodeID)
	b = appendString(b, 4, s.AccountID)
	b = appendString(b, 5, s.Queue)
	b = appendEnum(b, 6, int32(sourceToWire(s.Source)))
	b = appendString(b, 7, s.DeliveryID)
	b = appendString(b, 8, s.RerunOf)
	b = appendTime(b, 9, s.AcceptedAt)
	b = appendString(b, 10, s.Payload.ContentType)
	b = appendEnum(b, 11, int32(hookstartv1.BodyKind(s.Payload.Kind)))
	if len(s.Payload.Body) > 0 {
		b = protowire.AppendTag(b, 12, protowire.BytesType)
		b = protowire.AppendBytes(b, s.Payload.Body)
	}
	b = appendValues(b, 13, s.Headers)
	b = appendValues(b, 14, s.Query)
	b = appendString(b, 15, s.TokenID)
	b = appendString(b, 16, s.Sender)
	b = appendBool(b, 17, s.Verified)
	b = appendBool(b, 18, s.DeliveryDerived)
	return appendString(b, 19, s.ReplayOf)
}

// encodeProgress is the same for progress.
func encodeProgress(p *execution.Progress) []byte {
	b := make([]byte, 0, 96+len(p.Error)+len(p.Output))
	b = appendString(b, 1, p.ID)
	if state := stateToWire(p.Status); state != 0 {
		b = appendEnum(b, 2, int32(state))
	}
	b = appendTime(b, 3, p.At)
	b = appendString(b, 4, p.Error)
	if len(p.Output) > 0 {
		b = protowire.AppendTag(b, 5, protowire.BytesType)
		b = protowire.AppendBytes(b, p.Output)
	}
	if !p.StartedAt.IsZero() {
		b = appendTime(b, 6, p.StartedAt)
	}
	return b
}

// checkUTF8 refuses what protobuf forbids: a text that is not UTF-8.
func checkUTF8(s *execution.Start) error {
	for _, text := range [...]string{s.ID, s.WorkflowID, s.NodeID, s.AccountID, s.Queue, s.DeliveryID, s.RerunOf, s.ReplayOf, s.Payload.ContentType, s.TokenID, s.Sender} {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%q is not UTF-8", text)
		}
	}
	for _, values := range [...]execution.Values{s.Headers, s.Query} {
		for name, list := range values {
			if !utf8.ValidString(name) {
				return fmt.Errorf("the name %q is not UTF-8", name)
			}
			for _, v := range list {
				if !utf8.ValidString(v) {
					return fmt.Errorf("a value of %q is not UTF-8", name)
				}
			}
		}
	}
	return nil
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendEnum(b []byte, field protowire.Number, value int32) []byte {
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(value)) //nolint:gosec // the enums have no negative values
}

func appendBool(b []byte, field protowire.Number, value bool) []byte {
	if !value {
		return b
	}
	return appendEnum(b, field, 1)
}

// appendTime writes a google.protobuf.Timestamp.
func appendTime(b []byte, field protowire.Number, t time.Time) []byte {
	seconds, nanos := uint64(t.Unix()), uint64(t.Nanosecond()) //nolint:gosec // two's complement is what the format wants
	size := 0
	if seconds != 0 {
		size += 1 + protowire.SizeVarint(seconds)
	}
	if nanos != 0 {
		size += 1 + protowire.SizeVarint(nanos)
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	if seconds != 0 {
		b = protowire.AppendTag(b, 1, protowire.VarintType)
		b = protowire.AppendVarint(b, seconds)
	}
	if nanos != 0 {
		b = protowire.AppendTag(b, 2, protowire.VarintType)
		b = protowire.AppendVarint(b, nanos)
	}
	return b
}

// appendValues writes a hookstart.v1.NamedValues for each name. Every string has a tag of one byte.
func appendValues(b []byte, field protowire.Number, values execution.Values) []byte {
	for name, list := range values {
		size := 0
		if name != "" {
			size = 1 + protowire.SizeBytes(len(name))
		}
		for _, v := range list {
			size += 1 + protowire.SizeBytes(len(v))
		}
		b = protowire.AppendTag(b, field, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size))
		b = appendString(b, 1, name)
		for _, v := range list { // an empty one, too
			b = protowire.AppendTag(b, 2, protowire.BytesType)
			b = protowire.AppendString(b, v)
		}
	}
	return b
}

// valuesSize is about the size of values, encoded.
func valuesSize(values execution.Values) int {
	size := 0
	for name, list := range values {
		size += len(name) + 8
		for _, v := range list {
			size += len(v) + 4
		}
	}
	return size
}
