package queues_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// Three executions with the same order key are started. While a runner has the first one
// unacknowledged, Poll reports it as blocking the other two.
func TestAKeyIsHeldUp(t *testing.T) {
	t.Parallel()
	r := start(t, "a")
	group := stream.RunnerGroup{Queue: "a", Group: "main"}
	main, err := stream.EnsureRunnerConsumer(t.Context(), r.js, group,
		group.ConsumerConfig(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	number := execution.LaneOf("orders", "k")
	lane, err := stream.EnsureRunnerConsumer(t.Context(), r.js, group,
		group.LaneConsumerConfig(number, main.CachedInfo()))
	if err != nil {
		t.Fatal(err)
	}
	post := runnertest.Post{Queue: "a", WorkflowID: "orders", OrderKey: "k"}
	before := time.Now()
	first := r.ingress.Start(t, post)
	accepted := time.Now()
	for range 2 {
		r.ingress.Start(t, post)
	}
	// No runner has received any of the three executions yet, so none of them blocks the others.
	r.until("a: 3 wait, main has 0 and 3")

	msg, err := lane.Next()
	if err != nil {
		t.Fatal(err)
	}
	// The test has received the first execution like a runner, but sends no heartbeats. The group
	// therefore has no members, and the unacknowledged execution still counts as waiting.
	held := r.until("a: 3 wait, main has 0 and 3, 2 behind k")[0].Groups[0].Blocking
	since := held[0].AcceptedAt
	if since.Before(before.Truncate(time.Millisecond)) || since.After(accepted) {
		t.Errorf("held up since %v, want between %v and %v", since, before, accepted)
	}
	held[0].AcceptedAt = time.Time{}
	if want := (queues.BlockingExecution{
		Lane:        number,
		WorkflowID:  "orders",
		OrderKey:    "k",
		ExecutionID: first,
		Waiting:     2,
	}); held[0] != want {
		t.Errorf("held up: %+v, want %+v", held[0], want)
	}

	acknowledge(t, msg)
	r.until("a: 2 wait, main has 0 and 2")
	// A runner receives the only execution that is left. It blocks nothing, because no other
	// execution waits behind it.
	for range 2 {
		if msg, err = lane.Next(); err != nil {
			t.Fatal(err)
		}
		acknowledge(t, msg)
	}
	last := r.ingress.Start(t, post)
	if msg, err = lane.Next(); err != nil || msg.Headers().Get(stream.HeaderExecutionID) != last {
		t.Fatalf("received %v, %v", msg, err)
	}
	r.until("a: 1 wait, main has 0 and 1")
}

func acknowledge(t *testing.T, msg jetstream.Msg) {
	t.Helper()
	if err := msg.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
}
