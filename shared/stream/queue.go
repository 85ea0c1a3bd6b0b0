package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream/keyvalue"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

// A queue is paused by pausing the consumers of its groups: the server does not deliver messages of
// a paused consumer to any client, even after a restart. Because groups come and go, an operator's
// settings are stored in a record of the registry, and executors repeatedly apply the record to the
// consumers. That alone would leave a gap: a group that is created while the queue is paused would
// receive work until an executor applies the record. So a process that creates a consumer reads the
// record before and after creating it: see EnsureRunnerConsumer.

// The bucket that holds the settings, the bucket's stream, and the prefix of the settings' keys.
// They duplicate constants of package registry, so that runners need not import that package.
const (
	settingsBucket    = "registry"
	settingsStream    = keyvalue.StreamPrefix + settingsBucket
	settingsKeyPrefix = "queue."
)

// settingsSubject returns the subject of a queue's record in the registry's stream.
func settingsSubject(queue string) string {
	return keyvalue.SubjectPrefix + settingsBucket + "." + settingsKeyPrefix + queue
}

// defaultMaxAckPending is the MaxAckPending of a group's consumer if no limit on the group's
// executions in flight is set.
const defaultMaxAckPending = 10_000

// endlessPauseEnd is the end time of a pause without an end. JetStream requires an end time for
// every pause.
var endlessPauseEnd = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// operatorPauseMark is added to the end time of a pause that an operator has set. The end times of
// other pauses, such as the one while a backup is restored, are whole microseconds, so the extra
// nanosecond tells them apart.
const operatorPauseMark = time.Nanosecond

// QueueSettings holds the settings that an operator has stored for a queue. The zero value means no
// settings.
type QueueSettings struct {
	Paused      bool      // the queue was paused; the pause may be over: see PausedUntil
	PausedUntil time.Time // the zero time means that the queue stays paused until it is resumed
	// MaxInFlightByGroup holds each group's maximum number of executions in flight, keyed by the
	// group's name. 0 means that an operator has removed the group's limit; no entry means that
	// there has never been one.
	MaxInFlightByGroup map[string]int64
	// Lanes is the number of lanes. 0 means that the queue has none, because none of its workflows
	// has ever had an order key.
	Lanes int
	// Stream describes the queue's own stream. The zero value means that there is none.
	Stream QueueStream
}

// DecodeQueueSettings decodes a queue's record in the registry. Its errors wrap ErrUnreadable.
func DecodeQueueSettings(data []byte) (s QueueSettings, err error) {
	var wire hookstartv1.QueueSettings
	if err := proto.Unmarshal(data, &wire); err != nil {
		return s, fmt.Errorf("%w: the settings of a queue: %w", ErrUnreadable, err)
	}
	s.Paused = wire.GetPausedSince() != nil
	s.PausedUntil = timeFromWire(wire.GetPausedUntil())
	s.Lanes = int(max(0, min(wire.GetLanes(), maxAcceptedLanes)))
	s.Stream = queueStreamFromWire(wire.GetStream())
	for _, g := range wire.GetGroups() {
		if s.MaxInFlightByGroup == nil {
			s.MaxInFlightByGroup = map[string]int64{}
		}
		s.MaxInFlightByGroup[g.GetGroup()] = g.GetMaxInFlight()
	}
	return s, nil
}

func queueStreamFromWire(wire *hookstartv1.QueueStream) QueueStream {
	return QueueStream{QueueStreamPhase(wire.GetPhase()), QueueStreamLimits{
		MaxBytes: wire.GetMaxBytes(), MaxAge: time.Duration(wire.GetMaxAgeSeconds()) * time.Second,
		Replicas: int(wire.GetReplicas()), PlacementTags: wire.GetPlacementTags(),
	}}
}

// readQueueRecord returns the settings in a queue's record and the record's revision, which is 0
// if there is no record.
func readQueueRecord(
	ctx context.Context, js jetstream.JetStream, queue string,
) (s QueueSettings, revision uint64, err error) {
	bucket, err := js.KeyValue(ctx, settingsBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return s, 0, nil
	}
	if err != nil {
		return s, 0, fmt.Errorf("bucket %s: %w", settingsBucket, err)
	}
	entry, err := bucket.Get(ctx, settingsKeyPrefix+queue)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return s, 0, nil
	}
	if err != nil {
		return s, 0, fmt.Errorf("the settings of queue %s: %w", queue, err)
	}
	s, err = DecodeQueueSettings(entry.Value())
	return s, entry.Revision(), err
}

