package replicas_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/replicas"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
)

// Set increases the number of replicas of a stream from one to three. The stream then survives the
// loss of the server that had the first replica.
func TestSet(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, 3)
	js, err := jetstream.New(cluster.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := stream.EnsureSharedStreams(ctx, js, stream.DefaultSettings); err != nil {
		t.Fatal(err)
	}
	const messages = 500
	for range messages {
		if _, err := js.Publish(ctx, stream.StartSubject("q", "wf", "node"),
			[]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	var seen []replicas.State
	if err := replicas.Set(ctx, js, []string{stream.ExecutionsName}, 3, func(s replicas.State) {
		seen = append(seen, s)
	}); err != nil {
		t.Fatal(err)
	}
	if last := seen[len(seen)-1]; !last.IsComplete() || last.CompleteReplicas != 3 ||
		last.Stream != stream.ExecutionsName {
		t.Errorf("%+v", last)
	}
	if err := replicas.Set(ctx, js, []string{stream.ExecutionsName}, 3,
		func(replicas.State) {}); err != nil {
		t.Errorf("a second time: %v", err)
	}

	cluster.Stop(cluster.Leader(stream.ExecutionsName))
	leader := cluster.Leader(stream.ExecutionsName)
	survivor, err := jetstream.New(cluster.Node(leader).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	s, err := survivor.Stream(ctx, stream.ExecutionsName)
	if err != nil || s.CachedInfo().State.Msgs != messages {
		t.Errorf("after the loss of a server: %+v, %v", s.CachedInfo().State, err)
	}
	if err := replicas.Set(ctx, js, []string{"NONE"}, 3,
		func(replicas.State) {}); err == nil {
		t.Error("a stream that does not exist was changed")
	}
}
