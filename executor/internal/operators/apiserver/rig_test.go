package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/changes"
	"github.com/hookstart/hookstart/executor/internal/operators/apiserver"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/executor/internal/operators/queuestreams"
	"github.com/hookstart/hookstart/executor/internal/operators/reachability"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/executor/internal/operators/testsend"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

const adminToken = "an-admin-token-for-tests"

// rig is an API, configured as an executor configures it, with its own HTTP server.
type rig struct {
	*registrytest.Registry
	t       *testing.T
	nats    *natstest.Node
	nc      *nats.Conn
	store   store.Store
	changes *changes.Notifier
	operate *operate.Service
	keyring *operate.Keyring
	server  *httptest.Server
	log     *logtest.Buffer
}

type (
	calls  = operate.Config
	access = signin.Config
)

// config configures an API, the service behind it, and the sign-in.
type config struct {
	apiserver.Config
	calls
	access
	wrap func(api http.Handler) http.Handler
}

// start starts a rig. change can modify its config and its server before the start.
func start(t *testing.T, change ...func(*config, *http.Server)) *rig {
	t.Helper()
	return startWithKeys(t, nil, change...)
}

// startWithKeys is like start, but with keys that encrypt secrets.
func startWithKeys(
	t *testing.T, keys *seal.Keys, change ...func(*config, *http.Server),
) *rig {
	t.Helper()
	r := &rig{t: t, nats: natstest.Start(t), log: &logtest.Buffer{}}
	r.nc = r.nats.Connect(t, nats.ReconnectBufSize(-1))
	r.Registry = registrytest.StartWithKeys(t, r.nc, keys)
	records, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "hookstart.db"))
	r.check(err)
	t.Cleanup(func() { _ = records.Close() })
	r.store = records
	r.changes, err = changes.New(r.nc)
	r.check(err)
	t.Cleanup(r.changes.Stop)

	waits, err := queues.New(queues.Config{
		Conn:             r.nc,
		JetStream:        r.JetStream,
		QueueNames:       r.RegistryIndex.QueueNames,
		Settings:         r.RegistryIndex.QueueSettings,
		RecorderConsumer: "executor",
	})
	r.check(err)
	t.Cleanup(waits.Stop)

	log := logrus.New()
	log.SetOutput(r.log)
	log.SetLevel(logrus.TraceLevel)
	r.keyring = operate.NewKeyring(r.Editor, r.RegistryIndex, r.store, log)
	c := config{
		calls: calls{
			Editor:        r.Editor,
			RegistryIndex: r.RegistryIndex,
			Membership:    r.Membership,
			Store:         r.store,
			JetStream:     r.JetStream,
			Queues:        waits,
			StreamMover: queuestreams.New(queuestreams.Config{
				JetStream: r.JetStream, Editor: r.Editor, RegistryIndex: r.RegistryIndex,
				Settings: stream.DefaultSettings, Log: log,
			}),
			Changes:        r.changes,
			Keyring:        r.keyring,
			PublicURL:      "https://hooks.example.com/",
			Reachability:   reachability.New("https://hooks.example.com/", r.Membership),
			TestSendClient: testsend.New(),
		},
		access: access{
			AdminToken:      adminToken,
			Keys:            r.keyring,
			RevokedSessions: operate.NewRevokedSessions(r.store),
		},
		Config: apiserver.Config{Log: log},
		wrap:   func(api http.Handler) http.Handler { return api },
	}
	r.server = httptest.NewUnstartedServer(nil)
	for _, change := range change {
		change(&c, r.server.Config)
	}
	c.Operate, c.SignIn = operate.New(c.calls), signin.New(c.access)
	r.operate = c.Operate
	r.server.Config.Handler = c.wrap(apiserver.New(c.Config))
	r.server.Start()
	t.Cleanup(r.server.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the API's log:\n%s", r.log)
		}
		if text := r.log.String(); strings.Contains(text, adminToken) ||
			strings.Contains(text, operate.APIKeyPrefix) ||
			strings.Contains(text, webhook.TokenPrefix) {
			t.Errorf("a token is in the log:\n%s", text)
		}
	})
	return r
}

// in returns a copy of the rig that reports to the subtest t.
func (r *rig) in(t *testing.T) *rig {
	sub := *r
	sub.t = t
	return &sub
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

type answer struct {
	t      *testing.T
	call   string
	status int
	header http.Header
	body   []byte
}

// call makes a call with the admin token, and checks that the response is as documented. path is
// relative to /api/v1 unless it includes that prefix.
func (r *rig) call(method, path, body string, change ...func(*http.Request)) answer {
	r.t.Helper()
	if !strings.HasPrefix(path, "/api/") {
		path = "/api/v1" + path
	}
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path,
		strings.NewReader(body))
	r.check(err)
	request.Header.Set("Authorization", "Bearer "+adminToken)
	for _, c := range change {
		c(request)
	}
	response, err := r.server.Client().Do(request)
	r.check(err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	r.check(err)
	a := answer{
		t:      r.t,
		call:   method + " " + path,
		status: response.StatusCode,
		header: response.Header,
		body:   text,
	}
	r.conforms(method, path, a)
	return a
}

func (r *rig) get(path string) answer { r.t.Helper(); return r.call(http.MethodGet, path, "") }

func (r *rig) put(path, body string) answer {
	r.t.Helper()
	return r.call(http.MethodPut, path, body)
}

func (r *rig) post(path, body string) answer {
	r.t.Helper()
	return r.call(http.MethodPost, path, body)
}

func (r *rig) delete(path string) answer {
	r.t.Helper()
	return r.call(http.MethodDelete, path, "")
}

// is checks that the response has the given status, and returns the response.
func (a answer) is(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: %d, want %d\n%.2000s", a.call, a.status, status, a.body)
	}
	if a.header.Get("Cache-Control") != "no-store" {
		a.t.Errorf("%s may be cached", a.call)
	}
	return a
}