// ReadQueuePhase returns the phase in a queue's record, which determines where the queue's start
// messages are stored. It queries the leader of the registry's stream, so it sees every phase that
// was stored before the call.
func ReadQueuePhase(
	ctx context.Context,
	js jetstream.JetStream,
	queue string,
) (QueueStreamPhase, error) {
	msg, err := leader.Get(ctx, js.Conn(), settingsStream, leader.Query{
		LastBySubject: settingsSubject(queue),
	})
	if errors.Is(err, leader.ErrNoMessage) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return QueuePhaseSharedStream, nil
	}
	if err != nil {
		return 0, fmt.Errorf("the settings of queue %s: %w", queue, err)
	}
	settings, err := DecodeQueueSettings(msg.Data)
	return settings.Stream.Phase, err
}

// consumerPauseEnd returns the time until which the consumers of the queue must be paused, or nil
// if they must not be paused. now is the current time.
func (s QueueSettings) consumerPauseEnd(now time.Time) *time.Time {
	if !s.Paused || !s.PausedUntil.IsZero() && !now.Before(s.PausedUntil) {
		return nil
	}
	until := endlessPauseEnd
	if !s.PausedUntil.IsZero() {
		until = s.PausedUntil
	}
	until = until.Truncate(time.Microsecond).Add(operatorPauseMark)
	return &until
}

// applyTo applies the settings to config, the configuration of a consumer of the given group that
// is about to be created. now is the current time.
func (s QueueSettings) applyTo(config *jetstream.ConsumerConfig, group string, now time.Time) {
	config.PauseUntil = s.consumerPauseEnd(now)
	if limit, isSet := s.MaxInFlightByGroup[group]; isSet && !isLaneConsumer(*config) {
		config.MaxAckPending = s.maxAckPending(limit)
	}
}

// maxAckPending returns the MaxAckPending for a group's main consumer, such that the group has at
// most limit executions in flight. Each lane has its own consumer with up to one execution in
// flight, so the result is limit minus the number of lanes, and never less than 1. If limit is 0,
// the result is the default.
func (s QueueSettings) maxAckPending(limit int64) int {
	if limit == 0 {
		return defaultMaxAckPending
	}
	return max(1, int(limit)-s.Lanes)
}

// isLaneConsumer reports whether a consumer receives the start messages of one lane, which have an
// order key.
func isLaneConsumer(config jetstream.ConsumerConfig) bool {
	_, tail, own := parseOwnSubject(config.FilterSubject)
	if own {
		return strings.HasPrefix(tail, "ordered.")
	}
	return strings.HasPrefix(config.FilterSubject, orderedPrefix)
}

// EnforceQueueSettings applies the settings of a queue to the existing consumer of a group, unless
// they are already applied. It does not change pauses that no operator has set, such as the one
// while a backup is being restored.
func EnforceQueueSettings(
	ctx context.Context, js jetstream.JetStream, info *jetstream.ConsumerInfo, group string,
	s QueueSettings,
) error {
	now := time.Now()
	if limit, isSet := s.MaxInFlightByGroup[group]; isSet && !isLaneConsumer(info.Config) &&
		info.Config.MaxAckPending != s.maxAckPending(limit) {
		config := info.Config
		config.MaxAckPending = s.maxAckPending(limit)
		config.Metadata = nil // the server manages the metadata
		if _, err := js.UpdateConsumer(ctx, info.Stream, config); err != nil {
			return fmt.Errorf("consumer %s: set its maximum in flight: %w", info.Name, err)
		}
	}
	want, have := s.consumerPauseEnd(now), info.Config.PauseUntil
	if have != nil && !now.Before(*have) {
		have = nil
	}
	own := have != nil && have.Nanosecond()%int(time.Microsecond) == int(operatorPauseMark)
	switch {
	case want == nil && own:
		if _, err := js.ResumeConsumer(ctx, info.Stream, info.Name); err != nil {
			return fmt.Errorf("resume the consumer %s: %w", info.Name, err)
		}
	case want != nil && (have == nil || own && !have.Equal(*want)):
		if _, err := js.PauseConsumer(ctx, info.Stream, info.Name, *want); err != nil {
			return fmt.Errorf("pause the consumer %s: %w", info.Name, err)
		}
		return awaitPause(ctx, js, info)
	}
	return nil
}

// awaitPauseTimeout is the maximum time to wait until a consumer in a cluster is paused.
const awaitPauseTimeout = 5 * time.Second

