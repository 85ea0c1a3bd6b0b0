package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/stream"
)

// startOf publishes the start message of execution id(n) to the default queue.
func (r *rig) startOf(n int) {
	r.t.Helper()
	r.message(stream.StartMessage(execution.Start{
		ID:         id(n),
		AccountID:  "acme",
		WorkflowID: "wf",
		NodeID:     "node",
		Queue:      execution.DefaultQueue,
		Payload:    execution.Payload{Kind: execution.BodyJSON, Body: []byte("{}")},
	}))
}

// group runs a runner group for the default queue, until the returned function is called or the
// test ends. Each handler sends the group's name and the execution's ID to begun when it begins,
// and returns when hold is closed.
func (r *rig) group(name string, begun chan<- string, hold <-chan struct{}) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- runner.Run(ctx, r.nc, runner.Options{Group: name, OnReady: func() {
			close(ready)
		}},
			func(ctx context.Context, e runner.Execution) (any, error) {
				begun <- name + " " + e.ID
				select {
				case <-hold:
				case <-ctx.Done():
				}
				return nil, nil
			})
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			r.check(<-ended)
		}
	}
	r.t.Cleanup(stop)
	select {
	case <-ready:
	case err := <-ended:
		r.t.Fatalf("group %s ended: %v", name, err)
	}
	return stop
}

// asksInVain waits until a runner of the group is requesting work and gets none, although exactly
// the given number of start messages is waiting for the group.
func (r *rig) asksInVain(group string, waiting uint64) {
	r.t.Helper()
	eventually(r.t, func() bool {
		consumer, err := r.JetStream.Consumer(
			r.t.Context(),
			stream.ExecutionsName,
			stream.RunnerGroup{
				Queue: "default",
				Group: group,
			}.ConsumerName(),
		)
		if err != nil {
			return false
		}
		info := consumer.CachedInfo()
		return info.NumWaiting > 0 && info.NumPending == waiting
	})
}

// A paused queue delivers no executions, neither to existing groups nor to groups created during
// the pause, and not even after a restart of NATS. When the queue is resumed or the pause expires,
// it delivers the waiting executions.
func TestAPausedQueueHandsNothingOut(t *testing.T) {
	r := start(t)
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	begun, free := make(chan string, 10), make(chan struct{})
	close(free)
	stopFirst := r.group("first", begun, free)
	r.startOf(1)
	if got := <-begun; got != "first "+id(1) {
		t.Fatalf("begun: %s", got)
	}

	q := decode[api.Queue](r.post("/queues/default/pause", "").is(200))
	if q.Paused == nil || q.Paused.Since.IsZero() || !q.Paused.Until.IsZero() ||
		q.Stream != stream.ExecutionsName {
		t.Errorf("paused: %+v", q)
	}
	r.startOf(2)
	r.asksInVain("first", 1)
	stopFirst()
	r.group("later", begun, free)
	r.asksInVain("later", 2)
	r.nats.Restart()
	r.group("first", begun, free)
	r.asksInVain("first", 1)
	r.asksInVain("later", 2)
	if list := decode[api.List[api.Queue]](r.get("/queues").is(200)); len(list.Items) != 1 ||
		list.Items[0].Paused == nil {
		t.Errorf("listed: %+v", list)
	}
	select {
	case got := <-begun:
		t.Errorf("%s began in a paused queue", got)
	default:
	}

	if q := decode[api.Queue](r.post("/queues/default/resume", "").is(200)); q.Paused != nil {
		t.Errorf("resumed: %+v", q)
	}
	got := map[string]bool{<-begun: true, <-begun: true, <-begun: true}
	for _, want := range []string{"first " + id(2), "later " + id(1), "later " + id(2)} {
		if !got[want] {
			t.Errorf("%q did not begin: %v", want, got)
		}
	}

	// A pause with an end time ends at that time without another call.
	until := time.Now().Add(10 * time.Second)
	r.post("/queues/default/pause",
		fmt.Sprintf(`{"until":%q}`, until.UTC().Format(time.RFC3339Nano))).is(200)
	r.startOf(3)
	for range 2 {
		<-begun
	}
	if now := time.Now(); now.Before(until) {
		t.Errorf("handed out %s before the end of the pause", until.Sub(now))
	}
	r.post("/queues/default/pause", `{"until":"2020-01-01T00:00:00Z"}`).refused(422,
		api.CodeInvalid)
	r.post("/queues/de.fault/pause", "").refused(422, api.CodeInvalid)
}

