package queues

import (
	"context"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// addGroupConsumers creates the missing consumers in the queue's own stream, for groups that have a
// consumer only in the shared stream. The executor must do this, because runners with their own
// NATS account cannot create consumers. addGroupConsumers returns the state of the queue's own
// stream, including the new consumers.
func (w *Watcher) addGroupConsumers(
	ctx context.Context,
	queue string,
	shared, own *streamState,
) (*streamState, error) {
	lacks := func(c *jetstream.ConsumerInfo) bool {
		return c.Config.FilterSubject == stream.QueueFilterSubject(queue) &&
			own.consumer(c.Name) == nil
	}
	if !slices.ContainsFunc(shared.consumers, lacks) {
		return own, nil
	}
	if err := stream.EnsureOwnStreamConsumers(ctx, w.config.JetStream, queue); err != nil {
		return nil, err
	}
	return w.readStreamState(ctx, own.Layout, queue)
}

// consumer returns the consumer with the given name, or nil if there is none.
func (p *streamState) consumer(name string) *jetstream.ConsumerInfo {
	i := slices.IndexFunc(p.consumers, func(c *jetstream.ConsumerInfo) bool {
		return c.Name == name
	})
	if i < 0 {
		return nil
	}
	return p.consumers[i]
}

// splitLimits divides each group's in-flight limit between the shared stream and the queue's own
// stream:
//
//   - A group with work in only one stream gets its full limit there, and a limit of one in the
//     other stream.
//   - A group with work in both streams gets half of its limit in each.
//   - A group without work gets its full limit in the stream where the next start message arrives,
//     and a limit of one in the other stream.
//
// The sum exceeds the group's limit by at most one. When a queue has just moved, the new limits
// take effect at the next poll. If own is nil, because the queue has no own stream, the full limits
// apply in the shared stream.
func splitLimits(
	settings *registry.Queue,
	shared, own *streamState,
) (inShared, inOwn map[string]int64) {
	if own == nil {
		return groupLimits(settings), nil
	}
	inShared, inOwn = map[string]int64{}, map[string]int64{}
	starts := settings.StoreTarget()
	for _, g := range settings.Groups {
		name := stream.RunnerGroup{Queue: settings.Name, Group: g.Group}.ConsumerName()
		busy := func(p *streamState) bool {
			c := p.consumer(name)
			return c != nil && !stream.IsDrained(c)
		}
		switch sharedBusy, ownBusy := busy(shared), busy(own); {
		case g.MaxInFlight == 0:
			inShared[g.Group], inOwn[g.Group] = 0, 0
		case sharedBusy && ownBusy:
			inOwn[g.Group] = max(1, g.MaxInFlight/2)
			inShared[g.Group] = max(1, g.MaxInFlight-g.MaxInFlight/2)
		case sharedBusy, !ownBusy && starts == registry.StoreTargetShared:
			inShared[g.Group], inOwn[g.Group] = g.MaxInFlight, 1
		default:
			inShared[g.Group], inOwn[g.Group] = 1, g.MaxInFlight
		}
	}
	return inShared, inOwn
}

// loweredLimits returns new in-flight limits for the groups in the shared stream while the queue's
// own stream cannot be read. Runners may still be getting work from the own stream, so a limit is
// only lowered, never raised. Groups whose limit in the shared stream is already low enough are
// omitted. Removing a limit takes effect even while the own stream cannot be read. An operator can
// therefore raise a limit by removing it and setting it again.
func loweredLimits(settings *registry.Queue, shared *streamState) map[string]int64 {
	limits := groupLimits(settings)
	for group, limit := range limits {
		c := shared.consumer(stream.RunnerGroup{Queue: settings.Name, Group: group}.ConsumerName())
		if limit > 0 && c != nil &&
			int64(c.Config.MaxAckPending) <= max(1, limit-settings.LaneCount) {
			delete(limits, group)
		}
	}
	return limits
}
