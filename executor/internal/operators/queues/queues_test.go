package queues_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// rig is a NATS server with an ingress and a Watcher.
type rig struct {
	t       *testing.T
	nats    *natstest.Node
	nc      *nats.Conn
	js      jetstream.JetStream
	ingress *runnertest.Ingress
	watch   *queues.Watcher
}

func start(t *testing.T, named ...string) *rig {
	t.Helper()
	r := &rig{t: t, nats: natstest.Start(t)}
	r.nc = r.nats.Connect(t)
	r.ingress = runnertest.NewIngress(t, r.nc)
	var err error
	if r.js, err = jetstream.New(r.nc); err != nil {
		t.Fatal(err)
	}
	r.watch, err = queues.New(queues.Config{
		Conn: r.nc, JetStream: r.js,
		QueueNames: func() []string {
			return named
		}, RecorderConsumer: "executor",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.watch.Stop)
	return r
}

// until calls Poll until its result, formatted by said, equals want, and returns that result. In
// want, "main has 2 and 3" means that the group main has two members and three waiting executions.
func (r *rig) until(want string) []queues.Queue {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 40*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		found, err := r.watch.Poll(r.t.Context())
		got := said(found)
		if err == nil && got == want {
			return found
		}
		select {
		case <-ctx.Done():
			r.t.Fatalf("found %q, want %q; %v", got, want, err)
		case <-tick.C:
		}
	}
}

func said(found []queues.Queue) string {
	var all []string
	for _, q := range found {
		text := fmt.Sprintf("%s: %d wait", q.Name, q.Waiting)
		for _, g := range q.Groups {
			text += fmt.Sprintf(", %s has %d and %d", g.Name, g.Members, g.Waiting)
			for _, h := range g.Blocking {
				text += fmt.Sprintf(", %d behind %s", h.Waiting, h.OrderKey)
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// run runs a runner with the options o and the given handler, until stop is called.
func (r *rig) run(nc *nats.Conn, o runner.Options, handle runner.Handler) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx, nc, o, handle) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			r.t.Errorf("runner: %v", err)
		}
	}
	return stop
}

func TestWhatWaitsAndWhoTakesIt(t *testing.T) {
	t.Parallel()
	r := start(t, "a", "b")
	before := time.Now().Add(-time.Second)
	r.ingress.Start(t, runnertest.Post{Queue: "a", WorkflowID: "one"})
	r.ingress.Start(t, runnertest.Post{Queue: "a", WorkflowID: "two"})
	found := r.until("a: 2 wait; b: 0 wait")
	if at := found[0].OldestAcceptedAt; at.Before(before) || at.After(time.Now()) ||
		!found[1].OldestAcceptedAt.IsZero() {
		t.Errorf("the oldest of %v and %v", at, found[1].OldestAcceptedAt)
	}
	if d := found[0].UnattendedDuration(time.Now().Add(time.Minute)); d < time.Minute ||
		d > 2*time.Minute || found[1].UnattendedDuration(time.Now()) != 0 {
		t.Errorf("unattended for %v", d)
	}

	// Run two members of one group. Each of them handles one execution at a time.
	release := make(chan struct{})
	handle := func(ctx context.Context, _ runner.Execution) (any, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	}
	stopOne := r.run(r.nc, runner.Options{Queue: "a", Group: "main", Concurrency: 1}, handle)
	stopTwo := r.run(r.nc, runner.Options{Queue: "a", Group: "main", Concurrency: 1}, handle)
	r.until("a: 0 wait, main has 2 and 0; b: 0 wait")
	for range 3 {
		r.ingress.Start(t, runnertest.Post{Queue: "a"})
	}
	// Both members are busy and request nothing, but they still count as members.
	found = r.until("a: 3 wait, main has 2 and 3; b: 0 wait")
	if found[0].UnattendedDuration(time.Now().Add(time.Hour)) != 0 ||
		found[0].OldestAcceptedAt.IsZero() {
		t.Errorf("%+v", found[0])
	}
	close(release)
	r.until("a: 0 wait, main has 2 and 0; b: 0 wait")

	// A member that announces that it leaves stops counting immediately.
	stopOne()
	r.until("a: 0 wait, main has 1 and 0; b: 0 wait")
	stopTwo()
	found = r.until("a: 0 wait, main has 0 and 0; b: 0 wait")
	if g := found[0].Groups[0]; time.Since(g.LastSeen) > time.Minute {
		t.Errorf("last seen %v", g.LastSeen)
	}
	// The group "other" has received none of the six executions, and the group "main" has received
	// all but one. The queue counts one execution as waiting: the smaller number of the two groups.
	if _, err := stream.EnsureConsumer(t.Context(), r.js, stream.RunnerGroup{
		Queue: "a",
		Group: "other",
	}.ConsumerConfig(time.Minute)); err != nil {
		t.Fatal(err)
	}
	r.ingress.Start(t, runnertest.Post{Queue: "a"})
	r.until("a: 1 wait, main has 0 and 1, other has 0 and 6; b: 0 wait")
}

