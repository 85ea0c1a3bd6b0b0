package ingress

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/ingress/internal/publish"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// silentStreams is a JetStream in which some streams have a leader that does not respond.
type silentStreams struct {
	jetstream.JetStream

	silent map[string]bool
}

func (s silentStreams) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if s.silent[name] {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.JetStream.Stream(ctx, name)
}

// An ingress is ready as long as one stream accepts messages, even if the shared stream does not
// respond.
func TestOneStreamThatRespondsIsEnough(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	js, err := jetstream.New(nc)
	if err == nil {
		err = stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings)
	}
	snapshot := registry.NewSnapshot(nil)
	for _, queue := range []string{"one", "two"} {
		if err == nil {
			err = stream.EnsureOwnStreams(t.Context(), js, stream.DefaultSettings, queue,
				stream.QueueStreamLimits{})
		}
		snapshot.Apply(registry.Change{Queue: &registry.Queue{
			Name: queue, Stream: &registry.QueueStream{Phase: registry.QueuePhaseOwnStream},
		}})
	}
	snapshot.FinishLoad()
	if err != nil {
		t.Fatal(err)
	}
	shared, err := publish.New(t.Context(), nc, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	streams := startMessageStreams{shared, publish.NewStreamRouter(nc, shared), snapshot}
	one, two := stream.OwnStreamName("one"), stream.OwnStreamName("two")
	for name, c := range map[string]struct {
		silent []string
		ready  bool
	}{
		"all respond":       {nil, true},
		"the shared one":    {[]string{one, two}, true},
		"one of the queues": {[]string{stream.ExecutionsName, two}, true},
		"none responds":     {[]string{stream.ExecutionsName, one, two}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			silent := map[string]bool{}
			for _, s := range c.silent {
				silent[s] = true
			}
			err := streams.checkAnyAcceptsMessages(ctx, silentStreams{js, silent})
			if (err == nil) != c.ready {
				t.Errorf("%v", err)
			}
		})
	}
}
