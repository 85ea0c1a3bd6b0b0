package ingress_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// refusals reads reports until they count at least want refusals in total, and returns the counts
// by workflow and code.
func (f *fixture) refusals(want int64) map[[2]string]stream.RefusalCount {
	f.t.Helper()
	consumer, err := f.JetStream.OrderedConsumer(f.t.Context(), stream.ReportsName,
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{stream.RefusalsSubject}})
	if err != nil {
		f.t.Fatal(err)
	}
	all := map[[2]string]stream.RefusalCount{}
	for total := int64(0); total < want; {
		msg, err := consumer.Next(jetstream.FetchMaxWait(20 * time.Second))
		if err != nil {
			f.t.Fatalf("%v after %d refusals: %+v", err, total, all)
		}
		_, _, counts, err := stream.DecodeRefusals(msg.Data())
		if err != nil {
			f.t.Fatal(err)
		}
		for _, c := range counts {
			total += c.Count
			key := [2]string{c.WorkflowID, c.Code}
			c.Count += all[key].Count
			all[key] = c
		}
	}
	return all
}

func TestRefusalsAreReported(t *testing.T) {
	t.Parallel()
	s := startSituations(t)
	right := s.token["active"]
	agent := func(text string) map[string]string { return map[string]string{"User-Agent": text} }
	for _, r := range []request{
		{
			path:   "/webhooks/active",
			token:  "hst_wrong",
			body:   "12345",
			header: agent("curl/8.1 hst_wrong"),
		},
		{
			path:   "/webhooks/active",
			token:  "hst_wrong",
			header: agent("curl/8.2 (of " + right + ")"),
		},
		{
			path:   "/webhooks/active",
			token:  "hst_wrong",
			body:   "123",
			header: agent("a\tb\xff\u20ac" + strings.Repeat("x", 1000)),
		},
		{path: "/webhooks/active", header: agent("")},
		{method: "GET", path: "/webhooks/active", token: right, header: agent(right + "!" + right)},
		{
			path:   "/webhooks/active",
			token:  right,
			body:   "{",
			header: map[string]string{"Content-Type": "application/json", "User-Agent": "sender"},
		},
		{
			path:   "/webhooks/inactive",
			token:  s.token["inactive"],
			header: agent("echo " + s.token["inactive"]),
		},
		{path: "/webhooks/nobody-1", token: "x"},
		{path: "/webhooks/nobody-2", token: "x", header: agent("XxX")},
		{path: "/webhooks/active/more", token: right},
		{path: "/webhooks"},
		{path: "/favicon.ico", method: "GET", header: agent("of hst_another")},
	} {
		if a := s.send(r); a.status < 400 {
			t.Errorf("%+v: %d", r, a.status)
		}
	}
	if a := s.to("active", request{}); a.status != 200 {
		t.Errorf("%+v", a)
	}
	got := s.refusals(12)
	want := map[[2]string]stream.RefusalCount{
		{"active", "token_invalid"}: {
			Count: 3,
			Last: stream.RefusedRequest{
				BodyBytes: 3,
				UserAgent: "a?b????" + strings.Repeat("x", stream.MaxUserAgentBytes-7),
			},
		},
		{"active", "token_missing"}: {Count: 1},
		{"active", "method_not_allowed"}: {
			Count: 1,
			Last:  stream.RefusedRequest{UserAgent: "[token]![token]"},
		},
		{"active", "json_invalid"}: {
			Count: 1,
			Last:  stream.RefusedRequest{BodyBytes: 1, UserAgent: "sender"},
		},
		{"inactive", "workflow_inactive"}: {
			Count: 1,
			Last:  stream.RefusedRequest{UserAgent: "echo [token]"},
		},
		{"", "workflow_not_found"}: {
			Count: 2,
			Last:  stream.RefusedRequest{UserAgent: "X[token]X"},
		},
		{"", "not_found"}: {Count: 2, Last: stream.RefusedRequest{UserAgent: "[token]"}},
		{"", "workflow_id_missing"}: {
			Count: 1,
			Last:  stream.RefusedRequest{UserAgent: "Go-http-client/1.1"},
		},
	}
	for key, w := range want {
		g := got[key]
		if g.Count != w.Count || g.Last.UserAgent != w.Last.UserAgent ||
			g.Last.BodyBytes != w.Last.BodyBytes || time.Since(g.Last.At) > time.Minute {
			t.Errorf("%s: %+v, want %+v", key, g, w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%+v", got)
	}
}
