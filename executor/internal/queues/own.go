package queues

import (
	"context"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// addGroups creates, in a queue's own stream, the consumers of groups that have one in the shared
// stream only: runners with an account of their own cannot create them. It returns the own stream
// with them.
func (w *Watch) addGroups(ctx context.Context, queue string, shared, own *place) (*place, error) {
	lacks := func(c *jetstream.ConsumerInfo) bool {
		return c.Config.FilterSubject == stream.QueueSubject(queue) && own.consumer(c.Name) == nil
	}
	if !slices.ContainsFunc(shared.consumers, lacks) {
		return own, nil
	}
	if err := stream.EnsureOwnGroups(ctx, w.config.JetStream, queue); err != nil {
		return nil, err
	}
	return w.place(ctx, own.Place, queue)
}

// consumer returns a consumer by its name, or nil.
func (p *place) consumer(name string) *jetstream.ConsumerInfo {
	i := slices.IndexFunc(p.consumers, func(c *jetstream.ConsumerInfo) bool {
		return c.Name == name
	})
	if i < 0 {
		return nil
	}
	return p.consumers[i]
}

// shareLimits divides the limits of groups in flight between the two streams of a queue. Where a
// group has nothing to do, it gets one; what it has to do in both, it gets in halves. A group that
// has nothing to do in either keeps its shares. So the sum is the limit, plus one; after a move
// that begins a new division it takes until the next look.
func shareLimits(settings *registry.Queue, shared, own *place) (inShared, inOwn map[string]int64) {
	inShared, inOwn = map[string]int64{}, map[string]int64{}
	for _, g := range settings.Groups {
		name := stream.RunnerGroup{Queue: settings.Name, Group: g.Group}.Consumer()
		busy := func(p *place) bool {
			c := p.consumer(name)
			return c != nil && (c.NumPending > 0 || c.NumAckPending > 0)
		}
		switch sharedBusy, ownBusy := busy(shared), busy(own); {
		case g.MaxInFlight == 0:
			inShared[g.Group], inOwn[g.Group] = 0, 0
		case sharedBusy && ownBusy:
			inOwn[g.Group] = max(1, g.MaxInFlight/2)
			inShared[g.Group] = max(1, g.MaxInFlight-g.MaxInFlight/2)
		case sharedBusy:
			inShared[g.Group], inOwn[g.Group] = g.MaxInFlight, 1
		case ownBusy:
			inShared[g.Group], inOwn[g.Group] = 1, g.MaxInFlight
		}
	}
	return inShared, inOwn
}
