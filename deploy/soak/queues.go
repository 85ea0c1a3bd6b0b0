package soak

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

// maxQueuesWithOwnStream is the maximum number of queues with their own streams. It limits the load
// on the machine: each of these queues has two streams on every node, and a consumer in every
// runner.
const maxQueuesWithOwnStream = 16

// queues returns the queues of the workflows: first the default queue, then the queues with their
// own streams.
func (i *installation) queues() []string {
	queues := []string{execution.DefaultQueue}
	for n := range i.ownStreamCount {
		queues = append(queues, "own-"+strconv.Itoa(n))
	}
	return queues
}

// queuesWithOwnStream returns the queues that have their own streams.
func (i *installation) queuesWithOwnStream() []string { return i.queues()[1:] }

// layout returns the stream layout of a queue, which says whether the queue's messages are in its
// own stream or in the shared one.
func (i *installation) layout(queue string) stream.Layout {
	return stream.Layout{Own: slices.Contains(i.queuesWithOwnStream(), queue)}
}

// createOwnStreams creates the own streams of all queues in queuesWithOwnStream, and waits until
// all executors use these streams and all replicas exist.
func (i *installation) createOwnStreams(ctx context.Context) error {
	for _, queue := range i.queuesWithOwnStream() {
		if err := eventually(ctx, readyTimeout, func(ctx context.Context) error {
			_, err := i.client().SetQueueStream(ctx, queue, api.PutQueueStream{})
			return err
		}); err != nil {
			return fmt.Errorf("give the queue %s a stream: %w", queue, err)
		}
	}
	return eventually(ctx, readyTimeout, i.checkOwnStreams)
}

// checkOwnStreams returns an error unless every executor reports that all queues in
// queuesWithOwnStream use their own streams, and each of these streams has as many replicas as the
// shared stream.
func (i *installation) checkOwnStreams(ctx context.Context) error {
	if i.ownStreamCount == 0 {
		return nil
	}
	for _, e := range i.executors {
		phases := map[string]string{}
		client := apiclient.New(e.url, adminToken)
		for q, err := range apiclient.Items(func(p apiclient.Page) (api.List[api.Queue], error) {
			return client.Queues(ctx, p)
		}) {
			if err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			if q.OwnStream != nil {
				phases[q.Queue] = q.OwnStream.Phase
			}
		}
		for _, queue := range i.queuesWithOwnStream() {
			if phase := phases[queue]; phase != "own" {
				return fmt.Errorf("%s says of the queue %s that its phase is %q", e.name, queue,
					phase)
			}
		}
	}
	shared, err := i.js.Stream(ctx, stream.ExecutionsName)
	if err != nil {
		return err
	}
	want := shared.CachedInfo().Config.Replicas
	for _, queue := range i.queuesWithOwnStream() {
		for _, name := range ownStreamNames(queue) {
			own, err := i.js.Stream(ctx, name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if have := own.CachedInfo().Config.Replicas; have != want {
				return fmt.Errorf("%s has %d replicas, %s has %d", name, have,
					stream.ExecutionsName, want)
			}
		}
	}
	return nil
}

// ownStreamNames returns the names of a queue's two own streams: first the one for start messages,
// then the one for reports.
func ownStreamNames(queue string) []string {
	own := stream.Layout{Own: true}
	return []string{own.StreamName(queue), own.ProgressStreamName(queue)}
}

// stepDownLeaders returns an injection that makes the leaders of a queue's own streams step down,
// so that other servers must take over.
func (f *faultInjector) stepDownLeaders(queue string) injectFunc {
	return func(ctx context.Context, _ time.Duration) error {
		for _, name := range ownStreamNames(queue) {
			if err := eventually(ctx, recoverTimeout, func(ctx context.Context) error {
				return f.installation.stepDownLeader(ctx, name)
			}); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
}

// stepDownLeader makes the leader of a stream step down.
func (i *installation) stepDownLeader(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return leader.StepDown(ctx, i.nc, jetstream.DefaultAPIPrefix, name, "")
}
