package ingress

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/publish"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

type neverValid struct{}

func (neverValid) IsValid(time.Time) bool           { return false }
func (neverValid) IsValidSince(_, _ time.Time) bool { return false }
func (neverValid) AwaitValid(time.Time) bool        { return false }

// expiring is a lease that expires when AwaitValid is first called. That call still returns true.
type expiring struct{ asked atomic.Bool }

func (e *expiring) IsValid(time.Time) bool           { return !e.asked.Load() }
func (e *expiring) IsValidSince(_, _ time.Time) bool { return !e.asked.Load() }
func (e *expiring) AwaitValid(time.Time) bool        { return !e.asked.Swap(true) }

// An ingress without a lease was suspended or is cut off from NATS. Its copy of the registry may be
// stale: since the lease expired, the workflow may have been created, deactivated or given another
// token. Wherever the response would depend on the registry, the ingress therefore responds with
// 503, which tells the sender to retry.
func TestNothingIsRefusedForGoodWithoutALease(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path          string
		with, without int
	}{
		{"/webhooks/wf?token=right", http.StatusOK, http.StatusServiceUnavailable},
		{"/webhooks/wf?token=wrong", http.StatusForbidden, http.StatusServiceUnavailable},
		{"/webhooks/unknown?token=right", http.StatusNotFound, http.StatusServiceUnavailable},
		{"/webhooks/no.name?token=right", http.StatusNotFound, http.StatusNotFound},
		{"/webhooks/wf", http.StatusBadRequest, http.StatusBadRequest},
		{"/webhooks/?token=right", http.StatusBadRequest, http.StatusBadRequest},
		{"/elsewhere", http.StatusNotFound, http.StatusNotFound},
	} {
		for l, want := range map[registryLease]int{
			alwaysValid{}: tt.with,
			neverValid{}:  tt.without,
		} {
			h, token, _, _, _ := tryHandler(t, l)
			response := httptest.NewRecorder()
			path := strings.Replace(tt.path, "right", token, 1)
			h.router().ServeHTTP(response, httptest.NewRequest(http.MethodPost, path, nil))
			if response.Code != want {
				t.Errorf("%s with %T: %d, want %d", tt.path, l, response.Code, want)
			}
			if retryAfter := response.Header().Get("Retry-After"); (retryAfter != "") !=
				(want == http.StatusServiceUnavailable) {
				t.Errorf("%s with %T: Retry-After %q", tt.path, l, retryAfter)
			}
		}
	}
}

// Without a lease, an ingress does not permanently refuse a handshake with a method other than
// POST. Its copy of the registry may be stale: a node with such a handshake may have been created
// since the lease expired.
func TestNoHandshakeIsRefusedForGoodWithoutALease(t *testing.T) {
	t.Parallel()
	const challenge = "hub.mode=subscribe&hub.challenge=1"
	for _, tt := range []struct {
		method, path, origin string
		without              int
	}{
		{"GET", "/webhooks/wf?token=wrong&" + challenge, "", http.StatusServiceUnavailable},
		{"GET", "/webhooks/unknown?token=t&" + challenge, "", http.StatusServiceUnavailable},
		{"GET", "/webhooks/wf?token=wrong", "", http.StatusMethodNotAllowed},
		{"GET", "/webhooks/wf?" + challenge, "", http.StatusMethodNotAllowed},
		{"HEAD", "/webhooks/unknown?token=t", "", http.StatusServiceUnavailable},
		{"OPTIONS", "/webhooks/unknown?token=t", "e.example", http.StatusServiceUnavailable},
		{"OPTIONS", "/webhooks/unknown?token=t", "", http.StatusMethodNotAllowed},
	} {
		for l, want := range map[registryLease]int{
			alwaysValid{}: http.StatusMethodNotAllowed,
			neverValid{}:  tt.without,
		} {
			h, _, _, _, _ := tryHandler(t, l)
			response, r := httptest.NewRecorder(), httptest.NewRequest(tt.method, tt.path, nil)
			r.Header.Set("WebHook-Request-Origin", tt.origin)
			h.router().ServeHTTP(response, r)
			if response.Code != want {
				t.Errorf("%s %s with %T: %d, want %d", tt.method, tt.path, l, response.Code, want)
			}
		}
	}
}

