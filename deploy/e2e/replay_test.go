package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// replaySeed determines the requests of TestReplayIsTheRequestAsSent. Change it to try other
// requests.
const replaySeed = 16

// sentRequest is a request of a sender and the ID of its execution.
type sentRequest struct {
	kind   string // kind of its body
	body   []byte
	header http.Header // includes Content-Type, if there is one
	query  url.Values
	id     string // ID of its execution
}

// Random requests with every kind of body are sent to the real endpoint. Half of them succeed. The
// others are rejected, because the workflow has been deactivated. When a request is replayed, the
// replay's message on the stream has exactly the same body, headers and query as the request.
func TestReplayIsTheRequestAsSent(t *testing.T) {
	t.Parallel()
	const perKind = 16
	t.Logf("seed %d", replaySeed)
	l := launchLocal(t, t.TempDir(), "--log-level=warn")
	client := l.client()
	makeWorkflow(t, client, "random")
	if _, err := client.PutWorkflow(t.Context(), "random", api.PutWorkflow{
		// The queue demo has a runner, so the executions succeed.
		AccountID: "tests",
		Name:      "random",
		Queue:     "demo",
		Triggers:  []api.PutTrigger{{NodeID: "node"}},
	}); err != nil {
		t.Fatal(err)
	}
	path := webhookPath(t, client, "random")
	all := randomRequests(rand.New(rand.NewPCG(replaySeed, 0)), perKind)
	for n, r := range all {
		want := http.StatusOK
		if n >= len(all)/2 {
			want = http.StatusForbidden
		}
		if n == len(all)/2 {
			if _, err := client.Deactivate(t.Context(), "random"); err != nil {
				t.Fatal(err)
			}
		}
		r.send(t, l.ingress+path, want)
	}

	replayedAs := map[string]string{} // IDs of the replays, keyed by the ID of the original
	for _, r := range all {
		recorded(t, client, r.id, func(e api.ExecutionDetail) bool {
			return e.Status == "succeeded" || e.Status == "rejected"
		})
		as, err := client.ReplayExecution(t.Context(), r.id, "")
		if err != nil {
			t.Fatalf("replay of %s: %v", r, err)
		}
		replayedAs[r.id] = as.ExecutionID
	}
	onStream := requestsOn(t, l.nats)
	for _, r := range all {
		original, replay := onStream[r.id], onStream[replayedAs[r.id]]
		r.check(t, "original", original)
		r.check(t, "replay", replay)
		if !maps.EqualFunc(replay.headers, original.headers, slices.Equal) ||
			!maps.EqualFunc(replay.query, original.query, slices.Equal) ||
			replay.payload.Kind != original.payload.Kind {
			t.Errorf("%s: the original is %+v, its replay %+v", r, original, replay)
		}
	}
}

func (r *sentRequest) String() string {
	return fmt.Sprintf("%s (%d bytes, %s)", r.id, len(r.body), r.kind)
}

func (r *sentRequest) send(t *testing.T, to string, want int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		to+"&"+r.query.Encode(), bytes.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = r.header.Clone()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	r.id = response.Header.Get("Hookstart-Execution-Id")
	if response.StatusCode != want || r.id == "" {
		t.Fatalf("%s: answered %s", r, response.Status)
	}
}

// check compares the request as it was sent with the one on the stream. Additional headers on the
// stream are ignored, because net/http adds some. Error messages begin with what, a description of
// the message on the stream.
func (r *sentRequest) check(t *testing.T, what string, got request) {
	t.Helper()
	if !bytes.Equal(got.payload.Body, r.body) ||
		got.payload.ContentType != r.header.Get("Content-Type") {
		t.Errorf("%s of %s: %q, sent %q", what, r, got.payload.Body, r.body)
	}
	for name, values := range r.header {
		if !slices.Equal(got.headers[name], values) {
			t.Errorf("%s of %s: %s is %q, sent %q", what, r, name, got.headers[name], values)
		}
	}
	if !maps.EqualFunc(got.query, r.query, slices.Equal) {
		t.Errorf("%s of %s: the query is %q, sent %q", what, r, got.query, r.query)
	}
}

