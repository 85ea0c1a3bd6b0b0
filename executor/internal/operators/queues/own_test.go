package queues_test

import (
	"context"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// The runners of a group cannot create the group's consumer in the queue's own stream, so the
// executor creates it. The group's in-flight limit applies to its consumers in both streams
// together.
func TestGroupsInAnOwnStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lanes, limit int64
		// want holds the limits of the group's two consumers, first in the shared stream and then
		// in the own stream: when only the shared stream has work, when both streams have work, and
		// when only the own stream has work.
		want [3][2]int
	}{
		"without lanes": {0, 5, [3][2]int{{5, 1}, {3, 2}, {1, 5}}},
		"lanes":         {16, 40, [3][2]int{{24, 1}, {4, 4}, {1, 24}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkOwnStreamLimits(t, c.lanes, c.limit, c.want)
		})
	}
}

func checkOwnStreamLimits(t *testing.T, lanes, limit int64, want [3][2]int) {
	t.Helper()
	r := start(t)
	settings := &registry.Queue{
		Name: "q", LaneCount: lanes,
		Groups: []registry.QueueGroup{{Group: "g", MaxInFlight: limit}},
	}
	watch, err := queues.New(queues.Config{
		Conn: r.nc, JetStream: r.js, QueueNames: func() []string { return []string{"q"} },
		Settings: func() []*registry.Queue {
			return []*registry.Queue{settings}
		}, RecorderConsumer: "executor",
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
	inFlight := func() (have [2]int) {
		t.Helper()
		for i, name := range []string{stream.ExecutionsName, stream.OwnStreamName("q")} {
			consumer, err := r.js.Consumer(t.Context(), name, group.ConsumerName())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			config := consumer.CachedInfo().Config
			have[i] = config.MaxAckPending
			if config.AckWait != 7*time.Second {
				t.Fatalf("%s: %+v", name, config)
			}
		}
		return have
	}
	until := func(want [2]int) {
		t.Helper()
		var have [2]int
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
			if _, err := watch.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
			if have = inFlight(); have == want {
				return
			}
		}
		t.Fatalf("in flight %v, want %v", have, want)
	}
	r.ingress.Start(t, runnertest.Post{Queue: "q"})
	r.ingress.MoveToOwnStream(t, "q")
	until(want[0])
	r.ingress.Start(t, runnertest.Post{Queue: "q"})
	until(want[1])
	if err := watch.EnforceSettings(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
	if have := inFlight(); have != want[1] {
		t.Errorf("in flight after the settings are enforced: %v, want %v", have, want[1])
	}
	r.finish(group, stream.ExecutionsName)
	until(want[2])

	// A group without work gets its full limit in the stream where the next start message arrives.
	r.finish(group, stream.OwnStreamName("q"))
	for phase, want := range map[registry.StreamPhase][2]int{
		registry.QueuePhaseMovingToOwn:       want[0],
		registry.QueuePhaseOwnStream:         want[2],
		registry.QueuePhaseMovingToShared:    want[2],
		registry.QueuePhaseDrainingOwnStream: want[0],
	} {
		moved := *settings
		moved.Stream = &registry.QueueStream{Phase: phase}
		if err := watch.EnforceSettings(t.Context(), &moved); err != nil {
			t.Fatal(err)
		}
		if have := inFlight(); have != want {
			t.Errorf("in flight without work in phase %d: %v, want %v", phase, have, want)
		}
	}
}

// offlineStream is a JetStream in which one stream is offline, as if all servers that hold the
// stream were down.
type offlineStream struct {
	jetstream.JetStream

	name string
}

func (o offlineStream) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if name == o.name {
		return nil, &jetstream.APIError{
			Code: 500, ErrorCode: stream.CodeStreamOffline, Description: "stream is offline",
		}
	}
	return o.JetStream.Stream(ctx, name)
}

// A queue's own stream is already offline when the Watcher is created. Poll then counts only the
// queue's executions in the shared stream, and marks the queue as Incomplete. It reports all other
// queues as usual.
func TestAnOwnStreamIsOfflineFromTheStart(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ingress.Start(t, runnertest.Post{Queue: "a"})
	r.ingress.Start(t, runnertest.Post{Queue: "b"})
	r.ingress.MoveToOwnStream(t, "b")
	r.ingress.Start(t, runnertest.Post{Queue: "b"})
	for _, named := range [][]string{{"a", "b"}, {"b"}} {
		offline := true
		var js jetstream.JetStream = offlineStream{r.js, stream.OwnStreamName("b")}
		for range 2 {
			watch, err := queues.New(queues.Config{
				Conn: r.nc, JetStream: js, QueueNames: func() []string { return named },
				RecorderConsumer: "executor",
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(watch.Stop)
			found, err := watch.Poll(t.Context())
			if err != nil || len(found) != len(named) {
				t.Fatalf("%+v, %v", found, err)
			}
			for _, q := range found {
				want := queues.Queue{Name: q.Name, Waiting: 1, OldestAcceptedAt: q.OldestAcceptedAt}
				if q.Name == "b" {
					want.Incomplete = offline
					if !offline {
						want.Waiting = 2
					}
				}
				if q.OldestAcceptedAt.IsZero() || !reflect.DeepEqual(q, want) {
					t.Errorf("offline %v: got %+v, want %+v", offline, q, want)
				}
			}
			offline, js = false, r.js
		}
	}
}

// If the own stream of a queue is offline, pausing the queue takes effect in the shared stream,
// although EnforceSettings returns an error. Each later poll enforces the current settings in the
// shared stream as well.
func TestPausedWhileTheOwnStreamIsOffline(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ingress.MoveToOwnStream(t, "q")
	group := stream.RunnerGroup{Queue: "q", Group: "g"}
	if _, err := stream.EnsureRunnerConsumer(t.Context(), r.js, group,
		group.ConsumerConfig(7*time.Second)); err != nil {
		t.Fatal(err)
	}
	settings := &registry.Queue{Name: "q"}
	watch, err := queues.New(queues.Config{
		Conn: r.nc, JetStream: offlineStream{r.js, stream.OwnStreamName("q")},
		QueueNames: func() []string { return []string{"q"} },
		Settings: func() []*registry.Queue {
			return []*registry.Queue{settings}
		}, RecorderConsumer: "executor",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	wantPaused := func(want bool, when string) {
		t.Helper()
		consumer, err := r.js.Consumer(t.Context(), stream.ExecutionsName, group.ConsumerName())
		if err != nil {
			t.Fatal(err)
		}
		if have := consumer.CachedInfo().Paused; have != want {
			t.Errorf("paused %s: %v, want %v", when, have, want)
		}
	}
	paused := *settings
	paused.PausedSince = time.Now()
	if err := watch.EnforceSettings(t.Context(), &paused); err == nil {
		t.Error("the settings are said to be enforced")
	}
	wantPaused(true, "after the settings are enforced")
	if _, err := watch.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPaused(false, "after a poll with other settings")

	// The pairs are applied in order. Each holds a new limit of the group, and the limit that is in
	// force in the shared stream afterwards. Runners may still be getting work from the own stream,
	// so a limit can be lowered but not raised: 9 after 4 leaves it at 4. A removed limit (0) takes
	// effect at once, and so does 9 after that, which lowers it again.
	unlimited := int64(group.ConsumerConfig(7 * time.Second).MaxAckPending)
	for _, c := range [][2]int64{{4, 4}, {9, 4}, {3, 3}, {0, unlimited}, {9, 9}} {
		limited := *settings
		limited.Groups = []registry.QueueGroup{{Group: "g", MaxInFlight: c[0]}}
		if err := watch.EnforceSettings(t.Context(), &limited); err == nil {
			t.Error("the limit is said to be enforced")
		}
		consumer, err := r.js.Consumer(t.Context(), stream.ExecutionsName, group.ConsumerName())
		if err != nil {
			t.Fatal(err)
		}
		if have := consumer.CachedInfo().Config.MaxAckPending; have != int(c[1]) {
			t.Errorf("limited to %d: %d in flight", c[0], have)
		}
	}
}

// slowStream is a JetStream in which the first request to one stream times out.
type slowStream struct {
	jetstream.JetStream

	name string
	once sync.Once
}

func (s *slowStream) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if name == s.name {
		s.once.Do(func() { <-ctx.Done() })
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.JetStream.Stream(ctx, name)
}

// If the own stream of a queue needs more time than a poll allows, EnforceSettings waits longer,
// and pauses the queue in both streams.
func TestPausedWhileTheOwnStreamIsSlow(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ingress.MoveToOwnStream(t, "q")
	group := stream.RunnerGroup{Queue: "q", Group: "g"}
	if _, err := stream.EnsureRunnerConsumer(t.Context(), r.js, group,
		group.ConsumerConfig(7*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := stream.EnsureOwnStreamConsumers(t.Context(), r.js, "q"); err != nil {
		t.Fatal(err)
	}
	watch, err := queues.New(queues.Config{
		Conn: r.nc, JetStream: &slowStream{JetStream: r.js, name: stream.OwnStreamName("q")},
		QueueNames: func() []string { return []string{"q"} }, RecorderConsumer: "executor",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	if err := watch.EnforceSettings(t.Context(), &registry.Queue{
		Name: "q", PausedSince: time.Now(),
		Groups: []registry.QueueGroup{{Group: "g", MaxInFlight: 4}},
	}); err != nil {
		t.Fatal(err)
	}
	inFlight := 0
	for _, name := range []string{stream.ExecutionsName, stream.OwnStreamName("q")} {
		consumer, err := r.js.Consumer(t.Context(), name, group.ConsumerName())
		if err != nil {
			t.Fatal(err)
		}
		if !consumer.CachedInfo().Paused {
			t.Errorf("%s: the consumer is not paused", name)
		}
		inFlight += consumer.CachedInfo().Config.MaxAckPending
	}
	if inFlight != 5 {
		t.Errorf("%d in flight, want the limit and one", inFlight)
	}
}

// If the own stream of one queue is offline, StartMessages still returns the start messages of all
// other queues, together with an error.
func TestStartMessagesWithoutThoseOfAnOfflineStream(t *testing.T) {
	t.Parallel()
	r := start(t)
	ofQueue := func(queue string, sequence uint64) store.Record {
		return store.Record{
			ID: r.ingress.Start(t, runnertest.Post{Queue: queue, WorkflowID: "wf"}), Queue: queue,
			WorkflowID: "wf", NodeID: "webhook", StreamSequence: sequence,
		}
	}
	shared := ofQueue("a", 1)
	r.ingress.MoveToOwnStream(t, "b")
	r.ingress.MoveToOwnStream(t, "c")
	down, up := ofQueue("b", 1), ofQueue("c", 1)
	watch, err := queues.New(queues.Config{
		Conn: r.nc, JetStream: offlineStream{r.js, stream.OwnStreamName("b")},
		RecorderConsumer: "executor",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	messages, err := watch.StartMessages(t.Context(), []store.Record{down, shared, up})
	if err == nil || len(messages) != 2 || messages[shared.ID] == nil || messages[up.ID] == nil {
		t.Errorf("found %v, %v", messages, err)
	}
}

// finish receives and acknowledges the next message of a group in the stream with the given name.
func (r *rig) finish(group stream.RunnerGroup, name string) {
	r.t.Helper()
	consumer, err := r.js.Consumer(r.t.Context(), name, group.ConsumerName())
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
