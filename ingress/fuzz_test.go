package ingress

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/publish"
	"github.com/hookstart/hookstart/ingress/internal/redact"
	"github.com/hookstart/hookstart/ingress/internal/report"
	"github.com/hookstart/hookstart/ingress/internal/storage"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/probe"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
)

// FuzzBody checks that a body with any Content-Type is either refused, or becomes an input from
// which the exact bytes of the body can be restored.
func FuzzBody(f *testing.F) {
	f.Add("application/json", []byte(`{"a":[1]}`))
	f.Add("APPLICATION/JSON;", []byte("\xff"))
	f.Add("text/plain", []byte("\xff\x00"))
	f.Add("", []byte("\u2028<&>"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		p, err := execution.NewPayload(redact.HeaderToUTF8(contentType), body)
		if err != nil {
			if !strings.Contains(strings.ToLower(contentType), "application/json") {
				t.Fatalf("%q refused", contentType)
			}
			return
		}
		if !execution.ValidJSON(p.WorkflowInput()) {
			t.Fatalf("the input is not valid JSON: %q", p.WorkflowInput())
		}
		if p.Kind == execution.BodyJSON {
			if !bytes.Equal(p.WorkflowInput(), body) {
				t.Error("JSON was changed")
			}
			return
		}
		var input struct {
			Body         string
			BodyEncoding string
		}
		if err := json.Unmarshal(p.WorkflowInput(), &input); err != nil {
			t.Fatal(err)
		}
		got := []byte(input.Body)
		if input.BodyEncoding == "base64" {
			if got, err = base64.StdEncoding.DecodeString(input.Body); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, body) {
			t.Errorf("%q became %q", body, got)
		}
	})
}

// FuzzHeaders checks that a message can be encoded with any request headers. The message must
// contain neither the token nor headers that must not be forwarded.
func FuzzHeaders(f *testing.F) {
	f.Add("X-Webhook-Delivery-Id", "1", "Authorization", "Bearer x")
	f.Add("X-GitHub-Delivery", "\xe9", "cookie", "a")
	f.Add("Referer", "https://x/?token=hst_token", "Webhook-Id", "")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		if !utf8.ValidString(name1) || !utf8.ValidString(name2) {
			return // net/http rejects such names
		}
		const token = "hst_token"
		h := newHandler(Config{RequestFlags: RequestFlags{
			DeliveryIDHeaders: []string{"X-GitHub-Delivery", "Webhook-Id"},
		}}, dependencies{})
		header := http.Header{}
		header.Add(name1, value1)
		header.Add(name2, value2)
		d := &delivery{r: &http.Request{
			URL: &url.URL{RawQuery: "token=" + token}, Header: header,
		}}
		d.redactor = redact.New(d.r)
		h.findDeliveryID(d)
		deliveryID := d.id.ID
		msg, err := stream.StartMessage(execution.Start{
			ID:         execution.IDForDelivery("wf", "node", deliveryID),
			WorkflowID: "wf",
			NodeID:     "node",
			AccountID:  "a",
			Queue:      "q",
			DeliveryID: redact.HeaderToUTF8(deliveryID),
			Headers:    d.redactor.AddHeadersTo(execution.Values{}, nil),
			Payload:    execution.Payload{Kind: execution.BodyText},
			Trace:      newTraceparent(header),
		})
		if err != nil {
			t.Fatal(err)
		}
		event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		for name, values := range event.Start.Headers {
			switch name {
			case "Authorization", "Cookie", "Proxy-Authorization", "X-Gitlab-Token",
				"X-Goog-Channel-Token":
				t.Errorf("%s travels on", name)
			}
			for _, value := range values {
				if strings.Contains(value, token) {
					t.Errorf("the token travels on in %s", name)
				}
			}
		}
		if !isValidTraceparent(event.Start.Trace) {
			t.Errorf("traceparent %q", event.Start.Trace)
		}
	})
}

// storedMessages is a stream that accepts every message.
type storedMessages struct {
	mu   sync.Mutex
	last *nats.Msg
}

func (s *storedMessages) LookupDuplicate(*nats.Msg) (publish.Ack, error) {
	return publish.Ack{}, publish.ErrStorageFull
}

func (s *storedMessages) Publish(
	msg *nats.Msg, _ publish.StreamChoice,
) (publish.Ack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = msg
	return publish.Ack{Sequence: 1}, nil
}

// lastRefused is a refusalCounter that stores the last refusal.
type lastRefused struct {
	mu        sync.Mutex
	userAgent string
}

func (l *lastRefused) Count(_, _ string, request stream.RefusedRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.userAgent = request.UserAgent
}

func (l *lastRefused) agent() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.userAgent
}

// seenSenders is a senderObserver that stores the last observation.
type seenSenders struct {
	mu   sync.Mutex
	last report.SenderObservation
	full bool // if true, Observe discards every observation and returns false
}

func (s *seenSenders) Observe(_, _, _ string, seen report.SenderObservation) (observed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = seen
	return !s.full
}

type alwaysValid struct{}

func (alwaysValid) IsValid(time.Time) bool           { return true }
func (alwaysValid) IsValidSince(_, _ time.Time) bool { return true }
func (alwaysValid) AwaitValid(time.Time) bool        { return true }

// tryHandler returns a handler with one workflow, wf, and with test doubles for all its
// dependencies. It also returns the token of the workflow's node, and what the test doubles record:
// the messages, the last refusal and the log.
func tryHandler(
	tb testing.TB, l registryLease,
) (h *handler, token string, messages *storedMessages, refused *lastRefused, logged *bytes.Buffer) {
	tb.Helper()
	return tryWaiting(tb, l, nil)
}

