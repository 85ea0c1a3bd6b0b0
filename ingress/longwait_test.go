package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/ingress/internal/await"
	"github.com/hookstart/hookstart/ingress/internal/publish"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// startedIDs is a stream that confirms every message but keeps only the execution ID.
type startedIDs chan string

func (s startedIDs) LookupDuplicate(*nats.Msg) (publish.Ack, error) {
	return publish.Ack{}, publish.ErrStorageFull
}

func (s startedIDs) Publish(msg *nats.Msg, _ publish.StreamChoice) (publish.Ack, error) {
	s <- msg.Header.Get(stream.HeaderExecutionID)
	return publish.Ack{Sequence: 1}, nil
}

// waitingServer is a server with one workflow, whose responses wait for the execution to finish.
// Its start messages are not stored, and no runner runs: the test itself publishes the final
// reports.
type waitingServer struct {
	t       *testing.T
	h       *handler
	started startedIDs
	nc      *nats.Conn
	server  *http.Server
	client  *http.Client
	url     string
}

const shortTimeout = 500 * time.Millisecond

// serveWaiting starts a waitingServer that speaks the protocol "HTTP/1.1" or "HTTP/2.0". Its
// timeouts for reading a body and for writing a response are much shorter than the time that
// responses wait.
func serveWaiting(t *testing.T, protocol string) *waitingServer {
	t.Helper()
	nc := natstest.Start(t).Connect(t)
	js, err := jetstream.New(nc)
	if err == nil {
		err = stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings)
	}
	if err != nil {
		t.Fatal(err)
	}
	h, token, _, _, _ := tryWaiting(t, alwaysValid{}, &registry.SyncResponse{WaitSeconds: 25})
	h.responseTimeout, h.bodyTimeout = shortTimeout, shortTimeout
	h.waits = await.New(nc, 10)
	s := &waitingServer{t: t, h: h, started: make(startedIDs, 1), nc: nc, server: h.server(h.log)}
	h.publisher = s.started
	var protocols http.Protocols
	protocols.SetHTTP1(protocol == "HTTP/1.1")
	protocols.SetUnencryptedHTTP2(protocol == "HTTP/2.0")
	s.server.Protocols = &protocols
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(listener) }()
	t.Cleanup(func() {
		_ = s.server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	s.url = "http://" + listener.Addr().String() + "/webhooks/wf?token=" + url.QueryEscape(token)
	return s
}

// post sends a request. The returned channel receives the response as "PROTOCOL STATUS BODY", or
// the error.
func (s *waitingServer) post(ctx context.Context) <-chan string {
	s.t.Helper()
	result := make(chan string, 1)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader("{}"))
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		response, err := s.client.Do(request)
		if err != nil {
			result <- err.Error()
			return
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			result <- err.Error()
			return
		}
		result <- fmt.Sprint(response.Proto, " ", response.StatusCode, " ", string(body))
	}()
	return result
}

// startedID waits for the next start message and returns its execution ID.
func (s *waitingServer) startedID() string {
	s.t.Helper()
	select {
	case id := <-s.started:
		return id
	case <-time.After(20 * time.Second):
		s.t.Fatal("no execution has started")
		return ""
	}
}

func (s *waitingServer) until(what string, done func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	if retry.Until(ctx, time.Millisecond, done); !done() {
		s.t.Fatalf("no %s", what)
	}
}

// end publishes the report that an execution has succeeded with the given output.
func (s *waitingServer) end(id, output string) {
	s.t.Helper()
	msg, err := stream.ProgressMessage("q", "wf", "node", "", execution.Progress{
		ID: id, Status: execution.Succeeded, At: time.Now(), Attempt: 1, Output: []byte(output),
	})
	if err == nil {
		_, err = s.nc.RequestMsg(msg, 10*time.Second) // the stream's acknowledgement
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *waitingServer) expect(what string, got <-chan string, want string) {
	s.t.Helper()
	if text := <-got; text != want {
		s.t.Errorf("%s: %s, want %s", what, text, want)
	}
}

// A response may wait for longer than the timeouts for reading a body and for writing a response.
// When a sender disconnects, the subscription and the slot of its request are freed, while other
// requests on the same connection continue to wait. When the server shuts down, waiting requests
// get a 202.
func TestAnswersWaitOverEachProtocol(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s := serveWaiting(t, protocol)
			subscriptions := s.nc.NumSubscriptions()
			answer := func(status int, id, rest string) string {
				return fmt.Sprintf(`%s %d {"success":true,"executionId":"%s","status":%s}`,
					protocol, status, id, rest)
			}

			first := s.post(t.Context())
			firstID := s.startedID()
			ctx, leave := context.WithCancel(t.Context())
			gone := s.post(ctx)
			s.startedID()
			s.until("two requests that wait", func() bool { return s.h.waits.Waiting() == 2 })
			<-time.After(4 * shortTimeout)
			leave()
			if said := <-gone; !strings.Contains(said, context.Canceled.Error()) {
				t.Errorf("the sender that left: %s", said)
			}
			s.until("place that is free again", func() bool { return s.h.waits.Waiting() == 1 })
			s.end(firstID, `{"n":1}`)
			s.expect("later than the timeouts", first,
				answer(200, firstID, `"succeeded","output":{"n":1}`))
			s.until("end of all waiting", func() bool { return s.h.waits.Waiting() == 0 })
			// One additional subscription is allowed: the connection's own, for replies to its
			// requests.
			if now := s.nc.NumSubscriptions(); now > subscriptions+1 {
				t.Errorf("%d subscriptions became %d", subscriptions, now)
			}

			last := s.post(t.Context())
			lastID := s.startedID()
			soon, cancel := context.WithTimeout(t.Context(), 20*time.Second) // less than the wait
			defer cancel()
			if err := s.server.Shutdown(soon); err != nil {
				t.Error(err)
			}
			s.expect("the server stops", last, answer(202, lastID, `"queued"`))
		})
	}
}
