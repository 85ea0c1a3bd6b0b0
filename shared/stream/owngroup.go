package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/stream/keyvalue"
)

// OwnStreamConsumerConfig returns the configuration of the group's consumer in the queue's own
// stream. shared is the group's consumer in the shared stream. If shared delivers only new
// messages, the new consumer begins at the time at which shared was created; if shared has a start
// time, the new consumer has the same one. Otherwise it begins with the first message, so that the
// group misses nothing.
func (g RunnerGroup) OwnStreamConsumerConfig(
	shared *jetstream.ConsumerInfo,
) jetstream.ConsumerConfig {
	config := g.ConsumerConfigForLayout(Layout{Own: true}, shared.Config.AckWait)
	//nolint:exhaustive // the other policies begin with the oldest message
	switch shared.Config.DeliverPolicy {
	case jetstream.DeliverNewPolicy:
		created := shared.Created
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &created
	case jetstream.DeliverByStartTimePolicy:
		config.DeliverPolicy, config.OptStartTime = shared.Config.DeliverPolicy,
			shared.Config.OptStartTime
	}
	return config
}

// NewestLayout returns the Layout of the queue's newest start messages. While no start messages are
// accepted, that is the Layout of the last accepted ones.
func (p QueueStreamPhase) NewestLayout() Layout {
	layout, _ := p.Layout()
	return layout
}

// HasOwnStream reports whether the queue's own stream exists in this phase.
func (p QueueStreamPhase) HasOwnStream() bool { return p != QueuePhaseSharedStream }

// ReadQueueSettings returns the settings in a queue's record, or the zero value if there is no
// record. It makes a single request, which any replica may answer, so the settings may be slightly
// out of date. It fails with nats.ErrNoResponders if there is no registry, or if the NATS account
// may not read the record.
func ReadQueueSettings(
	ctx context.Context, nc *nats.Conn, queue string,
) (s QueueSettings, err error) {
	msg, err := nc.RequestWithContext(ctx,
		"$JS.API.DIRECT.GET."+settingsStream+"."+settingsSubject(queue), nil)
	if err != nil {
		return s, fmt.Errorf("the settings of queue %s: %w", queue, err)
	}
	switch status := msg.Header.Get("Status"); {
	case status == natsStatusNotFound, keyvalue.IsDeletion(msg.Header):
		return s, nil
	case status != "":
		return s,
			fmt.Errorf("the settings of queue %s: %w", queue,
				errors.New(status+" "+msg.Header.Get("Description")))
	}
	return DecodeQueueSettings(msg.Data)
}

// EncodeQueueSettings encodes the record of a queue that has the given number of lanes, is in the
// given phase, and has no other settings.
func EncodeQueueSettings(queue string, lanes int, phase QueueStreamPhase) ([]byte, error) {
	settings := &hookstartv1.QueueSettings{Queue: queue, Lanes: int64(lanes)}
	if phase.HasOwnStream() {
		settings.Stream = &hookstartv1.QueueStream{Phase: hookstartv1.QueueStreamPhase(phase)}
	}
	return proto.Marshal(settings)
}

// IsConsumerDrained reports whether a consumer has delivered all messages and all of them have been
// acknowledged, according to the consumer's leader. It returns true if the consumer or the stream
// does not exist.
func IsConsumerDrained(
	ctx context.Context, js jetstream.JetStream, streamName, consumer string,
) (bool, error) {
	found, err := js.Consumer(ctx, streamName, consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrStreamNotFound) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("consumer %s: %w", consumer, err)
	}
	return IsDrained(found.CachedInfo()), nil
}

// AreLanesDrained reports whether no execution with an order key is waiting in the stream that
// layout and queue identify. It returns true if the stream does not exist or holds no start message
// with an order key. Otherwise, it returns true only if at least one group of runners has lanes in
// the stream, and all such lanes have acknowledged everything.
func AreLanesDrained(
	ctx context.Context, js jetstream.JetStream, layout Layout, queue string,
) (bool, error) {
	name := layout.StreamName(queue)
	found, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return true, nil
	}
	var info *jetstream.StreamInfo
	if err == nil {
		info, err = found.Info(ctx, jetstream.WithSubjectFilter(layout.OrderedFilterSubject(queue)))
	}
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", name, err)
	}
	if len(info.State.Subjects) == 0 {
		return true, nil
	}
	taken := false
	consumers := found.ListConsumers(ctx)
	for c := range consumers.Info() {
		if _, _, ok := LaneOfConsumer(c.Config, queue); !ok {
			continue
		}
		if !IsDrained(c) {
			return false, nil
		}
		taken = true
	}
	if err := consumers.Err(); err != nil {
		return false, fmt.Errorf("consumers of the stream %s: %w", name, err)
	}
	return taken, nil
}

// QueueWithOwnStreams is a queue that has its own streams, and the limits of these streams.
type QueueWithOwnStreams struct {
	Queue  string
	Limits QueueStreamLimits // according to the queue's record; zero if there is none
}

// QueuesWithOwnStreams lists the queues that have their own streams, with the limits that operators
// have set for these streams.
func QueuesWithOwnStreams(
	ctx context.Context,
	js jetstream.JetStream,
) (queues []QueueWithOwnStreams, err error) {
	starts, _, err := StreamNames(ctx, js)
	if err != nil {
		return nil, err
	}
	for _, name := range starts {
		queue, ok := QueueOfOwnStream(name)
		if !ok {
			continue
		}
		settings, _, err := readQueueRecord(ctx, js, queue)
		if err != nil {
			return nil, err
		}
		queues = append(queues, QueueWithOwnStreams{queue, settings.Stream.Limits})
	}
	return queues, nil
}

// EnsureOwnStreamConsumers ensures that each group with a consumer in the shared stream also has
// one in the queue's own stream. So a group that is offline while its queue moves, or that may not
// create consumers, finds its consumer when it comes back.
func EnsureOwnStreamConsumers(ctx context.Context, js jetstream.JetStream, queue string) error {
	shared, err := js.Stream(ctx, ExecutionsName)
	if err != nil {
		return fmt.Errorf("stream %s: %w", ExecutionsName, err)
	}
	names := shared.ConsumerNames(ctx)
	for name := range names.Name() {
		group, ok := strings.CutPrefix(name, RunnerConsumerPrefix+queue+"-")
		if !ok {
			continue
		}
		consumer, err := js.Consumer(ctx, ExecutionsName, name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue // it has been deleted meanwhile
		}
		if err != nil {
			return fmt.Errorf("consumer %s: %w", name, err)
		}
		info := consumer.CachedInfo()
		if info.Config.FilterSubject != QueueFilterSubject(queue) {
			continue // the consumer belongs to another queue or to a lane
		}
		g := RunnerGroup{Queue: queue, Group: group}
		if _, err := EnsureRunnerConsumer(ctx, js, g, g.OwnStreamConsumerConfig(info)); err != nil {
			return err
		}
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("list the consumers of %s: %w", ExecutionsName, err)
	}
	return nil
}