// The runners of a group together never exceed the group's limit of executions in flight, even
// after the group's consumer has been recreated.
func TestAGroupHasALimitInFlight(t *testing.T) {
	r := start(t)
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	if g := decode[api.QueueGroup](r.put("/queues/default/groups/g",
		`{"maxInFlight":1}`).is(200)); g.Group != "g" || g.MaxInFlight == nil ||
		*g.MaxInFlight != 1 {
		t.Errorf("set: %+v", g)
	}
	begun, hold := make(chan string, 10), make(chan struct{})
	stop := r.group("g", begun, hold)
	r.startOf(1)
	r.startOf(2)
	<-begun
	r.asksInVain("g", 1)
	select {
	case got := <-begun:
		t.Errorf("%s began beside another one", got)
	default:
	}
	close(hold)
	<-begun
	stop()
	r.check(r.JetStream.DeleteConsumer(t.Context(), stream.ExecutionsName, stream.RunnerGroup{
		Queue: "default",
		Group: "g",
	}.ConsumerName()))
	r.group("g", begun, hold)
	maxPending := func() int {
		consumer, err := r.JetStream.Consumer(
			t.Context(),
			stream.ExecutionsName,
			stream.RunnerGroup{
				Queue: "default",
				Group: "g",
			}.ConsumerName(),
		)
		r.check(err)
		return consumer.CachedInfo().Config.MaxAckPending
	}
	if got := maxPending(); got != 1 {
		t.Errorf("a consumer that was made anew lets %d be in flight", got)
	}
	r.put("/queues/default/groups/g", `{"maxInFlight":null}`).is(200)
	if got := maxPending(); got != 10_000 {
		t.Errorf("without a limit %d may be in flight", got)
	}
	for _, body := range []string{`{}`, `{"maxInFlight":0}`, `{"maxInFlight":"1"}`} {
		r.put("/queues/default/groups/g", body).refused(422, api.CodeInvalid)
	}
}

// The list of queues names the execution that blocks an order key. It shows when the execution's
// handler began or, if this time is not recorded yet, when the execution was accepted. If workflows
// of several accounts use a queue, a key for one account does not see the queue's order keys.
func TestHeldUpKeysAreListed(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "pro")
	r.account("other", "pro")
	r.put("/workflows/wf", `{"accountId":"acme","name":"Orders","triggers":[{"nodeId":"node",`+
		`"orderKey":"ptr:/id"}]}`).is(201)
	acme := with(r.key("viewer", "acme").Secret)
	group := stream.RunnerGroup{Queue: "default", Group: "g"}
	main, err := stream.EnsureRunnerConsumer(t.Context(), r.JetStream, group,
		group.ConsumerConfig(time.Minute))
	r.check(err)
	lane, err := stream.EnsureRunnerConsumer(t.Context(), r.JetStream, group,
		group.LaneConsumerConfig(execution.LaneOf("wf", "k"), main.CachedInfo()))
	r.check(err)
	accepted := time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)
	for n := range 3 {
		r.message(stream.StartMessage(execution.Start{
			ID:         id(n),
			AccountID:  "acme",
			WorkflowID: "wf",
			NodeID:     "node",
			Queue:      execution.DefaultQueue,
			OrderKey:   "k",
			AcceptedAt: accepted.Add(time.Duration(n) * time.Minute),
			Payload:    execution.Payload{Kind: execution.BodyJSON, Body: []byte("{}")},
		}))
	}
	_, err = lane.Next()
	r.check(err)

	held := func(change ...func(*http.Request)) (all []api.HeldKey) {
		t.Helper()
		list := decode[api.List[api.Queue]](r.call("GET", "/queues", "", change...).is(200))
		if len(list.Items) != 1 || len(list.Items[0].Groups) != 1 {
			t.Fatalf("listed %+v", list)
		}
		return list.Items[0].Groups[0].Held
	}
	until := func(since time.Time) {
		t.Helper()
		want := []api.HeldKey{{
			OrderKey:    "k",
			WorkflowID:  "wf",
			ExecutionID: id(0),
			Since:       since,
			Waiting:     2,
		}}
		eventually(t, func() bool { return slices.Equal(held(), want) })
		if got := held(acme); !slices.Equal(got, want) {
			t.Errorf("a key of the account sees %+v, want %+v", got, want)
		}
	}
	until(accepted)
	began := accepted.Add(time.Hour)
	r.records(store.Batch{NewRecords: []store.Record{record(id(0), func(rec *store.Record) {
		rec.Status, rec.StartedAt = execution.Running, began
	})}})
	until(began)

	r.workflow("another", "other", "node")
	if got := held(acme); len(got) > 0 {
		t.Errorf("a key of one account sees %+v in a shared queue", got)
	}
	if got := held(with(r.key("viewer", "other").Secret)); len(got) > 0 {
		t.Errorf("a key of the other account sees %+v", got)
	}
	if got := held(); len(got) != 1 {
		t.Errorf("an operator of all accounts sees %+v", got)
	}
}

