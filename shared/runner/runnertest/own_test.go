package runnertest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// A runner receives the executions of its queue from both the shared stream and the queue's own
// stream, and follows moves without a restart. It publishes each report to the stream of reports
// that belongs to the start message's stream. Each execution runs once.
func TestARunnerFollowsItsQueue(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			t.Parallel()
			nc := natstest.Start(t).Connect(t)
			ingress := runnertest.NewIngress(t, nc)
			var mu sync.Mutex
			ran := map[string]int{}
			stop := start(t, nc, runner.Options{Concurrency: concurrency}, func(
				_ context.Context, e runner.Execution,
			) (any, error) {
				mu.Lock()
				defer mu.Unlock()
				ran[e.ID]++
				return nil, nil
			})
			var started []string
			begin := func(n int) {
				for range n {
					started = append(started, ingress.Start(t, runnertest.Post{}))
				}
			}
			await := func() {
				for _, id := range started {
					if final := ingress.Await(t, id); final.Status != execution.Succeeded {
						t.Fatalf("%s ended as %+v", id, final)
					}
				}
			}
			begin(20)
			ingress.MoveToOwnStream(t, execution.DefaultQueue)
			begin(20)
			await()
			if n := messages(t, nc, stream.OwnProgressStreamName(execution.DefaultQueue)); n != 20 {
				t.Errorf("the own stream of reports has %d reports, want 20", n)
			}
			ingress.MoveToSharedStream(t, execution.DefaultQueue)
			begin(20)
			ingress.MoveToOwnStream(t, execution.DefaultQueue)
			begin(20)
			await()
			ingress.MoveToSharedStream(t, execution.DefaultQueue)
			ingress.DeleteOwnStream(t, execution.DefaultQueue)
			first := len(started)
			begin(5)
			started = started[first:]
			await()
			ingress.MoveToOwnStream(t, execution.DefaultQueue) // a new stream with the same name
			begin(20)
			await()
			stop()
			for id, n := range ran {
				if n != 1 {
					t.Errorf("%s ran %d times", id, n)
				}
			}
			if len(ran) != 105 {
				t.Errorf("%d executions ran, want 105", len(ran))
			}
		})
	}
}

// A runner may start while nothing answers requests for its queue's record, for example because a
// cluster is starting. It still notices later that the queue has its own stream.
func TestARunnerFollowsARecordThatWasNotThere(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	var firstLane runnertest.Post // its key is in lane 0
	for n := 0; firstLane.OrderKey == ""; n++ {
		if key := fmt.Sprint(n); execution.LaneOf("workflow", key) == 0 {
			firstLane.OrderKey = key
		}
	}
	handler := func(context.Context, runner.Execution) (any, error) { return nil, nil }
	stop := start(t, nc, runner.Options{}, handler)
	ingress.Await(t, ingress.Start(t, firstLane)) // now the lane has a consumer
	stop()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := js.Stream(t.Context(), "KV_registry")
	if err != nil {
		t.Fatal(err)
	}
	config := registry.CachedInfo().Config
	config.AllowDirect = false
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	start(t, nc, runner.Options{}, handler)
	// The queue's record cannot be read now. This execution nevertheless runs, because the runner
	// also finds lanes by their consumers, and this lane has one. The move then makes the record
	// readable again.
	ingress.Await(t, ingress.Start(t, firstLane))
	ingress.MoveToOwnStream(t, execution.DefaultQueue)
	id := ingress.Start(t, runnertest.Post{})
	if final := ingress.Await(t, id); final.Status != execution.Succeeded {
		t.Errorf("it ended as %+v", final)
	}
}

// A runner survives the loss of its connection even if the connection has no reconnect buffer and
// the runner's consumers share the concurrency slots.
func TestARunnerInAnOwnStreamSurvivesALostConnection(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	ingress.MoveToOwnStream(t, execution.DefaultQueue)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	nc := server.Connect(t, nats.ReconnectBufSize(-1))
	go func() {
		ended <- runner.Run(ctx, nc, runner.Options{Group: "group"}, func(
			context.Context, runner.Execution,
		) (any, error) {
			return nil, nil
		})
	}()
	ingress.Await(t, ingress.Start(t, runnertest.Post{}))
	before := nc.NumSubscriptions()
	server.Stop()
	select {
	case err := <-ended:
		t.Fatalf("the runner ended with %v", err)
	case <-time.After(3 * time.Second): // several requests for messages have failed by now
	}
	if n := nc.NumSubscriptions(); n > before+1 {
		t.Errorf("the runner has %d subscriptions, and had %d before", n, before)
	}
	server.Restart()
	if final := ingress.Await(t, ingress.Start(t, runnertest.Post{})); final.Status !=
		execution.Succeeded {
		t.Errorf("it ended as %+v", final)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the runner ended with %v", err)
	}
}