// awaitPause waits until the leader of a consumer reports that the consumer is paused. A clustered
// server responds to a pause request as soon as it has proposed the pause to the others
// (jsConsumerPauseRequest of nats-server 2.15), so the consumer's leader may deliver messages for a
// moment longer.
func awaitPause(
	ctx context.Context, js jetstream.JetStream, info *jetstream.ConsumerInfo,
) (err error) {
	if info.Cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, awaitPauseTimeout)
	defer cancel()
	paused := false
	retry.Until(ctx, 10*time.Millisecond, func() bool {
		var consumer jetstream.Consumer
		if consumer, err = js.Consumer(ctx, info.Stream, info.Name); err == nil {
			paused = consumer.CachedInfo().Paused
		}
		return paused || errors.Is(err, jetstream.ErrConsumerNotFound)
	})
	if err == nil && !paused {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("wait until the consumer %s is paused: %w", info.Name, err)
	}
	return nil
}

// readSettingsTimeout is how long the creation of a consumer waits for the queue's settings. If
// they cannot be read in that time, for example because the permission is missing, the consumer is
// created without them, and an executor applies them a few seconds later.
const readSettingsTimeout = 5 * time.Second

// EnsureRunnerConsumer returns the durable consumer of the group g that config describes. If the
// consumer does not exist, EnsureRunnerConsumer creates it with the settings of its queue. It then
// reads the settings again, and applies a pause that was stored after the first read. A pause that
// is stored after the second read is applied by an executor, which lists the consumers after it has
// stored the pause.
func EnsureRunnerConsumer(
	ctx context.Context, js jetstream.JetStream, g RunnerGroup, config jetstream.ConsumerConfig,
) (jetstream.Consumer, error) {
	consumer, err := js.Consumer(ctx, StreamOf(config.FilterSubject), config.Durable)
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		if err != nil {
			return nil, fmt.Errorf("consumer %s: %w", config.Durable, err)
		}
		return consumer, checkFilterSubject(consumer, config)
	}
	read := func() (s QueueSettings, revision uint64, err error) {
		reading, cancel := context.WithTimeout(ctx, readSettingsTimeout)
		defer cancel()
		if s, revision, err = readQueueRecord(reading, js, g.Queue); ctx.Err() == nil &&
			(reading.Err() != nil || errors.Is(err, nats.ErrNoResponders)) {
			return QueueSettings{}, 0, nil
		}
		return s, revision, err
	}
	settings, revision, err := read()
	if err != nil {
		return nil, err
	}
	settings.applyTo(&config, g.Group, time.Now())
	if consumer, err = EnsureConsumer(ctx, js, config); err != nil {
		return nil, err
	}
	for {
		again, now, err := read()
		if err == nil && now == revision {
			err = checkFilterSubject(consumer, config)
		}
		if err != nil || now == revision {
			return consumer, err
		}
		revision = now
		info, err := consumer.Info(ctx)
		if err != nil {
			return nil, fmt.Errorf("consumer %s: %w", config.Durable, err)
		}
		if err := EnforceQueueSettings(ctx, js, info, g.Group, again); err != nil {
			return nil, err
		}
	}
}

// ErrConsumerConflict means that a consumer has the name of a group's consumer but different
// subjects.
var ErrConsumerConflict = errors.New("the consumer exists with other subjects")

// checkFilterSubject returns ErrConsumerConflict if a consumer's subject differs from the subject
// in config. That happens if one group's name ends with a hyphen and a number, so that its consumer
// has the same name as the consumer of another group's lane.
func checkFilterSubject(consumer jetstream.Consumer, config jetstream.ConsumerConfig) error {
	if have := consumer.CachedInfo().Config.FilterSubject; have != config.FilterSubject {
		return fmt.Errorf("consumer %s: %w: %q, and not %q; choose another name of the group",
			config.Durable, ErrConsumerConflict, have, config.FilterSubject)
	}
	return nil
}

// IsQueueConsumer reports whether a consumer receives messages of the given queue and of no other.
func IsQueueConsumer(config jetstream.ConsumerConfig, queue string) bool {
	filters := filterSubjects(config)
	return len(filters) > 0 && !slices.ContainsFunc(filters, func(filter string) bool {
		return !strings.HasPrefix(filter, startPrefix+queue+".") &&
			!strings.HasPrefix(filter, orderedPrefix+queue+".") &&
			!strings.HasPrefix(filter, ownSubjectPrefix+queue+".")
	})
}
