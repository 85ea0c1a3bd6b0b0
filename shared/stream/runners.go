package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
)

// RunnerAckWait is the default ack wait of a group's consumer. If a runner dies, the executions
// that it was running are delivered to another member of the group after that time.
const RunnerAckWait = 15 * time.Second

// RunnerGroup is a group of workflow runners. Its members share the executions of a queue.
type RunnerGroup struct {
	Queue string // the queue whose executions the group runs
	Group string // the name of the group, unique within the queue
}

// ParseRunnerGroup parses a string of the form "queue/group", and checks that both names are valid.
func ParseRunnerGroup(text string) (RunnerGroup, error) {
	queue, group, both := strings.Cut(text, "/")
	if !both || !execution.ValidName(queue) || !execution.ValidName(group) {
		return RunnerGroup{},
			fmt.Errorf("%q is not QUEUE/GROUP, each of which must match %s", text,
				execution.NamePattern)
	}
	return RunnerGroup{queue, group}, nil
}

// RunnerConsumerPrefix is the prefix of the names of runner groups' consumers.
const RunnerConsumerPrefix = "runner-"

// ConsumerName returns the name of the group's durable consumer.
func (g RunnerGroup) ConsumerName() string { return RunnerConsumerPrefix + g.Queue + "-" + g.Group }

// ConsumerConfig returns the configuration of the group's consumer. A new group begins with the
// oldest message in the stream.
func (g RunnerGroup) ConsumerConfig(ackWait time.Duration) jetstream.ConsumerConfig {
	return g.ConsumerConfigForLayout(Layout{}, ackWait)
}

// ConsumerConfigForLayout returns the configuration of the group's consumer in the stream that l
// identifies. The consumer's name is the same in every stream.
func (g RunnerGroup) ConsumerConfigForLayout(
	l Layout, ackWait time.Duration,
) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       g.ConsumerName(),
		FilterSubject: l.QueueFilterSubject(g.Queue),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxAckPending: defaultMaxAckPending,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	}
}

// LaneConsumerName returns the name of the durable consumer through which the group receives a
// lane's start messages.
func (g RunnerGroup) LaneConsumerName(lane int) string {
	return g.ConsumerName() + "-" + strconv.Itoa(lane)
}

// LaneConsumerConfig returns the configuration of the group's consumer for a lane, which delivers
// one message at a time. main is the group's main consumer in the same stream. The lane's consumer
// begins at the same point of the stream as main did.
func (g RunnerGroup) LaneConsumerConfig(
	lane int, main *jetstream.ConsumerInfo,
) jetstream.ConsumerConfig {
	l, _ := LayoutOf(main.Config.FilterSubject)
	config := g.ConsumerConfigForLayout(l, main.Config.AckWait)
	config.Durable, config.FilterSubject, config.MaxAckPending = g.LaneConsumerName(lane),
		l.LaneFilterSubject(g.Queue, lane), 1
	switch main.Config.DeliverPolicy {
	case jetstream.DeliverNewPolicy:
		created := main.Created
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &created
	case jetstream.DeliverByStartSequencePolicy, jetstream.DeliverByStartTimePolicy:
		config.DeliverPolicy = main.Config.DeliverPolicy
		config.OptStartSeq, config.OptStartTime = main.Config.OptStartSeq, main.Config.OptStartTime
	case jetstream.DeliverAllPolicy, jetstream.DeliverLastPolicy,
		jetstream.DeliverLastPerSubjectPolicy:
	}
	return config
}

// ConsumerBeginsAfter reports whether a group's consumer was configured to begin after the message
// with the given sequence, which was stored at the given time. If so, the group never receives that
// message. The consumer's current position cannot answer this question: once it is past the
// message, it does not tell whether the consumer delivered the message or began after it. A
// consumer that began with the last message, or with the last one of each subject, counts as one
// that began with new messages, because nothing tells which message it received first.
func ConsumerBeginsAfter(consumer *jetstream.ConsumerInfo, sequence uint64, stored time.Time) bool {
	config := consumer.Config
	switch config.DeliverPolicy {
	case jetstream.DeliverNewPolicy, jetstream.DeliverLastPolicy,
		jetstream.DeliverLastPerSubjectPolicy:
		return stored.Before(consumer.Created)
	case jetstream.DeliverByStartSequencePolicy:
		return sequence < config.OptStartSeq
	case jetstream.DeliverByStartTimePolicy:
		return config.OptStartTime != nil && stored.Before(*config.OptStartTime)
	case jetstream.DeliverAllPolicy:
	}
	return false
}

// IsRunnerConsumer reports whether a consumer with the given configuration belongs to a group of
// runners: it is durable, its messages must be acknowledged, and it receives only start messages. A
// runner that does not use the kits may give its consumer any name. Consumers that also receive
// other messages, such as rejections, belong to programs that only watch the stream.
func IsRunnerConsumer(config jetstream.ConsumerConfig) bool {
	filters := filterSubjects(config)
	return config.Durable != "" && config.AckPolicy != jetstream.AckNonePolicy &&
		len(filters) > 0 && !slices.ContainsFunc(filters, func(filter string) bool {
		return !isStartFilter(filter)
	})
}