// Each change of a queue's settings is stored in the registry with an audit entry.
func TestQueueSettingsAreAudited(t *testing.T) {
	r := start(t)
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	r.post("/queues/default/pause", "").is(200)
	r.post("/queues/default/resume", "").is(200)
	r.post("/queues/default/resume", "").is(200) // changes nothing
	r.put("/queues/default/groups/g", `{"maxInFlight":3}`).is(200)
	var got []string
	s, err := r.JetStream.Stream(t.Context(), registry.Stream)
	r.check(err)
	messages, err := s.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"$KV.registry.queue.default"},
	})
	r.check(err)
	batch, err := messages.Fetch(3, jetstream.FetchMaxWait(10*time.Second))
	r.check(err)
	for msg := range batch.Messages() {
		got = append(got, entryIn(t, msg))
	}
	want := "[queue.pause queues[default].pausedSince queue.resume queues[default].pausedSince " +
		"queue-group.update queues[default].groups[g].maxInFlight]"
	if fmt.Sprint(got) != want {
		t.Errorf("audited %v, want %s", got, want)
	}
}

func entryIn(t *testing.T, msg jetstream.Msg) string {
	t.Helper()
	entry, exists, err := edit.DecodeAuditEntry(msg.Headers())
	if err != nil || !exists || len(entry.Changes) != 1 ||
		edit.AuditBucket(entry.Action) != registry.Bucket {
		t.Fatalf("%+v, %v, %v", entry, exists, err)
	}
	return entry.Action + " " + entry.Changes[0].Field
}

