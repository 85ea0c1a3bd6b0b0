package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// ingress follows the registry as an ingress does. Its changes can be held back.
type ingress struct {
	*registry.Snapshot
	hold sync.Mutex
}

func (i *ingress) Apply(c registry.Change) {
	i.hold.Lock()
	defer i.hold.Unlock()
	i.Snapshot.Apply(c)
}

func startIngress(t *testing.T, nc *nats.Conn) (*ingress, *registry.Announcer) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	i := &ingress{Snapshot: registry.NewSnapshot()}
	f, err := registry.Follow(t.Context(), js, i, logtest.Quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	a, err := registry.Announce(t.Context(), nc, f, registry.RoleIngress, &hookstartv1.IngressSettings{MaxBodyBytes: 7}, logtest.Quiet())
	if err != nil {
		t.Fatal(err)
	}
	return i, a
}

func TestEveryChangeIsInForceWhenItReturns(t *testing.T) {
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	one, _ := startIngress(t, server.Connect(t))
	two, _ := startIngress(t, server.Connect(t))
	token := r.Workflow(t, "wf", "free", false)

	for round := range 100 {
		active := round%2 == 0
		change := r.Deactivate
		if active {
			change = r.Activate
		}
		if _, err := change(t.Context(), "wf"); err != nil {
			t.Fatal(err)
		}
		for _, i := range []*ingress{one, two} {
			if view, found := i.Lookup("wf"); !found || view.Workflow.Active != active {
				t.Fatalf("round %d: stale", round)
			}
		}
		if err := r.Rotate(t.Context(), "wf", "node", 0); err != nil {
			t.Fatal(err)
		}
		next := r.Token(t, "wf", "node")
		if next == token {
			t.Fatal("the token did not change")
		}
		token = next
		for _, i := range []*ingress{one, two} {
			view, _ := i.Lookup("wf")
			if tokens := view.Workflow.Nodes[0].Tokens; len(tokens) != 1 || tokens[0].Hash != registry.HashToken(token) {
				t.Fatalf("round %d: stale token", round)
			}
		}
	}
	if err := r.DeleteWorkflow(t.Context(), "wf"); err != nil {
		t.Fatal(err)
	}
	if _, found := two.Lookup("wf"); found {
		t.Error("still there after it was deleted")
	}
	if settings := r.Roll.Ingress(); len(settings) != 2 || settings[0].GetMaxBodyBytes() != 7 {
		t.Errorf("ingresses: %v", settings)
	}
}

func TestAChangeWaitsForAnIngressThatLagsButNotForOneThatLeft(t *testing.T) {
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	slow, announcer := startIngress(t, server.Connect(t))
	r.Workflow(t, "wf", "free", false)

	slow.hold.Lock()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the change is stored within that
	defer cancel()
	_, err := r.Activate(ctx, "wf")
	var lagging *registry.LaggingError
	if !errors.As(err, &lagging) || !strings.Contains(err.Error(), "ingress ") {
		t.Fatalf("a change that an ingress has not applied returned %v", err)
	}
	slow.hold.Unlock()
	if w, err := r.Activate(t.Context(), "wf"); err != nil || !w.GetActive() {
		t.Fatalf("again: %v", err)
	}
	if view, _ := slow.Lookup("wf"); !view.Workflow.Active {
		t.Error("stale")
	}

	announcer.Stop()
	slow.hold.Lock()
	defer slow.hold.Unlock()
	if _, err := r.Deactivate(t.Context(), "wf"); err != nil {
		t.Errorf("it waited for an ingress that has left: %v", err)
	}
}