// tryWaiting is like tryHandler, but a determines how the responses of the workflow's node wait for
// the execution. If a is nil, they do not wait.
func tryWaiting(
	tb testing.TB, l registryLease, a *registry.SyncResponse,
) (h *handler, token string, messages *storedMessages, refused *lastRefused, logged *bytes.Buffer) {
	tb.Helper()
	token = registry.NewToken()
	hash := registry.HashToken(token)
	plans, err := edit.ParsePlans(edit.DefaultPlansJSON)
	if err != nil {
		tb.Fatal(err)
	}
	snapshot := registry.NewSnapshot(nil)
	snapshot.Apply(registry.Change{Plans: plans})
	snapshot.Apply(registry.Change{Account: &registry.Account{ID: "a", Plan: "pro"}})
	snapshot.Apply(registry.Change{Workflow: &registry.Workflow{
		ID: "wf", AccountID: "a", Queue: "q", Active: true,
		RateLimit: registry.RateLimit{Requests: 1_000_000, Window: time.Second},
		Triggers: []registry.Trigger{
			{NodeID: "node", Tokens: []registry.HashedToken{{Hash: hash}}, SyncResponse: a},
		},
	}})
	snapshot.FinishLoad()
	messages, refused, logged = &storedMessages{}, &lastRefused{}, &bytes.Buffer{}
	log := logrus.New()
	log.SetOutput(logged)
	h = newHandler(Config{
		RequestFlags: RequestFlags{MaxBodyBytes: 1000},
		ReadFlags:    ReadFlags{BodyTimeout: 50 * time.Millisecond, MaxInFlight: 100},
		BufferFlags:  BufferFlags{MaxBufferedBytes: 1 << 20},
	}, dependencies{
		admission:            admission.New(snapshot, admission.NewLimiter()),
		queuesWithOwnStreams: snapshot.QueuesWithOwnStreams,
		lease:                l,
		publisher:            messages,
		space:                storage.New(snapshot.AccountCount),
		refusals:             refused,
		senders:              &seenSenders{},
		probes:               probe.NewResponder(probe.NewKey()),
		metrics:              newRequestMetrics(prometheus.NewRegistry()),
		log:                  log,
	})
	return h, token, messages, refused, logged
}

// FuzzRequest sends arbitrary bytes over a socket, in every part of a request that a sender
// controls. The handler must respond with one of the expected statuses and must not panic, and the
// token must appear in neither the response nor the log. If a well-formed request is accepted, its
// message must contain the exact body.
func FuzzRequest(f *testing.F) {
	f.Add("", "Content-Type: application/json", []byte(`{"a":1}`))
	f.Add("&a=%ff", "X-GitHub-Delivery: 1", []byte("x"))
	f.Add(" HTTP/1.0", "Expect: 100-continue", []byte(""))
	f.Add("", "Transfer-Encoding: chunked", []byte("1\r\nx\r\n0\r\n\r\n"))
	f.Add("", "User-Agent: x\r\nContent-Type: application/json", []byte(`{`))
	f.Add("", "Expect: 100-continue", []byte("x"))
	f.Add("#", "Content-Length: 5", []byte("\x00"))
	h, token, messages, refused, logged := tryHandler(f, alwaysValid{})
	server := httptest.NewUnstartedServer(h.router())
	// Use a Unix socket, because the large number of connections would exhaust the TCP ports.
	_ = server.Listener.Close()
	listener, err := net.Listen("unix", filepath.Join(f.TempDir(), "socket"))
	if err != nil {
		f.Fatal(err)
	}
	server.Listener = listener
	server.Config.MaxHeaderBytes = maxHeaderBytes
	server.Config.ErrorLog = nil
	server.Start()
	f.Cleanup(server.Close)

	f.Fuzz(func(t *testing.T, query, header string, body []byte) {
		logged.Reset()
		conn, err := net.Dial("unix", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		plain := !strings.ContainsAny(query, " \r\n#?") && !strings.ContainsAny(header, "\r\n")
		if header != "" { // an empty line would end the headers
			header += "\r\n"
		}
		_, _ = io.WriteString(conn,
			"POST /webhooks/wf?token="+token+query+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+
				"Content-Length: "+strconv.Itoa(len(body))+"\r\n"+header+"\r\n")
		_, _ = conn.Write(body)
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, nil)
		for err == nil && response.StatusCode == http.StatusContinue {
			response, err = http.ReadResponse(reader, nil)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("no response")
		}
		if err != nil {
			return // the server may close the connection if the bytes are not a request
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		switch response.StatusCode {
		case 200, 400, 403, 404, 405, 408, 413, 417, 431, 501, 505:
		default:
			t.Fatalf("%d %s", response.StatusCode, text)
		}
		if strings.Contains(string(text), token) || strings.Contains(logged.String(), token) ||
			strings.Contains(logged.String(), "panic") {
			t.Fatalf("response %s, log %s", text, logged.String())
		}
		if strings.Contains(refused.agent(), token) {
			t.Fatalf("kept of a refusal: %q", refused.agent())
		}
		if response.StatusCode == 200 && plain {
			messages.mu.Lock()
			defer messages.mu.Unlock()
			event, err := stream.Decode(messages.last.Subject, messages.last.Header,
				messages.last.Data)
			if err != nil {
				t.Fatal(err)
			}
			if chunked := strings.Contains(strings.ToLower(header),
				"transfer-encoding"); !chunked && !bytes.Equal(event.Start.Payload.Body, body) {
				t.Errorf("body %q became %q", body, event.Start.Payload.Body)
			}
		}
	})
}