// A killed runner stops counting as a member after a few seconds. The executions that it had begun
// then count as waiting again.
func TestAKilledRunnerIsMissed(t *testing.T) {
	t.Parallel()
	r := start(t, "a")
	nc := r.nats.Connect(t, nats.NoReconnect())
	began := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_ = runner.Run(ctx, nc, runner.Options{Queue: "a", Group: "main"}, func(
			ctx context.Context, _ runner.Execution,
		) (any, error) {
			began <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		})
	}()
	r.ingress.Start(t, runnertest.Post{Queue: "a"})
	<-began
	r.until("a: 0 wait, main has 1 and 0")
	killed := time.Now()
	nc.Close()
	found := r.until("a: 1 wait, main has 0 and 1")
	if took := time.Since(killed); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	if d := found[0].UnattendedDuration(time.Now()); d < 5*time.Second || d > 30*time.Second {
		t.Errorf("unattended for %v", d)
	}
}

// A runner whose handlers are all busy sends no pull requests, so only its heartbeats show that it
// is there. At the start and after a reconnect, the Watcher has not heard any heartbeats yet. It
// does not report the queue as unattended until every runner has had time to send one.
func TestABusyRunnerIsNotMissedBeforeItIsHeard(t *testing.T) {
	t.Parallel()
	r := start(t, "a")
	consumer, err := stream.EnsureConsumer(t.Context(), r.js, stream.RunnerGroup{
		Queue: "a",
		Group: "main",
	}.ConsumerConfig(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	r.ingress.Start(t, runnertest.Post{Queue: "a"})
	if _, err := consumer.Next(); err != nil { // the execution is never acknowledged
		t.Fatal(err)
	}
	unattended := func() bool {
		t.Helper()
		if err := r.watch.EnforceSettings(t.Context(), &registry.Queue{Name: "a"}); err != nil {
			t.Fatal(err) // EnforceSettings makes Poll query the server again
		}
		found, err := r.watch.Poll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		without := found[0].UnattendedDuration(time.Now().Add(time.Minute)) > 0
		if unknown := found[0].Groups[0].MembersUnknown; unknown == without {
			t.Errorf("unattended: %t, members are unknown: %t", without, unknown)
		}
		counts := 1 // the metric of the default queue, which has no group
		if without {
			counts++
		}
		if n := testutil.CollectAndCount(r.watch, "hookstart_executor_queue_members"); n != counts {
			t.Errorf("unattended: %t, yet %d numbers of members", without, n)
		}
		return without
	}
	if unattended() {
		t.Error("unattended at the start")
	}
	waiting, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	retry.Until(waiting, 100*time.Millisecond, unattended)
	if waiting.Err() != nil {
		t.Error("not unattended after 20 s without a runner")
	}
	if err := r.nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	reconnecting, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	retry.Until(reconnecting, 10*time.Millisecond, func() bool {
		return r.nc.Stats().Reconnects > 0
	})
	if unattended() {
		t.Error("unattended after a reconnect")
	}
}

// Runners that send no heartbeats are counted by their waiting pull requests.
func TestOtherRunners(t *testing.T) {
	t.Parallel()
	r := start(t, "a", "b")
	config := stream.RunnerGroup{Queue: "a", Group: "x"}.ConsumerConfig(time.Minute)
	config.Durable, config.FilterSubject = "mine", "executions.start.*.>"
	consumer, err := stream.EnsureConsumer(t.Context(), r.js, config)
	if err != nil {
		t.Fatal(err)
	}
	consuming, err := consumer.Consume(func(msg jetstream.Msg) { _ = msg.Ack() })
	if err != nil {
		t.Fatal(err)
	}
	defer consuming.Stop()
	r.until("a: 0 wait, mine has 1 and 0; b: 0 wait, mine has 1 and 0")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := start(t, "a")
	want := func(text string) {
		t.Helper()
		if err := testutil.CollectAndCompare(r.watch, strings.NewReader(text),
			"hookstart_executor_queue_waiting_messages",
			"hookstart_executor_queue_members"); err != nil {
			t.Error(err)
		}
	}
	const head = `# HELP hookstart_executor_queue_members Runners of each group that are there; no group: the queue has none; absent: unknown yet.
# TYPE hookstart_executor_queue_members gauge
`
	const waits = `# HELP hookstart_executor_queue_waiting_messages Starts of the queue that no runner was given yet.
# TYPE hookstart_executor_queue_waiting_messages gauge
`
	want(head + `hookstart_executor_queue_members{group="",queue="default"} 0
` + waits + `hookstart_executor_queue_waiting_messages{queue="default"} 0
`)
	r.ingress.Start(t, runnertest.Post{Queue: "a"})
	r.until("a: 1 wait")
	want(head + `hookstart_executor_queue_members{group="",queue="a"} 0
hookstart_executor_queue_members{group="",queue="default"} 0
` + waits + `hookstart_executor_queue_waiting_messages{queue="a"} 1
hookstart_executor_queue_waiting_messages{queue="default"} 0
`)
}

// A change of the settings by another executor is in the result of the next Poll, even if the
// previous poll was less than a second ago.
func TestSettingsOfAnotherExecutor(t *testing.T) {
	t.Parallel()
	r := start(t)
	settings := []*registry.Queue{{Name: "a"}}
	watch, err := queues.New(queues.Config{
		Conn: r.nc, JetStream: r.js,
		QueueNames:       func() []string { return []string{"a"} },
		Settings:         func() []*registry.Queue { return slices.Clone(settings) },
		RecorderConsumer: "executor",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for _, since := range []time.Time{{}, time.Unix(1_000_000, 0), {}} {
		settings[0] = &registry.Queue{Name: "a", PausedSince: since}
		found, err := watch.Poll(t.Context())
		if err != nil || len(found) != 1 || !found[0].PausedSince.Equal(since) {
			t.Errorf("%+v, %v, want paused since %v", found, err, since)
		}
	}
}

// Poll includes a queue as soon as a workflow uses it, even if the previous poll was less than a
// second ago.
func TestAQueueIsThereOnceItIsNamed(t *testing.T) {
	t.Parallel()
	r := start(t)
	named := []string{"a"}
	watch, err := queues.New(queues.Config{
		Conn: r.nc, JetStream: r.js,
		QueueNames: func() []string {
			return named
		}, RecorderConsumer: "executor",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for _, now := range [][]string{{"a"}, {"a", "b"}, {"b", "c"}, {}} {
		named = now
		found, err := watch.Poll(t.Context())
		var names []string
		for _, q := range found {
			names = append(names, q.Name)
		}
		if err != nil || !slices.Equal(names, now) {
			t.Errorf("found %v, %v, want %v", names, err, now)
		}
	}
}

// A start message counts as delivered once a group has received it. It does not count as delivered
// if only an executor or a backup has read it, or if it was stored before the start time of the
// group's consumer.
func TestAGroupThatBeganLaterWasDeliveredNothing(t *testing.T) {
	t.Parallel()
	r := start(t, "a")
	records := make([]store.Record, 2)
	for i := range records {
		id := r.ingress.Start(t, runnertest.Post{Queue: "a", WorkflowID: "wf"})
		records[i] = store.Record{
			ID: id, Queue: "a", WorkflowID: "wf", NodeID: "webhook",
			StreamSequence: uint64(i + 1),
		}
	}
	delivered := func() map[string]bool {
		t.Helper()
		messages, err := r.watch.StartMessages(t.Context(), records)
		if err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		for id, msg := range messages {
			ids[id] = msg.Delivered
		}
		return ids
	}
	group := func(name string, from jetstream.DeliverPolicy, since *time.Time) jetstream.Consumer {
		t.Helper()
		config := stream.RunnerGroup{Queue: "a", Group: name}.ConsumerConfig(time.Minute)
		config.DeliverPolicy, config.OptStartTime = from, since
		consumer, err := r.js.CreateConsumer(t.Context(), stream.ExecutionsName, config)
		if err != nil {
			t.Fatal(err)
		}
		return consumer
	}
	// A move or a backup reads all messages without starting executions, so its consumer must not
	// count as a group.
	reader, err := r.js.CreateConsumer(t.Context(), stream.ExecutionsName, jetstream.ConsumerConfig{
		Name: stream.DeliveryIDCopyConsumerName, AckPolicy: jetstream.AckNonePolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range records {
		if _, err := reader.Next(); err != nil {
			t.Fatal(err)
		}
	}
	main := group("main", jetstream.DeliverAllPolicy, nil)
	later := time.Now().Add(2 * time.Minute) // more than the clocks of two servers may differ
	group("tap", jetstream.DeliverByStartTimePolicy, &later)
	if ids := delivered(); ids[records[0].ID] || ids[records[1].ID] {
		t.Errorf("delivered, although no group has received any: %v", ids)
	}
	if _, err := main.Next(); err != nil {
		t.Fatal(err)
	}
	if ids := delivered(); !ids[records[0].ID] || ids[records[1].ID] {
		t.Errorf("delivered, although a group has received the first: %v", ids)
	}
}

// StartMessages reads each start message from the stream at most once, even if several groups were
// configured to begin after the oldest message. It does not read a message that a group with
// DeliverAllPolicy has received.
func TestStartMessagesAreReadOnce(t *testing.T) {
	t.Parallel()
	r := start(t, "a")
	records := make([]store.Record, 40)
	for i := range records {
		records[i] = store.Record{
			ID: r.ingress.Start(t, runnertest.Post{Queue: "a", WorkflowID: "wf"}), Queue: "a",
			WorkflowID: "wf", NodeID: "webhook", StreamSequence: uint64(i + 1),
		}
	}
	group := func(name string, from jetstream.DeliverPolicy) jetstream.Consumer {
		t.Helper()
		config := stream.RunnerGroup{Queue: "a", Group: name}.ConsumerConfig(time.Minute)
		config.DeliverPolicy = from
		if from == jetstream.DeliverByStartTimePolicy { // beyond any difference of clocks
			later := time.Now().Add(2 * time.Minute)
			config.OptStartTime = &later
		}
		consumer, err := r.js.CreateConsumer(t.Context(), stream.ExecutionsName, config)
		if err != nil {
			t.Fatal(err)
		}
		return consumer
	}
	group("b", jetstream.DeliverByStartTimePolicy)
	group("c", jetstream.DeliverByStartTimePolicy)
	main := group("main", jetstream.DeliverAllPolicy)
	requests := make(chan *nats.Msg, 10*len(records))
	for _, subject := range []string{
		"$JS.API.DIRECT.GET.EXECUTIONS", "$JS.API.STREAM.MSG.GET.EXECUTIONS",
	} {
		if _, err := r.nc.ChanSubscribe(subject, requests); err != nil {
			t.Fatal(err)
		}
	}
	check := func(wantDelivered, wantRead int) {
		t.Helper()
		messages, err := r.watch.StartMessages(t.Context(), records)
		if err == nil {
			err = r.nc.Flush() // afterwards, the channel holds all requests
		}
		if err != nil {
			t.Fatal(err)
		}
		delivered, read := 0, 0
		for _, msg := range messages {
			if msg.Delivered {
				delivered++
			}
		}
		for ; len(requests) > 0; read++ {
			<-requests
		}
		if delivered != wantDelivered || read != wantRead {
			t.Errorf("%d delivered, %d read, want %d and %d", delivered, read, wantDelivered,
				wantRead)
		}
	}
	check(0, len(records))
	if _, err := main.Fetch(30); err != nil {
		t.Fatal(err)
	}
	retry.Until(t.Context(), 10*time.Millisecond, func() bool {
		info, err := main.Info(t.Context())
		return err == nil && info.Delivered.Stream == 30
	})
	check(30, len(records)-30)
}

// A group's limit also covers its lanes, each of which may have one execution in flight: with a
// limit of 20 and 16 lanes, 4 remain for executions without an order key. This split takes effect
// as soon as the queue gets lanes, and remains during and after a pause.
func TestAGroupsLimitIncludesTheLanes(t *testing.T) {
	t.Parallel()
	r := start(t)
	group := stream.RunnerGroup{Queue: "q", Group: "g"}
	if _, err := stream.EnsureRunnerConsumer(t.Context(), r.js, group,
		group.ConsumerConfig(7*time.Second)); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, c := range []struct {
		lanes, limit int64
		pausedSince  time.Time
		want         int
	}{
		{0, 20, time.Time{}, 20},
		{16, 20, time.Time{}, 4},
		{16, 20, now, 4},
		{16, 20, time.Time{}, 4},
		{16, 12, time.Time{}, 1},
		{16, 0, time.Time{}, 10_000},
	} {
		if err := r.watch.EnforceSettings(t.Context(), &registry.Queue{
			Name: "q", LaneCount: c.lanes, PausedSince: c.pausedSince,
			Groups: []registry.QueueGroup{{Group: "g", MaxInFlight: c.limit}},
		}); err != nil {
			t.Fatal(err)
		}
		consumer, err := r.js.Consumer(t.Context(), stream.ExecutionsName, group.ConsumerName())
		if err != nil {
			t.Fatal(err)
		}
		info := consumer.CachedInfo()
		if info.Config.MaxAckPending != c.want || info.Paused == c.pausedSince.IsZero() {
			t.Errorf("%+v: the consumer has %d, paused %v", c, info.Config.MaxAckPending,
				info.Paused)
		}
		for lane := range int(c.lanes) {
			of, err := r.js.Consumer(t.Context(), stream.ExecutionsName,
				group.LaneConsumerName(lane))
			if err != nil {
				t.Fatal(err)
			}
			if limit := of.CachedInfo().Config.MaxAckPending; limit != 1 {
				t.Errorf("%+v: lane %d has %d", c, lane, limit)
			}
		}
	}
}
