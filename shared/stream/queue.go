package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

// A queue is paused by its groups' consumers: the server hands out nothing of a consumer that is paused,
// whoever asks, and knows that after a restart, too. What an operator has set is a record of the registry,
// because groups come and go: executors make the consumers agree with it, again and again. That alone would
// leave a gap: a group that is made while the queue is paused would get work until an executor looks. So who
// makes a consumer reads the record, before and after: see EnsureRunnerConsumer.

// The bucket and key of the settings: those of package registry, which a runner does not link.
const (
	settingsBucket = "registry"
	settingsPrefix = "queue."
)

// maxInFlight is MaxAckPending of a group without a setting.
const maxInFlight = 10_000

// forever is when a pause without an end would end: JetStream knows none without.
var forever = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// mark tells a pause by an operator from another one, such as of a backup that is being restored, whose end
// is a whole microsecond.
const mark = time.Nanosecond

// QueueSettings are what an operator has set of a queue. The zero value is that of one without settings.
type QueueSettings struct {
	Paused      bool             // at some time; see PausedUntil
	PausedUntil time.Time        // zero: until it is resumed
	MaxInFlight map[string]int64 // by group; 0: as many as its members ask for; absent: never set
}

// DecodeQueueSettings reads the record of a queue.
func DecodeQueueSettings(data []byte) (s QueueSettings, err error) {
	var wire hookstartv1.QueueSettings
	if err := proto.Unmarshal(data, &wire); err != nil {
		return s, fmt.Errorf("%w: the settings of a queue: %w", ErrUnreadable, err)
	}
	s.Paused = wire.GetPausedSince() != nil
	s.PausedUntil = timeFromWire(wire.GetPausedUntil())
	for _, g := range wire.GetGroups() {
		if s.MaxInFlight == nil {
			s.MaxInFlight = map[string]int64{}
		}
		s.MaxInFlight[g.GetGroup()] = g.GetMaxInFlight()
	}
	return s, nil
}

// readQueueSettings reads the record of a queue, and its revision; 0: there is none.
func readQueueSettings(ctx context.Context, js jetstream.JetStream, queue string) (s QueueSettings, revision uint64, err error) {
	bucket, err := js.KeyValue(ctx, settingsBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return s, 0, nil
	}
	if err != nil {
		return s, 0, fmt.Errorf("bucket %s: %w", settingsBucket, err)
	}
	entry, err := bucket.Get(ctx, settingsPrefix+queue)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return s, 0, nil
	}
	if err != nil {
		return s, 0, fmt.Errorf("the settings of queue %s: %w", queue, err)
	}
	s, err = DecodeQueueSettings(entry.Value())
	return s, entry.Revision(), err
}

// pauseUntil is how long the consumers of the queue are paused; nil: they are not.
func (s QueueSettings) pauseUntil(now time.Time) *time.Time {
	if !s.Paused || !s.PausedUntil.IsZero() && !now.Before(s.PausedUntil) {
		return nil
	}
	until := forever
	if !s.PausedUntil.IsZero() {
		until = s.PausedUntil
	}
	until = until.Truncate(time.Microsecond).Add(mark)
	return &until
}

// applyTo gives a group's consumer that is to be made the settings.
func (s QueueSettings) applyTo(config *jetstream.ConsumerConfig, group string, now time.Time) {
	config.PauseUntil = s.pauseUntil(now)
	if limit, isSet := s.MaxInFlight[group]; isSet {
		config.MaxAckPending = ackPending(limit)
	}
}

func ackPending(limit int64) int {
	if limit == 0 {
		return maxInFlight
	}
	return int(limit)
}

// EnforceQueueSettings makes an existing consumer of EXECUTIONS, which is a group's, agree with the settings of
// its queue. It does nothing to one that does, nor to a pause that is not an operator's.
func EnforceQueueSettings(ctx context.Context, js jetstream.JetStream, info *jetstream.ConsumerInfo, group string, s QueueSettings) error {
	now := time.Now()
	if limit, isSet := s.MaxInFlight[group]; isSet && info.Config.MaxAckPending != ackPending(limit) {
		config := info.Config
		config.MaxAckPending = ackPending(limit)
		config.Metadata = nil // the server's own
		if _, err := js.UpdateConsumer(ctx, info.Stream, config); err != nil {
			return fmt.Errorf("consumer %s: set its maximum in flight: %w", info.Name, err)
		}
	}
	want, have := s.pauseUntil(now), info.Config.PauseUntil
	if have != nil && !now.Before(*have) {
		have = nil
	}
	own := have != nil && have.Nanosecond()%int(time.Microsecond) == int(mark)
	switch {
	case want == nil && own:
		if _, err := js.ResumeConsumer(ctx, info.Stream, info.Name); err != nil {
			return fmt.Errorf("resume the consumer %s: %w", info.Name, err)
		}
	case want != nil && (have == nil || own && !have.Equal(*want)):
		if _, err := js.PauseConsumer(ctx, info.Stream, info.Name, *want); err != nil {
			return fmt.Errorf("pause the consumer %s: %w", info.Name, err)
		}
	}
	return nil
}

// settingsWait is how long the maker of a consumer waits for the settings of the queue. If it cannot read
// them by then, because it may not, an executor makes the consumer agree with them a few seconds later.
const settingsWait = 5 * time.Second

// EnsureRunnerConsumer returns the durable consumer of a group, and creates it if it does not exist, with the
// settings of its queue. The record of the settings is read again after the consumer is created: a pause
// that was stored before that reading is applied here; one that was stored later finds the consumer, because
// an executor stores the record before it lists the consumers.
func EnsureRunnerConsumer(ctx context.Context, js jetstream.JetStream, g RunnerGroup, config jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	consumer, err := js.Consumer(ctx, Name, config.Durable)
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		if err != nil {
			return nil, fmt.Errorf("consumer %s: %w", config.Durable, err)
		}
		return consumer, nil
	}
	read := func() (s QueueSettings, revision uint64, err error) {
		reading, cancel := context.WithTimeout(ctx, settingsWait)
		defer cancel()
		if s, revision, err = readQueueSettings(reading, js, g.Queue); ctx.Err() == nil && (reading.Err() != nil || errors.Is(err, nats.ErrNoResponders)) {
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

// OnlyOfQueue reports whether a consumer gets starts of one queue, and of no other.
func OnlyOfQueue(config jetstream.ConsumerConfig, queue string) bool {
	filters := config.FilterSubjects
	if config.FilterSubject != "" {
		filters = append(slices.Clip(filters), config.FilterSubject)
	}
	return len(filters) > 0 && !slices.ContainsFunc(filters, func(filter string) bool {
		return len(filter) < len(startPrefix+queue)+1 || filter[:len(startPrefix+queue)+1] != startPrefix+queue+"."
	})
}