// refused checks that the response is a problem with the given status and code, and that it has the
// members that every problem must have.
func (a answer) refused(status int, code string) api.Problem {
	a.t.Helper()
	a.is(status)
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		a.t.Errorf("%s: Content-Type %q", a.call, got)
	}
	var members map[string]any
	if err := json.Unmarshal(a.body, &members); err != nil {
		a.t.Fatal(err)
	}
	if success, ok := members["success"]; !ok || success != false {
		a.t.Errorf("%s: success is %v", a.call, success)
	}
	p := decode[api.Problem](a)
	retryable := status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests
	switch {
	case p.Code != code:
		a.t.Errorf("%s: code %q, want %q\n%s", a.call, p.Code, code, a.body)
	case p.Type != "https://github.com/hookstart/hookstart#"+code, p.Status != status,
		p.Title == "", p.Detail == "",
		p.Retryable != retryable, (p.RetryAfter > 0) != retryable:
		a.t.Errorf("%s: %s", a.call, a.body)
	case retryable && a.header.Get("Retry-After") != fmt.Sprint(p.RetryAfter):
		a.t.Errorf("%s: Retry-After %q", a.call, a.header.Get("Retry-After"))
	}
	return p
}

func decode[T any](a answer) T {
	a.t.Helper()
	var v T
	decoder := json.NewDecoder(bytes.NewReader(a.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&v); err != nil {
		a.t.Fatalf("%s: %v\n%.2000s", a.call, err, a.body)
	}
	return v
}

func (r *rig) account(id, plan string) api.Account {
	r.t.Helper()
	return decode[api.Account](r.put("/accounts/"+id,
		fmt.Sprintf(`{"name":"An account","plan":%q}`, plan)))
}

func (r *rig) workflow(id, account string, nodes ...string) api.Workflow {
	r.t.Helper()
	triggers := make([]string, len(nodes))
	for i, node := range nodes {
		triggers[i] = fmt.Sprintf(`{"nodeId":%q,"name":"Node %s"}`, node, node)
	}
	return decode[api.Workflow](r.put("/workflows/"+id,
		fmt.Sprintf(`{"accountId":%q,"name":"A workflow","triggers":[%s]}`, account,
			strings.Join(triggers, ","))))
}

func (r *rig) trigger(workflow, node string) api.Trigger {
	r.t.Helper()
	return decode[api.Trigger](r.get("/workflows/" + workflow + "/triggers/" + node).is(200))
}

// message publishes msg to the stream and returns its sequence. It fails the test if err is not
// nil, so that it can be called directly with the results of a function such as
// stream.StartMessage.
func (r *rig) message(msg *nats.Msg, err error) uint64 {
	r.t.Helper()
	r.check(err)
	ack, err := r.JetStream.PublishMsg(r.t.Context(), msg)
	r.check(err)
	return ack.Sequence
}

// records stores a batch in the database and announces the changed records, as the recorder does.
func (r *rig) records(batch store.Batch) {
	r.t.Helper()
	applied, err := r.store.Apply(r.t.Context(), batch)
	r.check(err)
	r.check(r.changes.Publish(applied.ChangedIDs))
}

// record returns a record with the given ID and all required fields. The functions in change can
// modify it.
func record(id string, change ...func(*store.Record)) store.Record {
	rec := store.Record{
		ID: id, AccountID: "acme", WorkflowID: "wf", NodeID: "node", Queue: execution.DefaultQueue,
		Source: execution.SourceWebhook, Status: execution.Queued,
		AcceptedAt: epoch, RecordedAt: epoch.Add(time.Millisecond),
		ContentType: "application/json", BodyBytes: 2, StreamSequence: 1,
	}
	for _, c := range change {
		c(&rec)
	}
	return rec
}

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)

// id returns an execution ID that depends only on n.
func id(n int) string { return fmt.Sprintf("%08x-0000-7000-8000-%012x", n, n) }

// lastStart returns the newest start message in the stream, and its sequence.
func (r *rig) lastStart() (*execution.Start, uint64) {
	r.t.Helper()
	s, err := r.JetStream.Stream(r.t.Context(), stream.ExecutionsName)
	r.check(err)
	msg, err := s.GetLastMsgForSubject(r.t.Context(), stream.QueueFilterSubject("*"))
	r.check(err)
	event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	r.check(err)
	return event.Start, msg.Sequence
}

func (r *rig) streamHandle() jetstream.Stream {
	r.t.Helper()
	s, err := r.JetStream.Stream(r.t.Context(), stream.ExecutionsName)
	r.check(err)
	return s
}

// eventually calls done repeatedly until it returns true. Use it to wait for conditions that
// nothing signals.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatal("it did not come to that")
		case <-tick.C:
		}
	}
}
