package ingress_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
)

// inQueue creates an active workflow that uses a queue, and returns its token.
func (f *fixture) inQueue(id, queue string) (token string) {
	f.t.Helper()
	ctx := f.t.Context()
	_, _, err := f.PutAccount(ctx, "ultra", "An account", "ultra")
	if err == nil {
		_, _, err = f.PutWorkflow(ctx, edit.WorkflowSpec{
			ID:        id,
			AccountID: "ultra",
			Name:      id,
			Queue:     queue,
			Triggers:  []edit.TriggerSpec{{NodeID: "node"}},
			RateLimit: &registry.RateLimit{Requests: 100_000, Window: time.Second},
		})
	}
	if err == nil {
		_, err = f.Activate(ctx, id)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return f.Token(f.t, id, "node")
}

// moveIn gives a queue its own stream, without copying the delivery IDs of earlier messages to it.
func (f *fixture) moveIn(queue string, limits stream.QueueStreamLimits) {
	f.t.Helper()
	ctx := f.t.Context()
	if err := stream.EnsureOwnStreams(ctx, f.JetStream, stream.DefaultSettings, queue,
		limits); err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.SetQueueStream(ctx, queue, edit.QueueStreamSpec{}); err != nil {
		f.t.Fatal(err)
	}
	f.phase(queue, registry.QueuePhaseOwnStream)
}

func (f *fixture) phase(queue string, phase registry.StreamPhase) {
	f.t.Helper()
	q, ok := f.RegistryIndex.Queue(queue)
	if !ok {
		f.t.Fatal("no such queue")
	}
	if _, err := f.SetStreamPhase(f.t.Context(), queue, q.Revision, phase); err != nil {
		f.t.Fatal(err)
	}
}

// stored returns the number of messages in a stream.
func (f *fixture) stored(name string) uint64 {
	f.t.Helper()
	s, err := f.JetStream.Stream(f.t.Context(), name)
	if err != nil {
		f.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// A queue moves between the shared stream and a stream of its own in several phases. As soon as a
// phase begins, every ingress stores start messages in the stream that belongs to the phase. In the
// phases that close the queue, it refuses the requests.
func TestStartsGoToTheQueuesOwnStream(t *testing.T) {
	t.Parallel()
	f := start(t)
	addresses := []string{f.addr, f.startIngress()}
	token := f.inQueue("wf", "q")
	f.moveIn("q", stream.QueueStreamLimits{})
	n := 0
	for _, c := range []struct {
		phase registry.StreamPhase
		name  string // name of the stream that stores the request; "" means that it is refused
	}{
		{registry.QueuePhaseOwnStream, stream.OwnStreamName("q")},
		{registry.QueuePhaseMovingToShared, stream.OwnStreamName("q")},
		{registry.QueuePhaseClosedMovingToShared, ""},
		{registry.QueuePhaseDrainingOwnStream, stream.ExecutionsName},
		{registry.QueuePhaseMovingToOwn, stream.ExecutionsName},
		{registry.QueuePhaseClosedMovingToOwn, ""},
		{registry.QueuePhaseOwnStream, stream.OwnStreamName("q")},
	} {
		f.phase("q", c.phase)
		for _, addr := range addresses {
			n++
			shared, own := f.stored(stream.ExecutionsName), f.stored(stream.OwnStreamName("q"))
			delivery := request{
				path:   "/webhooks/wf",
				token:  token,
				header: map[string]string{"X-Webhook-Delivery-Id": fmt.Sprint(n)},
			}
			a := f.sendTo(addr, delivery)
			wantShared, wantOwn := shared, own
			switch c.name {
			case "":
				if a.status != 503 || a.code() != "unavailable" ||
					a.header.Get("Retry-After") != "1" {
					t.Errorf("%s: %+v", c.phase, a)
				}
			case stream.ExecutionsName:
				wantShared++
			default:
				wantOwn++
			}
			if c.name != "" {
				if a.status != 200 || a.body["deduplicated"] != nil {
					t.Errorf("%s: %+v", c.phase, a)
				}
				again := f.sendTo(addr, delivery)
				if again.body["deduplicated"] != true || again.executionID() != a.executionID() {
					t.Errorf("%s, again: %+v", c.phase, again)
				}
			}
			if s, o := f.stored(stream.ExecutionsName),
				f.stored(stream.OwnStreamName("q")); s != wantShared ||
				o != wantOwn {
				t.Errorf("%s: %d and %d messages became %d and %d", c.phase, shared, own, s, o)
			}
		}
	}
	if _, err := f.Deactivate(t.Context(), "wf"); err != nil {
		t.Fatal(err)
	}
	before := f.stored(stream.OwnStreamName("q"))
	if a := f.send(request{path: "/webhooks/wf", token: token}); a.code() != "workflow_inactive" ||
		f.stored(stream.OwnStreamName("q")) != before+1 {
		t.Errorf("a rejection: %+v", a)
	}
}

// If a queue's own stream is full, only requests for that queue are refused, and the ingress stays
// ready. It also stays ready if only the shared stream is full.
func TestAFullStreamConcernsItsQueuesAlone(t *testing.T) {
	t.Parallel()
	var ops string
	f := start(t, func(c *ingress.Config) {
		ready := c.OnReady
		c.OnReady = func(l ingress.ListenAddresses) {
			ops = l.OpsAddr
			ready(l)
		}
	})
	isReady := func() (int, string) {
		t.Helper()
		response, err := http.Get("http://" + ops + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	fill := func(id, token string) {
		t.Helper()
		for range 100 {
			a := f.send(request{
				path:  "/webhooks/" + id,
				token: token,
				body:  strings.Repeat("x", 50_000),
			})
			if a.status != 200 {
				if a.code() != "storage_full" {
					t.Fatalf("%+v", a)
				}
				return
			}
		}
		t.Fatal("it does not get full")
	}
	loud, calm := f.inQueue("loud", "loud"), f.inQueue("calm", "calm")
	f.moveIn("loud", stream.QueueStreamLimits{MaxBytes: 1 << 20})
	fill("loud", loud)
	if a := f.send(request{path: "/webhooks/calm", token: calm}); a.status != 200 {
		t.Errorf("another queue: %+v", a)
	}
	if status, text := isReady(); status != 200 {
		t.Errorf("with a full own stream: %d %s", status, text)
	}

	f.moveIn("calm", stream.QueueStreamLimits{})
	shared, err := f.JetStream.Stream(t.Context(), stream.ExecutionsName)
	if err != nil {
		t.Fatal(err)
	}
	config := shared.CachedInfo().Config
	config.MaxBytes = 1 << 20
	if _, err := f.JetStream.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	fill("third", f.inQueue("third", "third"))
	if a := f.send(request{path: "/webhooks/calm", token: calm}); a.status != 200 {
		t.Errorf("a queue with its own stream: %+v", a)
	}
	if status, text := isReady(); status != 200 {
		t.Errorf("with a full shared stream: %d %s", status, text)
	}
	// The readiness may lag behind, so wait for each state.
	becomes := func(want int, when string) {
		t.Helper()
		for tries := 0; ; tries++ {
			status, text := isReady()
			if status == want {
				return
			}
			if tries == 100 {
				t.Fatalf("%s: %d %s", when, status, text)
			}
			<-time.After(100 * time.Millisecond)
		}
	}
	f.phase("calm", registry.QueuePhaseDrainingOwnStream)
	becomes(503, "when no stream takes anything")
	f.phase("calm", registry.QueuePhaseOwnStream)
	becomes(200, "when only the shared stream takes nothing")
	f.phase("calm", registry.QueuePhaseDrainingOwnStream)
	becomes(503, "when no stream takes anything, again")
	config.MaxBytes = -1
	if _, err := f.JetStream.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if a := f.send(request{path: "/webhooks/calm", token: calm}); a.status != 200 {
		t.Errorf("in the shared stream: %+v", a)
	}
	becomes(200, "when only an own stream takes nothing")
}