// randomRequests returns perKind requests for each kind of body, in random order.
func randomRequests(random *rand.Rand, perKind int) (all []*sentRequest) {
	types := map[string][]string{
		"JSON": {"application/json", "application/json; charset=utf-8", "Application/JSON;;"},
		"form": {
			"application/x-www-form-urlencoded", "application/x-www-form-urlencoded; charset=UTF-8",
		},
		"text":   {"text/plain", "text/xml; charset=utf-8", "application/vnd.api+json"},
		"binary": {"application/octet-stream", "image/png", "multipart/form-data; boundary=x"},
		"empty":  {"text/plain", "application/octet-stream"},
		"none":   {""},
	}
	for _, kind := range slices.Sorted(maps.Keys(types)) {
		for range perKind {
			r := &sentRequest{
				kind:   kind,
				header: http.Header{},
				query:  url.Values{},
				body:   randomBody(random, kind),
			}
			if contentType := types[kind][random.IntN(len(types[kind]))]; contentType != "" {
				r.header.Set("Content-Type", contentType)
			}
			for range random.IntN(6) {
				name := http.CanonicalHeaderKey(fmt.Sprintf("X-%x", random.Uint32()%0xfff))
				for range 1 + random.IntN(3) {
					r.header.Add(name, strings.TrimSpace(printable(random, random.IntN(60))))
				}
			}
			for range random.IntN(6) {
				name := "q" + randomText(random, random.IntN(8))
				for range 1 + random.IntN(3) {
					r.query.Add(name, randomText(random, random.IntN(40)))
				}
			}
			all = append(all, r)
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// randomBody returns a body of the given kind, of at most 100 KB.
func randomBody(random *rand.Rand, kind string) []byte {
	length := random.IntN(1 << (1 + random.IntN(15)))
	switch kind {
	case "JSON":
		text, _ := json.Marshal(map[string]any{
			randomText(random, 5): randomText(random, length),
			"n":                   random.Float64(),
			"list":                []any{nil, true, random.Int64()},
		})
		return slices.Concat([]byte(strings.Repeat(" \r\n\t", random.IntN(3))), text,
			[]byte(strings.Repeat("\n", random.IntN(3))))
	case "form":
		return []byte(url.Values{randomText(random, 5): {
			randomText(random, length),
			"%",
		}}.Encode() + "&broken=%zz&=")
	case "text":
		return []byte(randomText(random, length))
	case "empty":
		return nil
	default: // any bytes
		body := make([]byte, length)
		for i := range body {
			body[i] = byte(random.UintN(256))
		}
		return body
	}
}

// randomText returns UTF-8 text of length characters, some of which are rare.
func randomText(random *rand.Rand, length int) string {
	const rare = "aZ09 \x00\t\r\n\"\\&=;+%<>/?#'äßÿ\u2028\ufeff\ufffd漢🪝"
	runes := []rune(rare)
	text := make([]rune, length)
	for i := range text {
		text[i] = runes[random.IntN(len(runes))]
	}
	return string(text)
}

// printable returns length random ASCII characters that the value of a header may contain.
func printable(random *rand.Rand, length int) string {
	text := make([]byte, length)
	for i := range text {
		text[i] = byte(' ' + random.IntN('~'-' '+1))
	}
	return string(text)
}

// request is the webhook request stored in a start message or a rejection.
type request struct {
	payload        execution.Payload
	headers, query execution.Values
}

// requestsOn returns the requests of all start messages and rejections in the shared stream, keyed
// by execution ID.
func requestsOn(t *testing.T, natsURL string) map[string]request {
	t.Helper()
	js, err := jetstream.New(connect(t, natsURL))
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), stream.ExecutionsName)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]request{}
	for sequence := uint64(1); sequence <= s.CachedInfo().State.LastSeq; sequence++ {
		msg, err := s.GetMsg(t.Context(), sequence)
		if err != nil {
			t.Fatal(err)
		}
		event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
		switch {
		case err != nil:
			t.Fatal(err)
		case event.Start != nil:
			found[event.Start.ID] = request{
				event.Start.Payload, event.Start.Headers, event.Start.Query,
			}
		case event.Rejection != nil:
			found[event.Rejection.ID] = request{
				event.Rejection.Payload, event.Rejection.Headers, event.Rejection.Query,
			}
		}
	}
	return found
}