// An ingress without a lease accepts nothing, because its copy of the registry may be stale and the
// workflow may have been deactivated. This also holds if the lease expires during a request.
func TestNothingIsAcceptedWithoutALease(t *testing.T) {
	t.Parallel()
	for l, want := range map[registryLease]int{
		alwaysValid{}: http.StatusOK,
		neverValid{}:  http.StatusServiceUnavailable,
		&expiring{}:   http.StatusServiceUnavailable, // the lease expires during the request
	} {
		h, token, messages, _, _ := tryHandler(t, l)
		response := httptest.NewRecorder()
		h.router().ServeHTTP(response,
			httptest.NewRequest(http.MethodPost, "/webhooks/wf?token="+token, nil))
		if stored := messages.last != nil; response.Code != want ||
			stored != (want == http.StatusOK) {
			t.Errorf("%d, stored: %t, want %d", response.Code, stored, want)
		}
	}
}

// changingBody is a body that calls the function change before each read.
type changingBody struct {
	io.Reader

	change func()
}

func (b *changingBody) Read(into []byte) (int, error) {
	b.change()
	return b.Reader.Read(into)
}

// deadlineRecorder is a ResponseRecorder that accepts read deadlines. The handler refuses to read a
// body if it cannot set a deadline.
type deadlineRecorder struct{ *httptest.ResponseRecorder }

func (deadlineRecorder) SetReadDeadline(time.Time) error { return nil }

// A workflow is deleted while the ingress reads the body of a request. The request is refused with
// 503. It is also refused if another account creates a workflow with the same ID before the body
// has arrived. If the same account creates the new workflow, the request is accepted.
func TestAWorkflowDeletedWhileTheBodyIsRead(t *testing.T) {
	t.Parallel()
	plans, err := edit.ParsePlans(edit.DefaultPlansJSON)
	if err != nil {
		t.Fatal(err)
	}
	for newAccount, want := range map[string]int{
		"":  http.StatusServiceUnavailable,
		"a": http.StatusOK,
		"b": http.StatusServiceUnavailable,
	} {
		h, token, messages, _, _ := tryHandler(t, alwaysValid{})
		snapshot := registry.NewSnapshot(nil)
		create := func(account, token string) {
			snapshot.Apply(registry.Change{Workflow: &registry.Workflow{
				ID: "wf", AccountID: account, Queue: "q", Active: true,
				Triggers: []registry.Trigger{{
					NodeID: "node",
					Tokens: []registry.HashedToken{{Hash: registry.HashToken(token)}},
				}},
			}})
		}
		snapshot.Apply(registry.Change{Plans: plans})
		for _, account := range []string{"a", "b"} {
			snapshot.Apply(registry.Change{Account: &registry.Account{ID: account, Plan: "pro"}})
		}
		create("a", token)
		snapshot.FinishLoad()
		h.admission = admission.New(snapshot, admission.NewLimiter())
		body := &changingBody{strings.NewReader("{}"), sync.OnceFunc(func() {
			snapshot.Apply(registry.Change{DeletedWorkflow: "wf"})
			if newAccount != "" {
				create(newAccount, registry.NewToken())
			}
		})}
		response := httptest.NewRecorder()
		h.router().ServeHTTP(deadlineRecorder{response},
			httptest.NewRequest(http.MethodPost, "/webhooks/wf?token="+token, body))
		if stored := messages.last != nil; response.Code != want ||
			stored != (want == http.StatusOK) {
			t.Errorf("with a new workflow of account %q: %d, stored: %t, want %d", newAccount,
				response.Code, stored, want)
		}
	}
}

// togglingLease is a lease that a test can let expire and renew.
type togglingLease struct{ expired, renewed atomic.Bool }

func (l *togglingLease) IsValid(time.Time) bool { return !l.expired.Load() || l.renewed.Load() }

func (l *togglingLease) IsValidSince(_, _ time.Time) bool { return !l.expired.Load() }

func (l *togglingLease) AwaitValid(now time.Time) bool { return l.IsValid(now) }

