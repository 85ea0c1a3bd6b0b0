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

func TestRefusalReports(t *testing.T) {
	t.Parallel()
	minute := time.Date(2026, 3, 1, 12, 7, 0, 0, time.UTC)
	last := stream.RefusedRequest{
		At:        minute.Add(3 * time.Second),
		BodyBytes: -1,
		UserAgent: "curl/8",
	}
	good := []stream.RefusalCount{
		{WorkflowID: "wf", Code: "token_invalid", Minute: minute, Count: 3, Last: last},
		{Code: "workflow_not_found", Minute: minute, Count: 1, Last: last},
	}
	// DecodeRefusals must correct the values in odd, and drop every element of bad. Hookstart's
	// ingresses send no such counts.
	odd := stream.RefusalCount{
		WorkflowID: "wf", Code: "json_invalid", Minute: minute.Add(time.Second), Count: 1,
		Last: stream.RefusedRequest{
			At:        last.At,
			BodyBytes: -7,
			UserAgent: "\x1b[31m" + strings.Repeat("x", 500),
		},
	}
	bad := []stream.RefusalCount{
		{WorkflowID: "a.b", Code: "token_invalid", Minute: minute, Count: 1},
		{WorkflowID: "wf", Code: "Token invalid", Minute: minute, Count: 1},
		{WorkflowID: "wf", Minute: minute, Count: 1},
		{WorkflowID: "wf", Code: "token_invalid", Minute: minute},
	}
	msg, err := stream.RefusalsMessage("report", last.At, append(append(bad, good...), odd))
	if err != nil || msg.Subject != "reports.refusals" ||
		msg.Header.Get(jetstream.MsgIDHeader) != "report" {
		t.Fatalf("%+v, %v", msg, err)
	}
	odd.Minute, odd.Last.BodyBytes, odd.Last.UserAgent = minute, -1,
		"?[31m"+strings.Repeat("x", stream.MaxUserAgentBytes-5)
	id, at, got, err := stream.DecodeRefusals(msg.Data)
	if diff := cmp.Diff(append(good, odd), got); id != "report" || !at.Equal(last.At) ||
		err != nil || diff != "" {
		t.Errorf("%s, %s, %v\n%s", id, at, err, diff)
	}
	for _, bad := range []string{"\xff", ""} {
		if _, _, _, err := stream.DecodeRefusals([]byte(bad)); !errors.Is(err,
			stream.ErrUnreadable) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
