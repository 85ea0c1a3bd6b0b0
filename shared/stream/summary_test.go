package stream_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// full returns a start message with every field set. Add new fields of the message here.
func full(t *testing.T) *nats.Msg {
	t.Helper()
	s := execution.Start{
		ID:                id,
		WorkflowID:        "wf",
		NodeID:            "node",
		AccountID:         "acme",
		Queue:             "gpu",
		Source:            execution.SourceRerun,
		DeliveryID:        "d ü",
		RerunOf:           id,
		ReplayOf:          id,
		OrderKey:          "k ü",
		AcceptedAt:        time.Unix(1_900_000_000, 123_456_789).UTC(),
		TokenID:           "token",
		Trace:             "trace",
		Sender:            "stripe",
		Verified:          true,
		DeliveryIDDerived: true,
		Payload: execution.Payload{
			ContentType: "text/plain",
			Kind:        execution.BodyText,
			Body:        []byte(strings.Repeat("body", 500)),
		},
		Headers: execution.Values{"X-One": {"1", ""}, "X-Two": {"ü"}},
		Query:   execution.Values{"q": {"%zz"}, "": nil},
	}
	fields := reflect.ValueOf(s)
	for i := range fields.NumField() {
		if fields.Field(i).IsZero() {
			t.Errorf("the start has no %s: set it here", fields.Type().Field(i).Name)
		}
	}
	msg, err := stream.StartMessage(s)
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// same decodes a message with Decode and with DecodeSummary, and fails the test if the results
// differ in anything but the data that DecodeSummary omits. what describes the message in errors.
func same(t *testing.T, what, subject string, header nats.Header, data []byte) {
	t.Helper()
	whole, wantErr := stream.Decode(subject, header, data)
	summary, bodyBytes, err := stream.DecodeSummary(subject, header, data)
	if (err == nil) != (wantErr == nil) || err != nil && !errors.Is(err, stream.ErrUnreadable) {
		t.Fatalf("%s: %v, Decode says %v: %x", what, err, wantErr, data)
	}
	if whole.Start != nil {
		if bodyBytes != len(whole.Start.Payload.Body) {
			t.Errorf("%s: %d bytes, want %d", what, bodyBytes, len(whole.Start.Payload.Body))
		}
		whole.Start.Payload.Body, whole.Start.Headers, whole.Start.Query = nil, nil, nil
	}
	if !reflect.DeepEqual(summary, whole) {
		t.Errorf("%s: %+v, want %+v", what, summary.Start, whole.Start)
	}
}

func TestDecodeSummaryIsDecodeWithoutTheBody(t *testing.T) {
	t.Parallel()
	msg := full(t)
	same(t, "full", msg.Subject, msg.Header, msg.Data)
	same(t, "empty", msg.Subject, nil, nil)
	for n := range len(msg.Data) {
		same(t, "cut off", msg.Subject, msg.Header, msg.Data[:n])
		damaged := bytes.Clone(msg.Data)
		damaged[n] ^= 0xff
		same(t, "damaged", msg.Subject, msg.Header, damaged)
	}
	for _, kind := range []uint64{0, 1, 3, 4, 257, 1 << 32, 1<<64 - 1} {
		same(t, "a body kind", msg.Subject, msg.Header,
			protowire.AppendVarint(protowire.AppendTag(bytes.Clone(msg.Data), 11,
				protowire.VarintType), kind))
	}
	twice := append(bytes.Clone(msg.Data), msg.Data...) // the last value of each field counts
	same(t, "twice", msg.Subject, msg.Header, twice)
	group := protowire.AppendTag(bytes.Clone(msg.Data), 99, protowire.StartGroupType)
	same(t, "a group that does not end", msg.Subject, msg.Header, group)
	same(t, "an unknown group", msg.Subject, msg.Header,
		protowire.AppendTag(group, 99, protowire.EndGroupType))
	for _, value := range []string{"a", "\xff"} {
		other := protowire.AppendBytes(protowire.AppendTag(bytes.Clone(msg.Data), 99,
			protowire.BytesType), []byte(value))
		same(t, "an unknown field", msg.Subject, msg.Header, other)
	}
	rejected, err := stream.RejectedMessage(execution.Rejection{
		ID:         id,
		WorkflowID: "wf",
		NodeID:     "n",
		AccountID:  "a",
		Queue:      "q",
		At:         time.Unix(1, 0).UTC(),
		Code:       "c",
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "a rejection", rejected.Subject, rejected.Header, rejected.Data)
	same(t, "another subject", "executions.other", nil, msg.Data)
}

// full sets every field of a start message, so that TestDecodeSummaryIsDecodeWithoutTheBody checks
// whether DecodeSummary handles all of them. This test fails if a new field is missing from full.
func TestDecodeSummaryKnowsEveryField(t *testing.T) {
	t.Parallel()
	var m hookstartv1.ExecutionStart
	if err := proto.Unmarshal(full(t).Data, &m); err != nil {
		t.Fatal(err)
	}
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if !m.ProtoReflect().Has(fields.Get(i)) {
			t.Errorf("the start has no %s: read it in DecodeSummary, and set it in the test",
				fields.Get(i).Name())
		}
	}
}

func FuzzDecodeSummary(f *testing.F) {
	f.Add([]byte("\x0a\x01a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		same(t, "fuzzed", "executions.start.q.wf.n", nil, data)
	})
}

// BenchmarkDecodeStart compares DecodeSummary with Decode, which uses the generated code.
func BenchmarkDecodeStart(b *testing.B) {
	msg := typicalStart(b)
	b.Run("hookstart", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := stream.DecodeSummary(msg.Subject, msg.Header, msg.Data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := stream.Decode(msg.Subject, msg.Header, msg.Data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkEncodeStart compares StartEncoder, which also sets the subject and the headers, with
// converting a Start to the generated type and calling proto.Marshal.
func BenchmarkEncodeStart(b *testing.B) {
	start := typical()
	b.Run("hookstart", func(b *testing.B) {
		var encoder stream.StartEncoder
		b.ReportAllocs()
		for b.Loop() {
			if _, err := encoder.MessageForLayout(stream.Layout{}, start); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := proto.Marshal(startToWire(start)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// startToWire converts a start to the generated type.
func startToWire(s execution.Start) *hookstartv1.ExecutionStart {
	headers := make([]*hookstartv1.NamedValues, 0, len(s.Headers))
	for name, values := range s.Headers {
		headers = append(headers, &hookstartv1.NamedValues{Name: name, Values: values})
	}
	return &hookstartv1.ExecutionStart{
		ExecutionId:     s.ID,
		WorkflowId:      s.WorkflowID,
		NodeId:          s.NodeID,
		AccountId:       s.AccountID,
		Queue:           s.Queue,
		DeliveryId:      s.DeliveryID,
		AcceptedAt:      timestamppb.New(s.AcceptedAt),
		ContentType:     s.Payload.ContentType,
		BodyKind:        hookstartv1.BodyKind(s.Payload.Kind),
		Body:            s.Payload.Body,
		Headers:         headers,
		TokenId:         s.TokenID,
		DeliveryDerived: s.DeliveryIDDerived,
	}
}

// typical returns the start of a typical delivery: a body of 1 KB and the headers that senders
// usually send.
func typical() execution.Start {
	return execution.Start{
		ID:                id,
		WorkflowID:        "workflow-17",
		NodeID:            "webhook",
		AccountID:         "acme",
		Queue:             "default",
		Source:            execution.SourceWebhook,
		DeliveryID:        "0b989ba4-242f-11e5-81e1-c7b6966d2516",
		AcceptedAt:        time.Unix(1_900_000_000, 123_456_789).UTC(),
		TokenID:           "token-1",
		DeliveryIDDerived: true,
		Payload: execution.Payload{
			ContentType: "application/json",
			Kind:        execution.BodyJSON,
			Body:        []byte(`{"hello":"` + strings.Repeat("x", 1000) + `"}`),
		},
		Headers: execution.Values{
			"Accept":                {"*/*"},
			"Content-Type":          {"application/json"},
			"User-Agent":            {"sender/1.0"},
			"X-Webhook-Delivery-Id": {"0b989ba4-242f-11e5-81e1-c7b6966d2516"},
		},
	}
}

func typicalStart(b *testing.B) *nats.Msg {
	b.Helper()
	msg, err := stream.StartMessage(typical())
	if err != nil {
		b.Fatal(err)
	}
	return msg
}