// retryingStream simulates a stream that did not reply to the first attempt to store a message. Its
// Publish method is the second attempt: it calls the function in the field meanwhile, and then
// stores the message only if choice is still current, that is, if the registry still selects the
// same stream.
type retryingStream struct {
	storedMessages

	meanwhile func()
}

func (s *retryingStream) Publish(
	msg *nats.Msg, choice publish.StreamChoice,
) (publish.Ack, error) {
	s.meanwhile()
	if !choice.IsCurrent() {
		return publish.Ack{}, publish.ErrUnavailable
	}
	return s.storedMessages.Publish(msg, choice)
}

// An ingress publishes a message, gets no reply, and must decide whether to send the message again.
// While its lease is valid, it sends the message again, even if the queue or the workflow is
// already closed for a move, because executors wait for the ingress before they complete a move.
//
// If its lease has expired, executors may have presumed the ingress dead and completed the move.
// The ingress then sends the message again only if the lease is renewed and the registry still
// selects the same stream.
func TestNothingIsSentAgainToAStreamThatWasMovedFrom(t *testing.T) {
	t.Parallel()
	plans, err := edit.ParsePlans(edit.DefaultPlansJSON)
	if err != nil {
		t.Fatal(err)
	}
	const accepted, refused = http.StatusOK, http.StatusServiceUnavailable
	type leaseChange struct{ expired, renewed bool }
	for name, tt := range map[string]struct {
		change  func(*registry.Workflow) registry.Change
		renewed int // the status if the lease expires and is renewed
	}{
		"nothing happens": {nil, accepted},
		"the workflow is edited": {func(w *registry.Workflow) registry.Change {
			w.Name = "another"
			return registry.Change{Workflow: w}
		}, accepted},
		"the queue moves": {func(*registry.Workflow) registry.Change {
			return registry.Change{Queue: &registry.Queue{Name: "q", Stream: &registry.QueueStream{
				Phase: registry.QueuePhaseOwnStream,
			}}}
		}, refused},
		"the queue closes": {func(*registry.Workflow) registry.Change {
			return registry.Change{Queue: &registry.Queue{Name: "q", Stream: &registry.QueueStream{
				Phase: registry.QueuePhaseClosedMovingToOwn,
			}}}
		}, refused},
		"the workflow changes its queue": {func(w *registry.Workflow) registry.Change {
			w.Queue = "another"
			return registry.Change{Workflow: w}
		}, refused},
		"the workflow closes": {func(w *registry.Workflow) registry.Change {
			w.IntakeClosed = true
			return registry.Change{Workflow: w}
		}, refused},
		"the workflow is deleted": {func(*registry.Workflow) registry.Change {
			return registry.Change{DeletedWorkflow: "wf"}
		}, refused},
	} {
		for of, want := range map[leaseChange]int{
			{}:                             accepted,
			{expired: true}:                refused,
			{expired: true, renewed: true}: tt.renewed,
		} {
			lease := &togglingLease{}
			h, token, _, _, _ := tryHandler(t, lease)
			snapshot := registry.NewSnapshot(nil)
			workflow := func() *registry.Workflow {
				return &registry.Workflow{
					ID: "wf", AccountID: "a", Queue: "q", Active: true,
					Triggers: []registry.Trigger{{
						NodeID: "node",
						Tokens: []registry.HashedToken{{Hash: registry.HashToken(token)}},
					}},
				}
			}
			snapshot.Apply(registry.Change{Plans: plans})
			snapshot.Apply(registry.Change{Account: &registry.Account{ID: "a", Plan: "pro"}})
			snapshot.Apply(registry.Change{Workflow: workflow()})
			snapshot.FinishLoad()
			h.admission = admission.New(snapshot, admission.NewLimiter())
			h.publisher = &retryingStream{meanwhile: func() {
				lease.expired.Store(of.expired)
				lease.renewed.Store(of.renewed)
				if tt.change != nil {
					snapshot.Apply(tt.change(workflow()))
				}
			}}
			response := httptest.NewRecorder()
			h.router().ServeHTTP(response,
				httptest.NewRequest(http.MethodPost, "/webhooks/wf?token="+token, nil))
			if response.Code != want {
				t.Errorf("%s, %+v: %d, want %d", name, of, response.Code, want)
			}
		}
	}
}
