package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/record/databasecopy"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/stream"
)

// readinessChecks returns the readiness checks. If one of them fails, the executor cannot record
// executions or cannot serve operators. The recorder also marks the executor as not ready while
// transactions fail, and while it records messages a second time because the database has lost
// their records.
func readinessChecks(
	nc *nats.Conn, js jetstream.JetStream, follower *consistency.Follower,
	copier *databasecopy.RegistryCopier,
	database store.Database, c Config, log logrus.FieldLogger,
) []ops.Check {
	known := &lostStreamCheck{
		js: js, config: c, log: log, lastPositions: map[string]streamPosition{},
		missingStreams: stream.MissingStreams{},
	}
	own := &queueStreamConsumerCheck{js: js, streamsWithoutConsumer: map[string]bool{}}
	return []ops.Check{
		bus.Check("executor NATS", nc),
		{Component: "executor streams", Probe: known.recreateDeletedStreams},
		{Component: "executor consumer", Probe: func(ctx context.Context) error {
			if err := checkConsumers(ctx, js); err != nil {
				return err
			}
			return own.check(ctx)
		}},
		{Component: "executor registry", Probe: follower.CatchUp},
		{Component: "executor registry copy", Probe: func(context.Context) error {
			return copier.UnusableReason()
		}},
		{Component: "executor database", Probe: database.Ping},
	}
}

// lostStreamCheck is a readiness check that detects deleted and restored streams: the last sequence
// of a stream must never be lower than at the previous check. Only one goroutine may use it.
type lostStreamCheck struct {
	js     jetstream.JetStream
	config Config
	log    logrus.FieldLogger
	// lastPositions maps each stream's name to its last known position.
	lastPositions  map[string]streamPosition
	missingStreams stream.MissingStreams
}

// streamPosition describes how far a stream was filled and recorded at the time of a check.
type streamPosition struct {
	lastSequence uint64 // sequence of the newest message
	recordedUpTo uint64 // every message up to this sequence is recorded
}

// recreateDeletedStreams recreates deleted streams, without their messages, so that no process has
// to be restarted. If a stream was deleted or restored, it logs the sequences of the messages that
// may not have been recorded. It returns an error if a stream was missing, even if it has just
// recreated that stream.
func (k *lostStreamCheck) recreateDeletedStreams(ctx context.Context) error {
	// Look up all streams first. ensureStreams creates every missing stream, so it must not be
	// called while the server may still be deleting one of them.
	found := map[string]jetstream.Stream{}
	var lost, deleted []string // missing streams; only those in lost may be created now
	for _, name := range ensuredStreams {
		s, err := k.js.Stream(ctx, name)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("the stream %s: %w", name, err)
		}
		switch creatable := k.missingStreams.RecordCheck(name, err == nil); {
		case err == nil:
			found[name] = s
		case creatable:
			lost = append(lost, name)
		default:
			deleted = append(deleted, name)
		}
	}
	if len(deleted) > 0 {
		return fmt.Errorf("the stream %s is not there", strings.Join(deleted, ", "))
	}
	if len(lost) > 0 {
		names := strings.Join(lost, ", ")
		for _, name := range lost {
			k.logLostMessages(name)
		}
		if err := ensureStreams(ctx, k.js, k.config); err != nil {
			return fmt.Errorf("the stream %s is not there, and cannot be made: %w", names, err)
		}
		return fmt.Errorf("the stream %s was not there; it was made anew, empty", names)
	}
	for _, name := range ensuredStreams {
		s := found[name]
		if last := s.CachedInfo().State.LastSeq; last < k.lastPositions[name].lastSequence {
			// Another executor has recreated the stream, or an older copy of it was restored.
			k.logLostMessages(name)
		}
		if err := k.rememberPosition(ctx, name, s.CachedInfo().State.LastSeq); err != nil {
			return err
		}
	}
	return nil
}

