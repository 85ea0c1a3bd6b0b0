package stream

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/encoding/protowire"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
)

// DecodeSummary is like Decode but omits the data that is not kept in the database: a start message
// is decoded without headers, query and body, and bodyBytes is the size of the body. DecodeSummary
// refuses exactly the messages that Decode refuses. Its results share no memory with data.
func DecodeSummary(
	subject string, header nats.Header, data []byte,
) (event DecodedMessage, bodyBytes int, err error) {
	if !IsStartSubject(subject) {
		event, err = Decode(subject, header, data)
		return event, 0, err
	}
	event.Start, bodyBytes, err = decodeStartSummary(data)
	if err != nil {
		return DecodedMessage{}, 0, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if values := header[HeaderTrace]; len(values) > 0 {
		event.Start.Trace = values[0]
	}
	return event, bodyBytes, nil
}

var (
	errMalformed = errors.New("it is not protobuf")
	errNotUTF8   = errors.New("a text is not UTF-8")
)

// decodeStartSummary reads the fields of a start message one by one, in the format that encodeStart
// writes. It does not use proto.Unmarshal, which would copy the body and create a message for each
// header. A test compares the results with those of the generated code.
func decodeStartSummary(data []byte) (*execution.Start, int, error) {
	s := &startDecoder{Start: execution.Start{Source: execution.SourceWebhook}}
	bodyBytes := 0
	err := eachField(data, func(field protowire.Number, number uint64, value []byte) error {
		switch {
		case value == nil:
			s.setVarintField(field, number)
		case field == 12:
			bodyBytes = len(value)
		default:
			return s.setBytesField(field, value)
		}
		return nil
	})
	if err == nil {
		err = checkIDs(s.ID, s.WorkflowID, s.NodeID, s.AccountID, s.Queue)
	}
	if err != nil {
		return nil, 0, err
	}
	if s.hasAcceptedAt {
		s.AcceptedAt = timeFromParts(s.seconds, s.nanos)
	}
	s.Payload.Kind, err = bodyKindFromWire(s.bodyKind)
	return &s.Start, bodyBytes, err
}

// startDecoder is a start message that is being decoded. The field AcceptedAt may occur several
// times, for example once with the seconds and once with the nanoseconds of the timestamp. So it is
// converted to a time only after all fields have been read.
type startDecoder struct {
	execution.Start
	bodyKind       int32
	hasAcceptedAt  bool
	seconds, nanos int64
}

func (s *startDecoder) setBytesField(field protowire.Number, value []byte) error {
	var text *string
	switch field { //nolint:exhaustive // numbers, not states
	case 1:
		text = &s.ID
	case 2:
		text = &s.WorkflowID
	case 3:
		text = &s.NodeID
	case 4:
		text = &s.AccountID
	case 5:
		text = &s.Queue
	case 7:
		text = &s.DeliveryID
	case 8:
		text = &s.RerunOf
	case 9:
		return s.setAcceptedAt(value)
	case 10:
		text = &s.Payload.ContentType
	case 13, 14:
		return checkNamedValues(value)
	case 15:
		text = &s.TokenID
	case 16:
		text = &s.Sender
	case 19:
		text = &s.ReplayOf
	case 20:
		text = &s.OrderKey
	default:
		return nil
	}
	if !utf8.Valid(value) {
		return errNotUTF8
	}
	*text = string(value)
	return nil
}

func (s *startDecoder) setVarintField(field protowire.Number, value uint64) {
	switch field { //nolint:exhaustive // numbers, not states
	case 6:
		//nolint:gosec // as in the generated code
		s.Source = sourceFromWire(hookstartv1.ExecutionSource(int32(value)))
	case 11:
		s.bodyKind = int32(value) //nolint:gosec // as in the generated code
	case 17:
		s.Verified = protowire.DecodeBool(value)
	case 18:
		s.DeliveryIDDerived = protowire.DecodeBool(value)
	}
}

// setAcceptedAt decodes data, the google.protobuf.Timestamp of the field AcceptedAt, into s.seconds
// and s.nanos.
func (s *startDecoder) setAcceptedAt(data []byte) error {
	s.hasAcceptedAt = true
	return eachField(data, func(field protowire.Number, number uint64, value []byte) error {
		switch {
		case value != nil:
		case field == 1:
			s.seconds = int64(number) //nolint:gosec // two's complement is what the format has
		case field == 2:
			s.nanos = int64(int32(number)) //nolint:gosec // as in the generated code
		}
		return nil
	})
}

// The bounds of the seconds of a valid Timestamp, which covers the years 1 to 9999.
const minTimestampSeconds, maxTimestampSeconds = -62135596800, 253402300799

// timeFromParts returns the time that a Timestamp represents, or the zero time if it is invalid.
func timeFromParts(seconds, nanos int64) time.Time {
	if seconds < minTimestampSeconds || seconds > maxTimestampSeconds || nanos < 0 ||
		nanos > 999_999_999 {
		return time.Time{}
	}
	return time.Unix(seconds, nanos).UTC()
}

// checkNamedValues returns an error if data is a hookstart.v1.NamedValues that Decode refuses: its
// name or a value is not valid UTF-8, or it is malformed.
func checkNamedValues(data []byte) error {
	return eachField(data, func(field protowire.Number, _ uint64, value []byte) error {
		if (field == 1 || field == 2) && value != nil && !utf8.Valid(value) {
			return errNotUTF8
		}
		return nil
	})
}

// eachField calls do for each field of a message. For a varint, number is its value, and value is
// nil. For a length-delimited field, value is not nil. Fields of other types, which Hookstart does
// not use, are skipped.
func eachField(
	data []byte, do func(field protowire.Number, number uint64, value []byte) error,
) error {
	for len(data) > 0 {
		field, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return errMalformed
		}
		data = data[size:]
		var number uint64
		var value []byte
		switch kind { //nolint:exhaustive // the others are skipped
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			value, size = protowire.ConsumeBytes(data)
		default:
			size = protowire.ConsumeFieldValue(field, kind, data)
		}
		if size < 0 {
			return errMalformed
		}
		data = data[size:]
		if kind != protowire.VarintType && kind != protowire.BytesType {
			continue
		}
		if err := do(field, number, value); err != nil {
			return err
		}
	}
	return nil
}
