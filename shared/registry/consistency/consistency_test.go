package consistency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

func TestEveryChangeIsInForceWhenItReturns(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	one, _ := registrytest.StartIngress(t, server.Connect(t))
	two, _ := registrytest.StartIngress(t, server.Connect(t))
	token := r.CreateWorkflow(t, "wf", "free", false)

	for round := range 100 {
		active := round%2 == 0
		change := r.Deactivate
		if active {
			change = r.Activate
		}
		if _, err := change(t.Context(), "wf"); err != nil {
			t.Fatal(err)
		}
		for _, i := range []*registrytest.Ingress{one, two} {
			if view, ok := i.Lookup("wf"); !ok || view.Workflow.Active != active {
				t.Fatalf("round %d: stale", round)
			}
		}
		if err := r.RotateToken(t.Context(), "wf", "node", 0); err != nil {
			t.Fatal(err)
		}
		next := r.Token(t, "wf", "node")
		if next == token {
			t.Fatal("the token did not change")
		}
		token = next
		for _, i := range []*registrytest.Ingress{one, two} {
			view, _ := i.Lookup("wf")
			if tokens := view.Workflow.Nodes[0].Tokens; len(tokens) != 1 ||
				tokens[0].Hash != registry.HashToken(token) {
				t.Fatalf("round %d: stale token", round)
			}
		}
	}
	if err := r.DeleteWorkflow(t.Context(), "wf"); err != nil {
		t.Fatal(err)
	}
	if _, ok := two.Lookup("wf"); ok {
		t.Error("still there after it was deleted")
	}
	if settings := r.Membership.IngressSettings(); len(settings) != 2 ||
		settings[0].MaxBodyBytes != 7 {
		t.Errorf("ingresses: %v", settings)
	}
}

func TestAChangeWaitsForAnIngressThatLagsButNotForOneThatLeft(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	slow, heartbeat := registrytest.StartIngress(t, server.Connect(t))
	r.CreateWorkflow(t, "wf", "free", false)

	slow.ApplyMu.Lock()
	// The ingress cannot apply the change while the test holds ApplyMu. So the change is stored,
	// but not confirmed before ctx ends after 6 s.
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	_, err := r.Activate(ctx, "wf")
	var unconfirmed *consistency.UnconfirmedError
	if !errors.As(err, &unconfirmed) || !strings.Contains(err.Error(), "ingress ") {
		t.Fatalf("a change that an ingress has not applied returned %v", err)
	}
	slow.ApplyMu.Unlock()
	if w, err := r.Activate(t.Context(), "wf"); err != nil || !w.Active {
		t.Fatalf("again: %v", err)
	}
	if view, _ := slow.Lookup("wf"); !view.Workflow.Active {
		t.Error("stale")
	}

	heartbeat.Stop()
	slow.ApplyMu.Lock()
	defer slow.ApplyMu.Unlock()
	if _, err := r.Deactivate(t.Context(), "wf"); err != nil {
		t.Errorf("it waited for an ingress that has left: %v", err)
	}
}