// rememberPosition stores a stream's position for the next check. The position consists of last,
// which is the sequence of the newest message, and the sequence up to which the recorder's consumer
// has acknowledged every message.
func (k *lostStreamCheck) rememberPosition(ctx context.Context, name string, last uint64) error {
	now := streamPosition{lastSequence: last}
	consumer, err := k.js.Consumer(ctx, name, stream.RecorderConsumerName)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		now.recordedUpTo = k.lastPositions[name].recordedUpTo
		if now.recordedUpTo > last {
			now.recordedUpTo = 0
		}
	case err != nil:
		return fmt.Errorf("the recorder's consumer of the stream %s: %w", name, err)
	default:
		now.recordedUpTo = consumer.CachedInfo().AckFloor.Stream
	}
	k.lastPositions[name] = now
	return nil
}

// logLostMessages logs the range of messages of a lost stream that may not have been recorded.
func (k *lostStreamCheck) logLostMessages(name string) {
	was, ok := k.lastPositions[name]
	if !ok {
		return
	}
	delete(k.lastPositions, name)
	about := k.log.WithFields(logrus.Fields{
		"stream":   name,
		"last":     was.lastSequence,
		"recorded": was.recordedUpTo,
	})
	if was.lastSequence > was.recordedUpTo {
		about.Errorf("NATS has lost the stream, or its last messages: %d messages that were "+
			"accepted, from %d to %d, and those that came in the "+
			"last second, are not recorded unless another executor has recorded them",
			was.lastSequence-was.recordedUpTo, was.recordedUpTo+1, was.lastSequence)
		return
	}
	about.Error("NATS has lost the stream, or its last messages: all messages up to the last one " +
		"that was seen are recorded; those that came in the last second may not be")
}

// checkConsumers returns an error if one of the recorder's consumers does not exist or is paused,
// and therefore delivers nothing. The recorder recreates a lost consumer, but that may fail: a NATS
// server rejects a consumer whose state was damaged by a power failure.
func checkConsumers(ctx context.Context, js jetstream.JetStream) error {
	for _, name := range []string{stream.ExecutionsName, stream.ProgressName} {
		consumer, err := js.Consumer(ctx, name, stream.RecorderConsumerName)
		if errors.Is(err, jetstream.ErrConsumerNotFound) ||
			errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("the recorder's consumer of the stream %s is not there; it is made "+
				"anew", name)
		}
		if err != nil {
			return err
		}
		if err := checkNotPaused(name, consumer.CachedInfo()); err != nil {
			return err
		}
	}
	return nil
}

func checkNotPaused(name string, info *jetstream.ConsumerInfo) error {
	if !info.Paused {
		return nil
	}
	return fmt.Errorf("the recorder's consumer of the stream %s is paused for %s more, "+
		"so nothing is recorded: a backup is being restored, or the restore was "+
		"killed; then `nats consumer resume %s %s` ends the pause", name,
		info.PauseRemaining.Round(time.Second), name, stream.RecorderConsumerName)
}

// queueStreamConsumerCheck checks that queues' own streams have the recorder's consumer and that it
// is not paused. Only one goroutine may use it.
type queueStreamConsumerCheck struct {
	js                     jetstream.JetStream
	streamsWithoutConsumer map[string]bool // the streams without a consumer at the last check
}

// check returns an error if a queue's own stream lacked the recorder's consumer at two successive
// checks, or if the consumer is paused. One check is not enough, because the recorder creates the
// consumer within about a second after the stream. If a queue's own stream is unreachable, the
// executor stays ready, because everything else is still recorded.
func (c *queueStreamConsumerCheck) check(ctx context.Context) error {
	starts, reports, err := stream.StreamNames(ctx, c.js)
	if err != nil {
		return err
	}
	missing := map[string]bool{}
	for _, name := range slices.Concat(starts, reports) {
		if name == stream.ExecutionsName || name == stream.ProgressName {
			continue
		}
		consumer, failed := c.js.Consumer(ctx, name, stream.RecorderConsumerName)
		switch {
		case errors.Is(failed, jetstream.ErrConsumerNotFound):
			missing[name] = true
			if c.streamsWithoutConsumer[name] {
				err = errors.Join(err, fmt.Errorf("the recorder's consumer of the stream %s is "+
					"not there; it is made anew", name))
			}
		case failed == nil:
			err = errors.Join(err, checkNotPaused(name, consumer.CachedInfo()))
		}
	}
	c.streamsWithoutConsumer = missing
	return err
}
