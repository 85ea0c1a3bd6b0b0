package edit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/webhook"
)

func TestTheWorkflowsActivatedFirstKeepWorking(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	r := registrytest.Start(t, nc)
	i, _ := registrytest.StartIngress(t, server.Connect(t))
	ctx := t.Context()
	for _, id := range []string{"c", "b", "a"} { // not in alphabetical order
		r.CreateWorkflow(t, id, "pro", true)
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
	if _, err := r.Activate(ctx, "b"); !errors.Is(err, edit.ErrActiveWorkflowLimit) {
		t.Errorf("activating one that is active and past the limit: %v", err)
	}
	if _, err := r.Deactivate(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	if !within("b") || within("a") {
		t.Error("the next one did not move up")
	}
	if _, err := r.Activate(ctx, "c"); !errors.Is(err, edit.ErrActiveWorkflowLimit) {
		t.Errorf("activating past the limit: %v", err)
	}
	if _, _, err := r.PutAccount(ctx, "on-pro", "An account", "none"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Activate(ctx, "b"); !errors.Is(err, edit.ErrWebhooksNotInPlan) {
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
	t.Parallel()
	server := natstest.Start(t)
	editors := []*registrytest.Registry{
		registrytest.Start(t, server.Connect(t)), registrytest.Start(t, server.Connect(t)),
	}
	ctx := t.Context()
	workflows := []string{"one", "two"}
	for _, id := range workflows {
		editors[0].CreateWorkflow(t, id, "free", false)
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
		if errs[winner] != nil || !errors.Is(errs[1-winner], edit.ErrActiveWorkflowLimit) {
			t.Fatalf("round %d: %v", round, errs)
		}
		if _, err := editors[round%2].Deactivate(ctx, workflows[winner]); err != nil {
			t.Fatal(err)
		}
	}
}

// A process may die between the two writes that activate or deactivate a workflow: the first is to
// the account's record, the second to the workflow's. The next activation or deactivation in the
// same account then completes the unfinished one first.
func TestAnUnfinishedSwitchIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	ctx := t.Context()
	r.CreateWorkflow(t, "died", "free", false)
	r.CreateWorkflow(t, "next", "free", false)
	storeIntent(t, r, 1, "died")
	if _, err := r.Activate(ctx, "next"); !errors.Is(err, edit.ErrActiveWorkflowLimit) {
		t.Errorf("the unfinished one came first, yet: %v", err)
	}
	if w, _ := r.RegistryIndex.Workflow("died"); !w.Record.Active || w.Record.ActivatedAt.IsZero() {
		t.Error("it was not finished")
	}

	// The unfinished activation of a workflow that has been deleted does not activate a new
	// workflow with the same ID.
	if err := r.DeleteWorkflow(ctx, "died"); err != nil {
		t.Fatal(err)
	}
	r.CreateWorkflow(t, "died", "free", false)
	if _, err := r.Activate(ctx, "next"); err != nil {
		t.Error(err)
	}
	if w, _ := r.RegistryIndex.Workflow("died"); w.Record.Active {
		t.Error("an old switch was carried out on a new workflow")
	}
}

// storeIntent makes only the first of the two writes that activate a workflow: it stores the
// intent, with the given transition number, in the record of the account "on-free".
func storeIntent(t *testing.T, r *registrytest.Registry, number int64, workflow string) {
	t.Helper()
	kv, err := r.JetStream.KeyValue(t.Context(), registry.Bucket)
	fatal(t, err)
	account, _ := r.RegistryIndex.Account("on-free")
	record := *account.Record
	record.LastTransition = registry.ActivationTransition{
		Number:      number,
		WorkflowID:  workflow,
		Active:      true,
		RequestedAt: time.Now(),
	}
	data, err := record.Encode()
	fatal(t, err)
	revision, err := kv.Put(t.Context(), "account.on-free", data)
	fatal(t, err)
	fatal(t, r.Follower.AwaitApplied(t.Context(), revision))
}

// If a process is killed between the two writes that activate a workflow, another process completes
// the activation, even if no other workflow of the account is activated or deactivated.
func TestAnUnfinishedSwitchIsFinishedWithoutAnotherSwitch(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	r.CreateWorkflow(t, "died", "free", false)
	storeIntent(t, r, 1, "died")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var finishing sync.WaitGroup
	defer finishing.Wait()
	finishing.Go(func() { r.FinishTransitionsPeriodically(ctx, 10*time.Millisecond) })
	retry.Until(ctx, 10*time.Millisecond, func() bool {
		w, _ := r.RegistryIndex.Workflow("died")
		return w.Record.Active
	})
	if ctx.Err() != nil {
		t.Error("the activation is not carried out")
	}
	cancel()
}

// losesOne is a JetStream that loses the first message with a certain subject: it does not store
// the message, and reports a timeout.
type losesOne struct {
	jetstream.JetStream
	subject string
	lost    *atomic.Bool
}

func (l losesOne) PublishMsg(
	ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	if msg.Subject == l.subject && l.lost.CompareAndSwap(false, true) {
		return nil, nats.ErrTimeout
	}
	return l.JetStream.PublishMsg(ctx, msg, opts...)
}

// If the second of the two writes that activate a workflow is lost, Activate repeats it before it
// returns. Otherwise, a later change of another workflow would unexpectedly complete the
// activation.
func TestASwitchWhoseSecondWriteIsLost(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	r.CreateWorkflow(t, "wf", "free", false)
	js := losesOne{
		r.JetStream, registry.SubjectOf(registry.Bucket, "workflow.wf"), &atomic.Bool{},
	}
	editor, err := edit.NewEditor(t.Context(), edit.Config{
		JetStream: js, RegistryIndex: r.RegistryIndex, Follower: r.Follower, Lease: r.Lease,
		Membership: r.Membership,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = editor.Activate(t.Context(), "wf")
	if _, unknown := errors.AsType[*edit.OutcomeUnknownError](err); !unknown {
		t.Errorf("the activation: %v", err)
	}
	if err := r.Follower.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w, _ := r.RegistryIndex.Workflow("wf"); !w.Record.Active {
		t.Error("the activation is stored, but not carried out")
	}
}

// leaderless is a JetStream that refuses all messages with a certain subject until a given time,
// like a stream without a leader.
type leaderless struct {
	jetstream.JetStream
	subject string
	until   time.Time
}

func (l leaderless) PublishMsg(
	ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	if msg.Subject == l.subject && time.Now().Before(l.until) {
		return nil, jetstream.ErrNoStreamResponse
	}
	return l.JetStream.PublishMsg(ctx, msg, opts...)
}

// If the leader of the registry's stream dies between the two writes that activate a workflow, the
// activation is completed once the other servers have elected a new leader, which takes seconds.
func TestASwitchDuringAnElection(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	r.CreateWorkflow(t, "wf", "free", false)
	js := leaderless{
		r.JetStream, registry.SubjectOf(registry.Bucket, "workflow.wf"),
		time.Now().Add(6 * time.Second),
	}
	editor, err := edit.NewEditor(t.Context(), edit.Config{
		JetStream: js, RegistryIndex: r.RegistryIndex, Follower: r.Follower, Lease: r.Lease,
		Membership: r.Membership,
	})
	fatal(t, err)
	if _, err := editor.Activate(t.Context(), "wf"); err == nil {
		t.Error("the activation was confirmed")
	}
	fatal(t, r.Follower.CatchUp(t.Context()))
	if w, _ := r.RegistryIndex.Workflow("wf"); !w.Record.Active {
		t.Error("the activation is stored, but not carried out")
	}
}

// storesLate is a JetStream whose buckets report a timeout for every update, and store the update
// half a second later.
type storesLate struct {
	jetstream.JetStream
	late *sync.WaitGroup
}

func (l storesLate) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	kv, err := l.JetStream.KeyValue(ctx, bucket)
	return lateBucket{kv, l.late}, err
}

type lateBucket struct {
	jetstream.KeyValue
	late *sync.WaitGroup
}

func (b lateBucket) Update(
	ctx context.Context, key string, value []byte, last uint64,
) (uint64, error) {
	ctx = context.WithoutCancel(ctx)
	b.late.Go(func() {
		<-time.After(500 * time.Millisecond)
		_, _ = b.KeyValue.Update(ctx, key, value, last)
	})
	return 0, nats.ErrTimeout
}

// If the first of the two writes that activate a workflow is stored only after its timeout, the
// activation is still completed.
func TestASwitchWhoseFirstWriteIsStoredLate(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	r.CreateWorkflow(t, "wf", "free", false)
	var late sync.WaitGroup
	defer late.Wait()
	editor, err := edit.NewEditor(t.Context(), edit.Config{
		JetStream:     storesLate{r.JetStream, &late},
		RegistryIndex: r.RegistryIndex, Follower: r.Follower, Lease: r.Lease,
		Membership: r.Membership,
	})
	fatal(t, err)
	_, err = editor.Activate(t.Context(), "wf")
	if _, unknown := errors.AsType[*edit.OutcomeUnknownError](err); !unknown {
		t.Errorf("the activation: %v", err)
	}
	fatal(t, r.Follower.CatchUp(t.Context()))
	if w, _ := r.RegistryIndex.Workflow("wf"); !w.Record.Active {
		t.Error("the activation is stored, but not carried out")
	}
}

func TestPutWorkflow(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	ctx := t.Context()
	token := r.CreateWorkflow(t, "wf", "free", true)
	spec := edit.WorkflowSpec{
		ID:        "wf",
		AccountID: "on-free",
		Name:      "other",
		Queue:     "gpu",
		RateLimit: &registry.RateLimit{Requests: 5, Window: time.Minute},
		Triggers: []edit.TriggerSpec{
			{NodeID: "node", SamplePayload: []byte(`{"a":1}`)}, {NodeID: "second"},
		},
	}
	w, created, err := r.PutWorkflow(ctx, spec)
	if err != nil || created || !w.Active {
		t.Fatalf("%v %t %v", w, created, err)
	}
	if r.Token(t, "wf", "node") != token {
		t.Error("a node that stays lost its token")
	}
	if r.Token(t, "wf", "second") == token {
		t.Error("two nodes have one token")
	}
	again, _, err := r.PutWorkflow(ctx, spec)
	if err != nil || !registry.Equal(again, w) {
		t.Errorf("PUT is not idempotent: %v, %v", again, err)
	}
	spec.Triggers = []edit.TriggerSpec{{NodeID: "node"}}
	if _, _, err := r.PutWorkflow(ctx, spec); err != nil {
		t.Fatal(err)
	}
	info, err := r.Trigger(ctx, "wf", "node")
	if err != nil || string(info.SamplePayload) != `{"a":1}` || info.RateLimit.Requests != 5 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := r.Trigger(ctx, "wf", "second"); !errors.Is(err, edit.ErrNotFound) {
		t.Errorf("a node that was dropped: %v", err)
	}

	for name, change := range map[string]func(*edit.WorkflowSpec){
		"no such account": func(s *edit.WorkflowSpec) { s.AccountID = "nobody" },
		"bad queue":       func(s *edit.WorkflowSpec) { s.Queue = "a.b" },
		"bad id":          func(s *edit.WorkflowSpec) { s.ID = "a b" },
		"no trigger":      func(s *edit.WorkflowSpec) { s.Triggers = nil },
		"node twice": func(s *edit.WorkflowSpec) {
			s.Triggers = append(s.Triggers, s.Triggers[0])
		},
		"bad sample": func(s *edit.WorkflowSpec) { s.Triggers[0].SamplePayload = []byte("{") },
		"bad rate": func(s *edit.WorkflowSpec) {
			s.RateLimit = &registry.RateLimit{Window: time.Second}
		},
		"moves while active": func(s *edit.WorkflowSpec) {
			if _, _, err := r.PutAccount(ctx, "other", "", "pro"); err != nil {
				t.Fatal(err)
			}
			s.AccountID = "other"
		},
	} {
		bad := spec
		bad.Triggers = []edit.TriggerSpec{{NodeID: "node"}}
		change(&bad)
		var invalid *edit.InvalidFieldError
		if _, _, err := r.PutWorkflow(ctx, bad); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRotateKeepsOldTokensForAWhile(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	ctx := t.Context()
	first := r.CreateWorkflow(t, "wf", "free", true)
	if err := r.RotateToken(ctx, "wf", "node", time.Hour); err != nil {
		t.Fatal(err)
	}
	info, err := r.Trigger(ctx, "wf", "node")
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Tokens) != 2 || info.Tokens[1].Token != first ||
		!info.Tokens[0].ExpiresAt.IsZero() ||
		time.Until(info.Tokens[1].ExpiresAt) > time.Hour {
		t.Errorf("%+v", info.Tokens)
	}
	for range edit.MaxTokensPerNode - 2 {
		if err := r.RotateToken(ctx, "wf", "node", time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.RotateToken(ctx, "wf", "node", time.Hour); !errors.Is(err, edit.ErrTooManyTokens) {
		t.Errorf("one more: %v", err)
	}
	if err := r.RotateToken(ctx, "wf", "node", 0); err != nil {
		t.Fatal(err)
	}
	if info, err := r.Trigger(ctx, "wf", "node"); err != nil || len(info.Tokens) != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, text := range []string{first, "hst_x"} {
		if len(registry.NewToken()) != 47 || !strings.HasPrefix(first, webhook.TokenPrefix) ||
			registry.HashToken(text).ID() == "" {
			t.Error("the form of a token")
		}
	}
}

func TestParsePlans(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		``, `{}`, `[]`, `[{"id":"a b","rateLimit":{"requests":1,"windowSeconds":1}}]`,
		`[{"id":"a"}]`,
		`[{"id":"a","rateLimit":{"requests":1,"windowSeconds":1},"typo":1}]`,
		`[{"id":"a","rateLimit":{"requests":1,"windowSeconds":1},"bytesPerDay":0}]`,
		`[{"id":"a","rateLimit":{"requests":1,"windowSeconds":1},"bytesPerDay":1000000000000001}]`,
		`[{"id":"a","maxActiveWebhookWorkflows":-1,"rateLimit":{"requests":1,"windowSeconds":1}}]`,
		`[{"id":"a","rateLimit":{"requests":1,"windowSeconds":1}},{"id":"a","rateLimit":{"requests":1,"windowSeconds":1}}]`,
	} {
		if _, err := edit.ParsePlans([]byte(bad)); err == nil {
			t.Errorf("accepted %s", bad)
		}
	}
	if _, err := edit.ParsePlans(slices.Concat(edit.DefaultPlansJSON, []byte("[]"))); err == nil {
		t.Error("accepted two catalogs")
	}
}

// If a change of a workflow is refused, the sample payloads of the workflow's nodes stay unchanged.
func TestARefusedChangeStoresNoSamplePayload(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	ctx := t.Context()
	r.CreateWorkflow(t, "wf", "free", false)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(r.SetSamplePayload(ctx, "wf", "node", []byte("1")))
	_, err := r.SetQueueStream(ctx, "moving", edit.QueueStreamSpec{MaxBytes: 1 << 20})
	check(err)
	have, _ := r.RegistryIndex.Workflow("wf")
	before := edit.WithUpdatedAtCondition(ctx, have.Record.UpdatedAt.Add(-time.Second))
	same := func(s *edit.WorkflowSpec) { s.Name, s.Queue = have.Record.Name, have.Record.Queue }
	for _, c := range []struct {
		name   string
		ctx    context.Context
		change func(*edit.WorkflowSpec)
		want   error
	}{
		{
			"queue moves", ctx, func(s *edit.WorkflowSpec) { s.Queue = "moving" },
			edit.ErrQueueMoving,
		},
		{
			"not new", ctx, func(s *edit.WorkflowSpec) { s.OnlyIfNew = true },
			edit.ErrPreconditionFailed,
		},
		{"only the payload differs, and not new", ctx, func(s *edit.WorkflowSpec) {
			same(s)
			s.OnlyIfNew = true
		}, edit.ErrPreconditionFailed},
		{"another version", before, func(*edit.WorkflowSpec) {}, edit.ErrPreconditionFailed},
		{"only the payload differs from another version", before, same, edit.ErrPreconditionFailed},
	} {
		spec := edit.WorkflowSpec{
			ID: "wf", AccountID: "on-free", Name: "other",
			Triggers: []edit.TriggerSpec{{NodeID: "node", SamplePayload: []byte("2")}},
		}
		c.change(&spec)
		if _, _, err := r.PutWorkflow(c.ctx, spec); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		info, err := r.Trigger(ctx, "wf", "node")
		if err != nil || string(info.SamplePayload) != "1" {
			t.Errorf("%s: the payload is %s, %v", c.name, info.SamplePayload, err)
		}
	}
	// A call that would change nothing succeeds even though WithUpdatedAtCondition and OnlyIfNew
	// forbid changes, so that a call whose response was lost can be repeated.
	spec := edit.WorkflowSpec{ID: "wf", AccountID: "on-free", OnlyIfNew: true}
	same(&spec)
	spec.Triggers = []edit.TriggerSpec{{NodeID: "node", SamplePayload: []byte("1")}}
	_, _, err = r.PutWorkflow(before, spec)
	check(err)
}

// If BeforeAccountChange fails, nothing is stored: neither the secrets of new nodes nor a sample
// payload.
func TestAFailedAccountChangeStoresNothing(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	ctx := t.Context()
	r.CreateWorkflow(t, "wf", "free", false)
	r.CreateWorkflow(t, "other", "pro", false)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(r.SetSamplePayload(ctx, "wf", "node", []byte("1")))
	away := errors.New("the database is away")
	for _, id := range []string{"new", "wf"} {
		_, _, err := r.PutWorkflow(ctx, edit.WorkflowSpec{
			ID: id, AccountID: "on-pro", Name: "moved",
			Triggers: []edit.TriggerSpec{
				{NodeID: "node", SamplePayload: []byte("2")},
				{NodeID: "added", SamplePayload: []byte("2")},
			},
			BeforeAccountChange: func(context.Context) error { return away },
		})
		if !errors.Is(err, away) {
			t.Errorf("%s: %v, want %v", id, err, away)
		}
	}
	info, err := r.Trigger(ctx, "wf", "node")
	if err != nil || string(info.SamplePayload) != "1" {
		t.Errorf("the payload is %s, %v", info.SamplePayload, err)
	}
	secrets, err := r.JetStream.KeyValue(ctx, registry.SecretsBucket)
	check(err)
	for _, key := range []string{"new.node", "new.added", "wf.added"} {
		if _, err := secrets.Get(ctx, key); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("secrets of %s: %v", key, err)
		}
	}
}

// awaitedCopy is a DatabaseCopy that records, for each bucket, the revision that an editor last
// waited for.
type awaitedCopy map[string]uint64

func (c awaitedCopy) AwaitCopied(_ context.Context, bucket string, revision uint64) error {
	c[bucket] = revision
	return nil
}

// Creating a workflow or rotating a token is confirmed only once the DatabaseCopy contains the new
// token, which is in SecretsBucket.
func TestAChangeOfTokensAwaitsTheirCopy(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	awaited := awaitedCopy{}
	e, err := edit.NewEditor(t.Context(), edit.Config{
		JetStream:     r.JetStream,
		RegistryIndex: r.RegistryIndex,
		Follower:      r.Follower,
		Lease:         r.Lease,
		Membership:    r.Membership,
		DatabaseCopy:  awaited,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.CreateWorkflow(t, "other", "free", false)
	if _, _, err := e.PutWorkflow(t.Context(), edit.WorkflowSpec{
		ID: "wf", AccountID: "on-free", Name: "wf", Triggers: []edit.TriggerSpec{{NodeID: "node"}},
	}); err != nil {
		t.Fatal(err)
	}
	created := awaited[registry.SecretsBucket]
	if created == 0 || awaited[registry.Bucket] == 0 {
		t.Errorf("a new workflow awaits %v", awaited)
	}
	if err := e.RotateToken(t.Context(), "wf", "node", 0); err != nil {
		t.Fatal(err)
	}
	if awaited[registry.SecretsBucket] <= created {
		t.Errorf("a new token awaits %v", awaited)
	}
}

// InAccountSince returns when a workflow was created in its account or moved there. Other changes
// do not affect it.
func TestWhenAWorkflowMovedToItsAccount(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	put := func(account, name string) *registry.Workflow {
		t.Helper()
		if _, _, err := r.PutAccount(t.Context(), account, "An account", "free"); err != nil {
			t.Fatal(err)
		}
		w, _, err := r.PutWorkflow(t.Context(), edit.WorkflowSpec{
			ID: "wf", AccountID: account, Name: name,
			Triggers: []edit.TriggerSpec{{NodeID: "node"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	created := put("a", "one")
	if since := created.InAccountSince(); !since.Equal(created.CreatedAt) {
		t.Errorf("created at %v, in the account since %v", created.CreatedAt, since)
	}
	moved := put("b", "one")
	if since := moved.InAccountSince(); !since.Equal(moved.UpdatedAt) ||
		!since.After(created.CreatedAt) {
		t.Errorf("moved at %v, in the account since %v", moved.UpdatedAt, since)
	}
	if renamed := put("b", "two"); !renamed.InAccountSince().Equal(moved.InAccountSince()) {
		t.Errorf("renamed: in the account since %v", renamed.InAccountSince())
	}
}

// A change of many long fields can be stored: its audit entry omits some of the fields and states
// how many.
func TestAChangeOfManyLongFields(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	ctx := t.Context()
	r.CreateWorkflow(t, "wf", "free", false)
	spec := edit.WorkflowSpec{
		ID: "wf", AccountID: "on-free", Name: "wf",
		Triggers: make([]edit.TriggerSpec, edit.MaxTriggersPerWorkflow),
	}
	for _, letter := range []string{"ж", "д"} {
		for i := range spec.Triggers {
			spec.Triggers[i].NodeID = fmt.Sprintf("node-%d", i)
			spec.Triggers[i].Name = strings.Repeat(letter, edit.MaxNameLength)
		}
		if _, _, err := r.PutWorkflow(ctx, spec); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := r.JetStream.Stream(ctx, registry.StreamOf(registry.Bucket))
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetLastMsgForSubject(ctx, registry.SubjectOf(registry.Bucket, "workflow.wf"))
	if err != nil {
		t.Fatal(err)
	}
	entry, _, err := edit.DecodeAuditEntry(msg.Header)
	if err != nil {
		t.Fatal(err)
	}
	shown := len(entry.Changes) - 1
	want := fmt.Sprintf("%d more fields", edit.MaxTriggersPerWorkflow-shown)
	if shown < 10 || entry.Changes[shown].To != want {
		t.Errorf("%d changes, the last %v; want %q", shown, entry.Changes[shown], want)
	}
}