// isStartFilter reports whether a filter subject matches only subjects of start messages.
func isStartFilter(filter string) bool {
	if strings.HasPrefix(filter, startPrefix) || strings.HasPrefix(filter, orderedPrefix) {
		return true
	}
	rest, own := strings.CutPrefix(filter, ownSubjectPrefix)
	_, kind, _ := strings.Cut(rest, ".") // rest is {queue}.start.… or {queue}.ordered.…
	return own && (strings.HasPrefix(kind, "start.") || strings.HasPrefix(kind, "ordered."))
}

// ConsumerReceives reports whether the filters of a consumer match a subject. The subject may
// contain the token "*", which matches every token of a filter.
func ConsumerReceives(config jetstream.ConsumerConfig, subject string) bool {
	filters := filterSubjects(config)
	if len(filters) == 0 {
		return true
	}
	tokens := strings.Split(subject, ".")
	return slices.ContainsFunc(filters, func(filter string) bool {
		parts := strings.Split(filter, ".")
		for i, part := range parts {
			switch {
			case part == ">":
				return i < len(tokens)
			case i >= len(tokens) || part != "*" && tokens[i] != "*" && part != tokens[i]:
				return false
			}
		}
		return len(parts) == len(tokens)
	})
}

// filterSubjects returns all filter subjects of a consumer.
func filterSubjects(config jetstream.ConsumerConfig) []string {
	if config.FilterSubject == "" {
		return config.FilterSubjects
	}
	return append(slices.Clip(config.FilterSubjects), config.FilterSubject)
}

// LaneOfConsumer returns the group and the lane to which a consumer belongs, given the consumer's
// configuration. ok is false if it is not the consumer of one of the queue's lanes.
func LaneOfConsumer(
	config jetstream.ConsumerConfig, queue string,
) (group string, lane int, ok bool) {
	rest, ok := strings.CutPrefix(config.FilterSubject, orderedPrefix+queue+".")
	if !ok {
		rest, ok = strings.CutPrefix(config.FilterSubject, ownSubjectPrefix+queue+".ordered.")
	}
	if !ok {
		return "", 0, false
	}
	number, ok := strings.CutSuffix(rest, ".>")
	lane, err := strconv.Atoi(number)
	if !ok || err != nil || lane < 0 || strconv.Itoa(lane) != number {
		return "", 0, false
	}
	name, ours := strings.CutPrefix(config.Durable, RunnerConsumerPrefix+queue+"-")
	group, suffixed := strings.CutSuffix(name, "-"+number)
	return group, lane, ours && suffixed
}

// EnsureConsumer returns the durable consumer that config describes, in the stream to which the
// filter subject of config belongs. It creates the consumer if there is none, and never changes an
// existing one.
func EnsureConsumer(
	ctx context.Context, js jetstream.JetStream, config jetstream.ConsumerConfig,
) (jetstream.Consumer, error) {
	name := StreamOf(config.FilterSubject)
	consumer, err := js.Consumer(ctx, name, config.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		consumer, err = js.CreateConsumer(ctx, name, config)
		if errors.Is(err, jetstream.ErrConsumerExists) { // another process has created it
			consumer, err = js.Consumer(ctx, name, config.Durable)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", config.Durable, err)
	}
	return consumer, nil
}

// RunnerPresencePrefix is the prefix of the subjects of runners' heartbeats, on core NATS. The rest
// of a subject is {queue}.{group}.{instance}, where the instance identifies one process. A
// heartbeat has no data, except for a process's last one, whose data is RunnerLeavingData.
const RunnerPresencePrefix = "hookstart.runners."

// RunnerLeavingData is the data of a runner's last heartbeat, which it sends when it stops.
const RunnerLeavingData = "leaves"

// RunnerHeartbeatInterval is the interval at which each runner sends heartbeats.
const RunnerHeartbeatInterval = 3 * time.Second

// PresenceSubject returns the subject of the heartbeats of a member of the group.
func (g RunnerGroup) PresenceSubject(instance string) string {
	return RunnerPresencePrefix + g.Queue + "." + g.Group + "." + instance
}

// ParsePresenceSubject splits the subject of a runner's heartbeat into its parts. ok is false for
// any other subject.
func ParsePresenceSubject(subject string) (group RunnerGroup, instance string, ok bool) {
	rest, ok := strings.CutPrefix(subject, RunnerPresencePrefix)
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 || !execution.ValidName(parts[0]) || !execution.ValidName(parts[1]) ||
		!execution.ValidName(parts[2]) {
		return group, "", false
	}
	return RunnerGroup{parts[0], parts[1]}, parts[2], true
}