// An ingress may take a long time to catch up when it starts. It sends heartbeats all that time, so
// changes wait for it from its first heartbeat on.
func TestAnIngressThatCatchesUpIsHeard(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	r.CreateWorkflow(t, "wf", "free", false)
	nc := server.Connect(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	slow := &registrytest.Ingress{Snapshot: registry.NewSnapshot(nil)}
	f, err := consistency.Follow(t.Context(), js, slow, logtest.Discard())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	if err := f.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}

	slow.ApplyMu.Lock()
	if _, err := r.Activate(t.Context(), "wf"); err != nil {
		t.Fatal(err)
	}
	heard := make(chan *nats.Msg, 64)
	sub, err := server.Connect(t).ChanSubscribe("hookstart.presence", heard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	announced := make(chan error, 1)
	go func() {
		a, err := consistency.StartHeartbeat(t.Context(), nc, f, consistency.RoleIngress, nil,
			consistency.ProcessInfo{}, logtest.Discard())
		if err == nil {
			a.Stop()
		}
		announced <- err
	}()
	timeout := time.After(30 * time.Second)
	for heartbeats := 0; heartbeats < 5; {
		select {
		case msg := <-heard:
			var p hookstartv1.Presence
			if err := proto.Unmarshal(msg.Data, &p); err != nil {
				t.Fatal(err)
			}
			if p.GetRole() == consistency.RoleIngress {
				heartbeats++
			}
		case <-timeout:
			t.Fatalf("heard %d times", heartbeats)
		}
	}
	select {
	case err := <-announced:
		t.Errorf("it has not caught up: %v", err)
	default:
	}
	slow.ApplyMu.Unlock()
	if err := <-announced; err != nil {
		t.Error(err)
	}
}

// Membership.AwaitInForce fails while the membership receives nothing from NATS, because the
// membership may have missed the announcement of a process.
func TestAMembershipThatHearsNothing(t *testing.T) {
	t.Parallel()
	server := natstest.StartProcess(t)
	membership, err := consistency.Join(t.Context(), server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	defer membership.Stop()
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var unconfirmed *consistency.UnconfirmedError
	if err := membership.AwaitInForce(ctx, 1); !errors.As(err, &unconfirmed) {
		t.Errorf("nobody was heard: %v", err)
	}
	server.Resume()
	if err := membership.AwaitInForce(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

func TestASnapshotLoadsWhatIsThere(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	empty, _ := registrytest.StartIngress(t, server.Connect(t))
	if empty.WorkflowCount() != 0 {
		t.Error("not empty")
	}
	for n := range 50 {
		r.CreateWorkflow(t, fmt.Sprintf("wf-%d", n), "pro", n%2 == 0)
	}
	if err := r.DeleteWorkflow(t.Context(), "wf-49"); err != nil {
		t.Fatal(err)
	}
	late, _ := registrytest.StartIngress(t, server.Connect(t))
	for n := range 49 {
		view, ok := late.Lookup(fmt.Sprintf("wf-%d", n))
		if !ok || view.Workflow.Active != (n%2 == 0) || !view.WithinPlan || view.Plan.ID != "pro" ||
			view.RateLimit().Requests != 600 {
			t.Fatalf("wf-%d: %t %+v", n, ok, view)
		}
	}
	if _, ok := late.Lookup("wf-49"); ok || late.WorkflowCount() != 49 {
		t.Error("a deleted workflow was loaded")
	}
}

func TestFollowingGoesOnAfterTheServerWasAway(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	i, _ := registrytest.StartIngress(t, server.Connect(t))
	r.CreateWorkflow(t, "wf", "free", true)
	server.Restart()
	for attempt := 0; ; attempt++ {
		_, err := r.Deactivate(t.Context(), "wf")
		if err == nil {
			break
		}
		if attempt > 100 {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond)
	}
	if view, _ := i.Lookup("wf"); view.Workflow.Active {
		t.Error("stale")
	}
}

// A process that is cut off from NATS loses its lease, because its copy may be stale, and regains
// the lease once the connection is back.
func TestALeaseRunsOutAndComesBack(t *testing.T) {
	t.Parallel()
	server := natstest.StartProcess(t)
	r := registrytest.Start(t, server.Connect(t))
	lease := consistency.NewLease(server.Connect(t), r.Follower)
	defer lease.Stop()
	begun := time.Now()
	if !lease.AwaitValid(begun) || !lease.IsValidSince(begun, time.Now()) {
		t.Error("it is not valid at first")
	}
	server.Pause()
	for lease.AwaitValid(time.Now()) {
		<-time.After(10 * time.Millisecond)
	}
	if lease.IsValidSince(begun, time.Now()) {
		t.Error("it is valid although it has expired")
	}
	server.Resume()
	for !lease.AwaitValid(time.Now()) {
		<-time.After(10 * time.Millisecond)
	}
	if again := time.Now(); lease.IsValidSince(begun, again) || !lease.IsValidSince(again, again) {
		t.Error("it does not remember that it had expired")
	}
}

// A server counts the messages that it has sent into a dead connection as delivered. A follower
// requests such messages again as soon as it has reconnected, even if it was still waiting for a
// response on the dead connection.
func TestAFollowerCatchesUpOnceTheConnectionIsBack(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	r.CreateWorkflow(t, "wf", "pro", false)
	link := server.NewProxy(t)
	nc, err := nats.Connect(link.URL(), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond))
	fatal(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	fatal(t, err)
	snapshot := registry.NewSnapshot(nil)
	follower, err := consistency.Follow(t.Context(), js, snapshot, logtest.Discard())
	fatal(t, err)
	t.Cleanup(follower.Stop)
	fatal(t, follower.CatchUp(t.Context()))
	lease := consistency.NewLease(nc, follower)
	t.Cleanup(lease.Stop)

	link.Silence()
	_, err = r.Activate(t.Context(), "wf")
	fatal(t, err)
	// Wait until the follower has not caught up for 7 s. By then it has noticed that the heartbeats
	// of its consumer are missing.
	for lease.SinceCaughtUp(time.Now()) < 7*time.Second {
		<-time.After(10 * time.Millisecond)
	}
	link.DropConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !lease.IsValid(time.Now()) {
		if ctx.Err() != nil {
			t.Fatal("it does not catch up")
		}
		<-time.After(10 * time.Millisecond)
	}
	if view, _ := snapshot.Lookup("wf"); !view.Workflow.Active {
		t.Error("the change is not in force")
	}
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
