package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
)

// RunnerAckWait is how long it takes until the work of a runner that died is given to
// another member of its group, unless the group was made with another value.
const RunnerAckWait = 15 * time.Second

// RunnerGroup is a group of workflow runners: its members share a queue's executions.
type RunnerGroup struct {
	Queue string
	Group string
}

// ParseRunnerGroup reads "queue/group".
func ParseRunnerGroup(text string) (RunnerGroup, error) {
	queue, group, both := strings.Cut(text, "/")
	if !both || !execution.ValidName(queue) || !execution.ValidName(group) {
		return RunnerGroup{}, fmt.Errorf("%q is not QUEUE/GROUP, each of which must match %s", text, execution.NamePattern)
	}
	return RunnerGroup{queue, group}, nil
}

// RunnerConsumerPrefix is what the names of runner groups' consumers begin with.
const RunnerConsumerPrefix = "runner-"

// Consumer is the name of the group's durable consumer.
func (g RunnerGroup) Consumer() string { return RunnerConsumerPrefix + g.Queue + "-" + g.Group }

// ConsumerConfig is that of the group's consumer. A group that is new begins with all that
// the stream still holds.
func (g RunnerGroup) ConsumerConfig(ackWait time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       g.Consumer(),
		FilterSubject: QueueSubject(g.Queue),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxAckPending: 10_000,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	}
}

// EnsureConsumer creates a durable consumer of the stream, or returns the one that exists as
// it is: what others have configured is not changed.
func EnsureConsumer(ctx context.Context, js jetstream.JetStream, config jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	consumer, err := js.Consumer(ctx, Name, config.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		consumer, err = js.CreateConsumer(ctx, Name, config)
		if errors.Is(err, jetstream.ErrConsumerExists) { // another was first
			consumer, err = js.Consumer(ctx, Name, config.Durable)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", config.Durable, err)
	}
	return consumer, nil
}