// A queue gets its own stream, the settings of this stream are changed, and then the queue moves
// back to the shared stream. Each of these calls can be repeated; the repetition succeeds and
// changes nothing.
func TestAQueuesOwnStream(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "wf", "pro", true)
	own := func() *api.QueueStream {
		t.Helper()
		return decode[api.List[api.Queue]](r.get("/queues").is(200)).Items[0].OwnStream
	}
	if got := own(); got != nil {
		t.Fatalf("at the beginning: %+v", got)
	}
	for range 2 {
		q := decode[api.Queue](r.call("PUT", "/queues/default/stream",
			`{"maxBytes":1048576}`).is(200))
		if q.Stream != stream.OwnStreamName("default") || q.OwnStream.Phase != "own" ||
			q.OwnStream.MaxBytes != 1<<20 {
			t.Errorf("after the move in: %+v, %+v", q, q.OwnStream)
		}
	}
	r.call("PUT", "/queues/default/stream", `{"maxAgeSeconds":500000}`).is(200)
	if got := own(); got.MaxBytes != 0 || got.MaxAgeSeconds != 500000 {
		t.Errorf("with other settings: %+v", got)
	}
	r.call("PUT", "/workflows/wf/triggers/node/sample-payload", `{"a":1}`).is(200)
	r.call("POST", "/workflows/wf/triggers/node/rerun", "").is(200)
	s, err := r.JetStream.Stream(t.Context(), stream.OwnStreamName("default"))
	r.check(err)
	if _, err := s.GetLastMsgForSubject(t.Context(),
		"executions.queue.default.start.wf.node"); err != nil {
		t.Errorf("a rerun is not in the own stream: %v", err)
	}
	for range 2 {
		r.call("DELETE", "/queues/default/stream", "").is(204)
	}
	if got := own(); got.Phase != "draining" {
		t.Errorf("after the move out: %+v", got)
	}
	for body, field := range map[string]string{
		`{"replicas":2}`:           "replicas",
		`{"replicas":3}`:           "replicas",
		`{"maxAgeSeconds":60}`:     "maxAgeSeconds",
		`{"maxAgeSeconds":864000}`: "maxAgeSeconds", // longer than the shared stream keeps messages
	} {
		a := r.call("PUT", "/queues/default/stream", body).is(422)
		if !strings.Contains(string(a.body), field) {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	actions := r.queueAudit("default")
	if want := "queue-stream.set queue-stream.set queue-stream.delete"; strings.Join(actions,
		" ") != want {
		t.Errorf("the audit has %q, want %q", actions, want)
	}
}

// A queue that no workflow uses yet can be paused, get its own stream, and move back to the shared
// stream. Moving a queue back also succeeds if the queue has no settings, but then adds no audit
// entry.
func TestTheOwnStreamOfAQueueThatNoWorkflowUses(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.post("/queues/later/pause", "").is(200)
	for range 2 {
		q := decode[api.Queue](r.put("/queues/later/stream", `{"maxBytes":1048576}`).is(200))
		if q.Queue != "later" || q.Stream != stream.OwnStreamName("later") || q.Paused == nil ||
			q.OwnStream == nil || q.OwnStream.MaxBytes != 1<<20 || len(q.Groups) != 0 {
			t.Errorf("after the move in: %+v, %+v", q, q.OwnStream)
		}
	}
	for range 2 {
		r.delete("/queues/later/stream").is(204)
	}
	r.delete("/queues/never/stream").is(204)
	if got := r.queueAudit("never"); len(got) != 0 {
		t.Errorf("the audit of a queue without settings: %q", got)
	}
}

// Executions are waiting in a paused queue that no workflow uses any more. The queue is listed
// until it is resumed, but only for callers with access to all accounts.
func TestAPausedQueueThatNoWorkflowUses(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	r.post("/queues/default/pause", "").is(200)
	r.startOf(1)
	r.patch("/workflows/wf", `{"queue":"another"}`).is(200)
	listed := func(change ...func(*http.Request)) string {
		t.Helper()
		var all []string
		got := r.call(http.MethodGet, "/queues", "", change...).is(200)
		for _, q := range decode[api.List[api.Queue]](got).Items {
			all = append(all, fmt.Sprintf("%s %d %v", q.Queue, q.Waiting, q.Paused != nil))
		}
		return strings.Join(all, ", ")
	}
	if got := listed(); got != "another 0 false, default 1 true" {
		t.Errorf("listed: %s", got)
	}
	secret := r.key("editor", "acme").Secret
	if got := listed(with(secret)); got != "another 0 false" {
		t.Errorf("listed for one account: %s", got)
	}
	if q := decode[api.Queue](r.post("/queues/default/resume", "").is(200)); q.Paused != nil {
		t.Errorf("resumed: %+v", q)
	}
	if got := listed(); got != "another 0 false" {
		t.Errorf("listed after it was resumed: %s", got)
	}
}

// queueAudit returns the audited actions that changed a queue's settings, oldest first.
func (r *rig) queueAudit(queue string) []string {
	r.t.Helper()
	return r.recordAudit(registry.Bucket, "queue."+queue)
}

// recordAudit returns the audited actions that changed the record with the given key, oldest first.
func (r *rig) recordAudit(bucket, key string) (actions []string) {
	r.t.Helper()
	s, err := r.JetStream.Stream(r.t.Context(), registry.StreamOf(bucket))
	r.check(err)
	info := s.CachedInfo()
	for sequence := info.State.FirstSeq; sequence <= info.State.LastSeq; sequence++ {
		msg, err := s.GetMsg(r.t.Context(), sequence)
		if errors.Is(err, jetstream.ErrMsgNotFound) ||
			err == nil && msg.Subject != registry.SubjectOf(bucket, key) {
			continue
		}
		r.check(err)
		entry, ok, err := edit.DecodeAuditEntry(msg.Header)
		r.check(err)
		if ok {
			actions = append(actions, entry.Action)
			if of := edit.AuditBucket(entry.Action); of != bucket {
				r.t.Errorf("the bucket of %s is %q", entry.Action, of)
			}
		}
	}
	return actions
}