// It may take an ingress long to catch up; changes wait for it from the beginning.
func TestAnIngressThatCatchesUpIsHeard(t *testing.T) {
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	r.Workflow(t, "wf", "free", false)
	nc := server.Connect(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	slow := &ingress{Snapshot: registry.NewSnapshot()}
	f, err := registry.Follow(t.Context(), js, slow, logtest.Quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	if err := f.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}

	slow.hold.Lock()
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
		a, err := registry.Announce(t.Context(), nc, f, registry.RoleIngress, nil, logtest.Quiet())
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
			if p.GetRole() == registry.RoleIngress {
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
	slow.hold.Unlock()
	if err := <-announced; err != nil {
		t.Error(err)
	}
}

// Somebody may have announced himself who is not heard yet: who hears nothing confirms
// nothing.
func TestARollThatHearsNothing(t *testing.T) {
	server := natstest.StartProcess(t)
	roll, err := registry.CallRoll(t.Context(), server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	defer roll.Stop()
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var lagging *registry.LaggingError
	if err := roll.Wait(ctx, 1); !errors.As(err, &lagging) {
		t.Errorf("nobody was heard: %v", err)
	}
	server.Resume()
	if err := roll.Wait(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

func TestASnapshotLoadsWhatIsThere(t *testing.T) {
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	empty, _ := startIngress(t, server.Connect(t))
	if empty.Len() != 0 {
		t.Error("not empty")
	}
	for n := range 50 {
		r.Workflow(t, fmt.Sprintf("wf-%d", n), "pro", n%2 == 0)
	}
	if err := r.DeleteWorkflow(t.Context(), "wf-49"); err != nil {
		t.Fatal(err)
	}
	late, _ := startIngress(t, server.Connect(t))
	for n := range 49 {
		view, found := late.Lookup(fmt.Sprintf("wf-%d", n))
		if !found || view.Workflow.Active != (n%2 == 0) || !view.WithinPlan || view.Plan.ID != "pro" || view.Limit().Requests != 600 {
			t.Fatalf("wf-%d: %t %+v", n, found, view)
		}
	}
	if _, found := late.Lookup("wf-49"); found || late.Len() != 49 {
		t.Error("a deleted workflow was loaded")
	}
}

func TestFollowingGoesOnAfterTheServerWasAway(t *testing.T) {
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	i, _ := startIngress(t, server.Connect(t))
	r.Workflow(t, "wf", "free", true)
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

func TestTheWorkflowsActivatedFirstKeepWorking(t *testing.T) {
	server := natstest.Start(t)
	nc := server.Connect(t)
	r := registrytest.Start(t, nc)
	i, _ := startIngress(t, server.Connect(t))
	ctx := t.Context()
	for _, id := range []string{"c", "b", "a"} { // not the order of their names
		r.Workflow(t, id, "pro", true)
	}
	within := func(id string) bool {
		view, _ := i.Lookup(id)
		return view.WithinPlan
	}
	if _, _, err := r.PutAccount(ctx, "on-pro", "An account", "free"); err != nil {
		t.Fatal(err)
	}
	if !within("c") || within("b") || within("a") {
		t.Errorf("after the downgrade: c %t, b %t, a %t", within("c"), within("b"), within("a"))
	}
	if _, err := r.Activate(ctx, "b"); !errors.Is(err, registry.ErrPlanLimit) {
		t.Errorf("activating one that is active and past the limit: %v", err)
	}
	if _, err := r.Deactivate(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	if !within("b") || within("a") {
		t.Error("the next one did not move up")
	}
	if _, err := r.Activate(ctx, "c"); !errors.Is(err, registry.ErrPlanLimit) {
		t.Errorf("activating past the limit: %v", err)
	}
	if _, _, err := r.PutAccount(ctx, "on-pro", "An account", "none"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Activate(ctx, "b"); !errors.Is(err, registry.ErrNotInPlan) {
		t.Errorf("activating without webhook triggers: %v", err)
	}
	if err := r.DeleteWorkflow(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.PutAccount(ctx, "on-pro", "An account", "free"); err != nil {
		t.Fatal(err)
	}
	if !within("a") {
		t.Error("a did not move up when b was deleted")
	}
}

func TestOfTwoRacingActivationsOneWins(t *testing.T) {
	server := natstest.Start(t)
	editors := []*registrytest.Registry{registrytest.Start(t, server.Connect(t)), registrytest.Start(t, server.Connect(t))}
	ctx := t.Context()
	workflows := []string{"one", "two"}
	for _, id := range workflows {
		editors[0].Workflow(t, id, "free", false)
	}
	for round := range 50 {
		var (
			wg   sync.WaitGroup
			errs [2]error
		)
		for n := range errs {
			wg.Go(func() { _, errs[n] = editors[n].Activate(ctx, workflows[n]) })
		}
		wg.Wait()
		winner := 0
		if errs[0] != nil {
			winner = 1
		}
		if errs[winner] != nil || !errors.Is(errs[1-winner], registry.ErrPlanLimit) {
			t.Fatalf("round %d: %v", round, errs)
		}
		if _, err := editors[round%2].Deactivate(ctx, workflows[winner]); err != nil {
			t.Fatal(err)
		}
	}
}

// A process may die between the two writes of a switch.
func TestAnUnfinishedSwitchIsFinishedByTheNext(t *testing.T) {
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	ctx := t.Context()
	r.Workflow(t, "died", "free", false)
	r.Workflow(t, "next", "free", false)
	kv, err := r.JetStream.KeyValue(ctx, registry.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	half := func(number int64, workflow string) {
		t.Helper()
		account, _ := r.Directory.Account("on-free")
		record := proto.CloneOf(account.Record)
		record.LastTransition = &hookstartv1.Transition{Number: number, WorkflowId: workflow, Active: true, At: timestamppb.Now()}
		data, err := proto.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		revision, err := kv.Put(ctx, "account.on-free", data)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Follower.Wait(ctx, revision); err != nil {
			t.Fatal(err)
		}
	}

	half(1, "died")
	if _, err := r.Activate(ctx, "next"); !errors.Is(err, registry.ErrPlanLimit) {
		t.Errorf("the unfinished one came first, yet: %v", err)
	}
	if w, _ := r.Directory.Workflow("died"); !w.Record.GetActive() || w.Record.GetActivatedAt() == nil {
		t.Error("it was not finished")
	}

	// Deleted and created anew, it is not switched on by what is long past.
	if err := r.DeleteWorkflow(ctx, "died"); err != nil {
		t.Fatal(err)
	}
	r.Workflow(t, "died", "free", false)
	if _, err := r.Activate(ctx, "next"); err != nil {
		t.Error(err)
	}
	if w, _ := r.Directory.Workflow("died"); w.Record.GetActive() {
		t.Error("an old switch was carried out on a new workflow")
	}
}

func TestPutWorkflow(t *testing.T) {
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	ctx := t.Context()
	token := r.Workflow(t, "wf", "free", true)
	spec := registry.WorkflowSpec{
		ID: "wf", AccountID: "on-free", Name: "other", Queue: "gpu", RateLimit: &registry.RateLimit{Requests: 5, Window: time.Minute},
		Triggers: []registry.TriggerSpec{{NodeID: "node", SamplePayload: []byte(`{"a":1}`)}, {NodeID: "second"}},
	}
	w, created, err := r.PutWorkflow(ctx, spec)
	if err != nil || created || !w.GetActive() {
		t.Fatalf("%v %t %v", w, created, err)
	}
	if r.Token(t, "wf", "node") != token {
		t.Error("a node that stays lost its token")
	}
	if r.Token(t, "wf", "second") == token {
		t.Error("two nodes have one token")
	}
	again, _, err := r.PutWorkflow(ctx, spec)
	if err != nil || !proto.Equal(again, w) {
		t.Errorf("PUT is not idempotent: %v, %v", again, err)
	}
	spec.Triggers = []registry.TriggerSpec{{NodeID: "node"}}
	if _, _, err := r.PutWorkflow(ctx, spec); err != nil {
		t.Fatal(err)
	}
	info, err := r.Trigger(ctx, "wf", "node")
	if err != nil || string(info.SamplePayload) != `{"a":1}` || info.RateLimit.Requests != 5 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := r.Trigger(ctx, "wf", "second"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("a node that was dropped: %v", err)
	}

	for name, change := range map[string]func(*registry.WorkflowSpec){
		"no such account": func(s *registry.WorkflowSpec) { s.AccountID = "nobody" },
		"bad queue":       func(s *registry.WorkflowSpec) { s.Queue = "a.b" },
		"bad id":          func(s *registry.WorkflowSpec) { s.ID = "a b" },
		"no trigger":      func(s *registry.WorkflowSpec) { s.Triggers = nil },
		"node twice":      func(s *registry.WorkflowSpec) { s.Triggers = append(s.Triggers, s.Triggers[0]) },
		"bad sample":      func(s *registry.WorkflowSpec) { s.Triggers[0].SamplePayload = []byte("{") },
		"bad rate":        func(s *registry.WorkflowSpec) { s.RateLimit = &registry.RateLimit{Window: time.Second} },
		"moves while active": func(s *registry.WorkflowSpec) {
			if _, _, err := r.PutAccount(ctx, "other", "", "pro"); err != nil {
				t.Fatal(err)
			}
			s.AccountID = "other"
		},
	} {
		bad := spec
		bad.Triggers = []registry.TriggerSpec{{NodeID: "node"}}
		change(&bad)
		var invalid *registry.InvalidError
		if _, _, err := r.PutWorkflow(ctx, bad); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRotateKeepsOldTokensForAWhile(t *testing.T) {
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	ctx := t.Context()
	first := r.Workflow(t, "wf", "free", true)
	if err := r.Rotate(ctx, "wf", "node", time.Hour); err != nil {
		t.Fatal(err)
	}
	info, err := r.Trigger(ctx, "wf", "node")
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Tokens) != 2 || info.Tokens[1].Token != first || !info.Tokens[0].ExpiresAt.IsZero() ||
		time.Until(info.Tokens[1].ExpiresAt) > time.Hour {
		t.Errorf("%+v", info.Tokens)
	}
	for range registry.MaxTokens - 2 {
		if err := r.Rotate(ctx, "wf", "node", time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Rotate(ctx, "wf", "node", time.Hour); !errors.Is(err, registry.ErrTooManyTokens) {
		t.Errorf("one more: %v", err)
	}
	if err := r.Rotate(ctx, "wf", "node", 0); err != nil {
		t.Fatal(err)
	}
	if info, err := r.Trigger(ctx, "wf", "node"); err != nil || len(info.Tokens) != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, text := range []string{first, "hst_x"} {
		if len(registry.NewToken()) != 47 || !strings.HasPrefix(first, registry.TokenPrefix) || registry.HashToken(text).ID() == "" {
			t.Error("the form of a token")
		}
	}
}

func TestParsePlans(t *testing.T) {
	for _, bad := range []string{
		``, `{}`, `[]`, `[{"id":"a b","rateLimit":{"requests":1,"windowSeconds":1}}]`, `[{"id":"a"}]`,
		`[{"id":"a","rateLimit":{"requests":1,"windowSeconds":1},"typo":1}]`,
		`[{"id":"a","rateLimit":{"requests":1,"windowSeconds":1},"bytesPerDay":0}]`, `[{"id":"a","rateLimit":{"requests":1,"windowSeconds":1},"bytesPerDay":1000000000000001}]`,
		`[{"id":"a","maxActiveWebhookWorkflows":-1,"rateLimit":{"requests":1,"windowSeconds":1}}]`,
		`[{"id":"a","rateLimit":{"requests":1,"windowSeconds":1}},{"id":"a","rateLimit":{"requests":1,"windowSeconds":1}}]`,
	} {
		if _, err := registry.ParsePlans([]byte(bad)); err == nil {
			t.Errorf("accepted %s", bad)
		}
	}
	if _, err := registry.ParsePlans(slices.Concat(registry.DefaultPlans, []byte("[]"))); err == nil {
		t.Error("accepted two catalogs")
	}
}

// A process that is cut from NATS must not rely on what it knew.
func TestALeaseRunsOutAndComesBack(t *testing.T) {
	server := natstest.StartProcess(t)
	r := registrytest.Start(t, server.Connect(t))
	lease := registry.NewLease(server.Connect(t), r.Follower)
	defer lease.Stop()
	if !lease.Valid(time.Now()) {
		t.Error("it is not valid at first")
	}
	server.Pause()
	for lease.Valid(time.Now()) {
		<-time.After(10 * time.Millisecond)
	}
	server.Resume()
	for !lease.Valid(time.Now()) {
		<-time.After(10 * time.Millisecond)
	}
}