func messages(t *testing.T, nc *nats.Conn, name string) uint64 {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// A new group receives earlier executions from its queue's own stream, unless OnlyNew is set.
func TestANewGroupInAnOwnStream(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	ingress.MoveToOwnStream(t, execution.DefaultQueue)
	before := ingress.Start(t, runnertest.Post{})
	got := map[string]chan string{}
	for _, group := range []string{"all", "new"} {
		ran := make(chan string, 2)
		got[group] = ran
		start(t, nc, runner.Options{Group: group, OnlyNew: group == "new"}, func(
			_ context.Context, e runner.Execution,
		) (any, error) {
			ran <- e.ID
			return nil, nil
		})
	}
	if id := <-got["all"]; id != before {
		t.Errorf("it got %s first", id)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	name := stream.RunnerGroup{Queue: execution.DefaultQueue, Group: "new"}.ConsumerName()
	for {
		if _, err := js.Consumer(ctx, stream.OwnStreamName(execution.DefaultQueue),
			name); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the group has no consumer in the own stream")
		}
	}
	after := ingress.Start(t, runnertest.Post{})
	if id := <-got["new"]; id != after {
		t.Errorf("it got %s first, want %s", id, after)
	}
}

// Executions with the same key keep their order when their queue moves to another stream while they
// wait, even if some members of the group notice the move late.
func TestOrderAcrossMoves(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	b := &begins{t: t, running: map[string]string{}, order: map[string][]string{}}
	var gate atomic.Pointer[chan struct{}]
	closeGate := func() (open func()) {
		closed := make(chan struct{})
		gate.Store(&closed)
		return func() { close(closed) }
	}
	open := closeGate()
	handler := func(_ context.Context, e runner.Execution) (any, error) {
		b.begin(e.OrderKey, e.ID)
		defer b.end(e.OrderKey)
		<-*gate.Load()
		return nil, nil
	}
	const keys = 12
	want := map[string][]string{}
	last := map[string]string{}
	begin := func(each int) {
		for n := range each {
			for k := range keys {
				key := fmt.Sprint("key ", k)
				id := ingress.Start(t, runnertest.Post{
					OrderKey:   key,
					WorkflowID: fmt.Sprint("wf", k%3),
					NodeID:     fmt.Sprint("n", n),
				})
				want[key], last[key] = append(want[key], id), id
			}
		}
	}
	await := func() {
		for _, id := range last {
			if final := ingress.Await(t, id); final.Status != execution.Succeeded {
				t.Fatalf("%s ended as %+v", id, final)
			}
		}
	}
	options := runner.Options{Concurrency: 3}
	begin(4)
	start(t, server.Connect(t), options, handler)
	start(t, server.Connect(t), options, handler)
	// So far, all executions are in the shared stream. Move the queue, so that the next ones are in
	// its own stream.
	ingress.MoveToOwnStream(t, execution.DefaultQueue)
	begin(4)
	open()
	await()
	// The members know that the queue has its own stream, but notice late that it has moved back.
	// They must still run the executions in the queue's own stream first, because those in the
	// shared stream are newer.
	open = closeGate()
	begin(4)
	ingress.MoveToSharedStream(t, execution.DefaultQueue)
	begin(4)
	open()
	await()
	for key := range want {
		if !slices.Equal(b.order[key], want[key]) {
			t.Errorf("%s began in the order\n%v, started in\n%v", key, b.order[key], want[key])
		}
	}
}

// Executions with the same key keep their order even if the queue moves to its own stream and back
// so quickly that no member of the group notices it.
func TestOrderAcrossUnnoticedMoves(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	b := &begins{t: t, running: map[string]string{}, order: map[string][]string{}}
	start(t, server.Connect(t), runner.Options{}, func(
		_ context.Context, e runner.Execution,
	) (any, error) {
		b.begin(e.OrderKey, e.ID)
		defer b.end(e.OrderKey)
		return nil, nil
	})
	// The runner reads the queue's record every 2 s, and begins to consume from the lanes right
	// after it has learned of them from the record. So when the first execution has succeeded, the
	// runner has just read the record, and both moves below happen before it reads the record
	// again.
	var want []string
	begin := func() {
		want = append(want, ingress.Start(t, runnertest.Post{OrderKey: "key"}))
	}
	begin()
	ingress.Await(t, want[0])
	ingress.MoveToOwnStream(t, execution.DefaultQueue)
	begin()
	begin()
	ingress.MoveToSharedStream(t, execution.DefaultQueue)
	begin()
	begin()
	for _, id := range want {
		if final := ingress.Await(t, id); final.Status != execution.Succeeded {
			t.Fatalf("%s ended as %+v", id, final)
		}
	}
	if !slices.Equal(b.order["key"], want) {
		t.Errorf("the executions began in the order\n%v, started in\n%v", b.order["key"], want)
	}
}
