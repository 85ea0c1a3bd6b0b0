package queues_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// The executor creates the missing consumer in the queue's own stream for a group that cannot
// create consumers itself. The group's in-flight limit applies to both of its consumers together.
func TestGroupsInAnOwnStream(t *testing.T) {
	t.Parallel()
	r := start(t)
	settings := &registry.Queue{
		Name:   "q",
		Groups: []registry.QueueGroup{{Group: "g", MaxInFlight: 5}},
	}
	watch, err := queues.New(queues.Config{
		Conn: r.nc, JetStream: r.js, Named: func() []string { return []string{"q"} },
		Settings: func() []*registry.Queue {
			return []*registry.Queue{settings}
		}, Recorder: "executor",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	group := stream.RunnerGroup{Queue: "q", Group: "g"}
	if _, err := stream.EnsureRunnerConsumer(t.Context(), r.js, group,
		group.ConsumerConfig(7*time.Second)); err != nil {
		t.Fatal(err)
	}
	until := func(shared, own int) {
		t.Helper()
		var have [2]int
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
			if _, err := watch.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, name := range []string{stream.ExecutionsName, stream.OwnStreamName("q")} {
				var consumer jetstream.Consumer
				if consumer, err = r.js.Consumer(t.Context(), name, group.Consumer()); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				config := consumer.CachedInfo().Config
				have[i] = config.MaxAckPending
				if config.AckWait != 7*time.Second {
					t.Fatalf("%s: %+v", name, consumer.CachedInfo().Config)
				}
			}
			if have == [2]int{shared, own} {
				return
			}
		}
		t.Fatalf("in flight %v, want %d and %d", have, shared, own)
	}
	r.ingress.Start(t, runnertest.Post{Queue: "q"})
	r.ingress.MoveToOwnStream(t, "q")
	until(5, 1)
	r.ingress.Start(t, runnertest.Post{Queue: "q"})
	until(3, 2)
	r.finish(group, stream.ExecutionsName)
	until(1, 5)
}

// finish acknowledges the first message of a group.
func (r *rig) finish(group stream.RunnerGroup, name string) {
	r.t.Helper()
	consumer, err := r.js.Consumer(r.t.Context(), name, group.Consumer())
	if err != nil {
		r.t.Fatal(err)
	}
	msg, err := consumer.Next()
	if err == nil {
		err = msg.DoubleAck(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
}
