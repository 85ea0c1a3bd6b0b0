package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ExecutionsStreamState holds the settings of EXECUTIONS, and describes the messages that the
// stream contains: their number, their total size and the age of the oldest one.
type ExecutionsStreamState struct {
	Settings
	Messages       uint64    // number of messages in the stream
	Bytes          uint64    // their size, including the server's overhead
	OldestStoredAt time.Time // when the oldest message was stored; zero if the stream is empty
}

// ReadExecutionsStreamState reads the current settings and size of EXECUTIONS from the server. It
// leaves ProgressMaxBytes at 0.
func ReadExecutionsStreamState(
	ctx context.Context, js jetstream.JetStream,
) (ExecutionsStreamState, error) {
	s, err := js.Stream(ctx, ExecutionsName)
	if err != nil {
		return ExecutionsStreamState{}, fmt.Errorf("stream %s: %w", ExecutionsName, err)
	}
	info := s.CachedInfo()
	state := ExecutionsStreamState{
		Settings: Settings{
			Replicas:    info.Config.Replicas,
			MaxAge:      info.Config.MaxAge,
			DedupWindow: info.Config.Duplicates,
			MaxBytes:    max(info.Config.MaxBytes, 0),
		},
		Messages: info.State.Msgs, Bytes: info.State.Bytes,
	}
	if state.Messages > 0 {
		state.OldestStoredAt = info.State.FirstTime
	}
	return state, nil
}

// OldestExpiredBy looks for the oldest start message that ChangeSettings would delete because of a
// shorter maximum age, in EXECUTIONS and in the own streams of queues without an age of their own.
// It returns the name of the message's stream, and when the message was stored. name is "" if no
// message would be deleted.
func OldestExpiredBy(
	ctx context.Context, js jetstream.JetStream, maxAge time.Duration, now time.Time,
) (name string, storedAt time.Time, err error) {
	names := []string{ExecutionsName}
	owned, err := QueuesWithOwnStreams(ctx, js)
	if err != nil {
		return "", storedAt, err
	}
	for _, own := range owned {
		if own.Limits.MaxAge == 0 {
			names = append(names, OwnStreamName(own.Queue))
		}
	}
	for _, one := range names {
		s, err := js.Stream(ctx, one)
		if err != nil {
			return "", storedAt, fmt.Errorf("stream %s: %w", one, err)
		}
		info := s.CachedInfo()
		first := info.State.FirstTime
		if info.Config.MaxAge > maxAge && info.State.Msgs > 0 && first.Before(now.Add(-maxAge)) &&
			(name == "" || first.Before(storedAt)) {
			name, storedAt = one, first
		}
	}
	return name, storedAt, nil
}

// ChangeSettings changes the settings of a running installation: the maximum age, the deduplication
// window and the maximum size of EXECUTIONS, and the maximum age of PROGRESS. The queues' own
// streams get the same deduplication window and, unless an operator has set a different one for a
// queue, the same maximum age. Cancellations are kept for at least the maximum age. A shorter
// maximum age deletes older messages immediately. A longer deduplication window applies to later
// deliveries, and to earlier ones whose IDs the server still has. ChangeSettings is idempotent.
// Executors that start afterwards must be configured with the same settings.
func ChangeSettings(ctx context.Context, js jetstream.JetStream, to Settings) error {
	if err := to.Validate(); err != nil {
		return err
	}
	// Extend the maximum age of the cancellations first, so that no message is kept longer than its
	// cancellation.
	if err := extendCancellationsMaxAge(ctx, js, to.MaxAge); err != nil &&
		!errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("bucket %s: %w", CancellationsBucket, err)
	}
	for _, name := range []string{ExecutionsName, ProgressName} {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		config := s.CachedInfo().Config
		config.MaxAge = to.MaxAge
		if name == ExecutionsName {
			config.Duplicates = to.DedupWindow
			config.MaxBytes = to.ExecutionsStreamConfig().MaxBytes
		}
		if _, err := js.UpdateStream(ctx, config); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	owned, err := QueuesWithOwnStreams(ctx, js)
	if err != nil {
		return err
	}
	for _, own := range owned {
		if err := EnsureOwnStreams(ctx, js, to, own.Queue, own.Limits); err != nil {
			return err
		}
	}
	return nil
}
