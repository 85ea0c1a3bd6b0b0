package stream_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

func TestSenderReports(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 7, 0, 0, time.UTC)
	good := []stream.SenderActivity{
		{
			WorkflowID:  "wf",
			NodeID:      "a",
			Preset:      "slack",
			VerifiedAt:  at,
			HandshakeAt: at.Add(1),
			Deliveries:  7,
			WithoutID:   2,
			Captured:    []byte("sealed"),
		},
		{
			WorkflowID:    "wf",
			NodeID:        "b",
			RefusedAt:     at,
			RefusedCode:   "signature_invalid",
			RefusedReason: "no signature is right",
			Refused:       3,
		},
	}
	odd := stream.SenderActivity{
		WorkflowID:    "wf",
		NodeID:        "c",
		RefusedCode:   "Not a code",
		RefusedReason: strings.Repeat("x", 500),
		Deliveries:    -1,
		WithoutID:     -1,
		Refused:       -1,
	}
	bad := []stream.SenderActivity{{WorkflowID: "a.b", NodeID: "a"}, {WorkflowID: "a"}}
	msg, err := stream.SendersMessage("report", at, append(append(bad, good...), odd))
	if err != nil || msg.Subject != "reports.senders" ||
		msg.Header.Get(jetstream.MsgIDHeader) != "report" {
		t.Fatalf("%+v, %v", msg, err)
	}
	odd = stream.SenderActivity{
		WorkflowID:    "wf",
		NodeID:        "c",
		RefusedReason: strings.Repeat("x", stream.MaxRefusedReasonBytes),
	}
	id, made, got, err := stream.DecodeSenders(msg.Data)
	if diff := cmp.Diff(append(good, odd), got); id != "report" || !made.Equal(at) || err != nil ||
		diff != "" {
		t.Errorf("%s, %s, %v\n%s", id, made, err, diff)
	}
	for _, bad := range []string{"\xff", ""} {
		if _, _, _, err := stream.DecodeSenders([]byte(bad)); !errors.Is(err,
			stream.ErrUnreadable) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
