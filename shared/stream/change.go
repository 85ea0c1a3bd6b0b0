package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// State is the configuration and the content of EXECUTIONS.
type State struct {
	Settings
	Messages uint64    // number of messages that the stream holds
	Bytes    uint64    // their size, including the server's overhead
	Oldest   time.Time // when its oldest message was stored; the zero time means that it is empty
}

// ReadState returns the state of EXECUTIONS.
func ReadState(ctx context.Context, js jetstream.JetStream) (State, error) {
	s, err := js.Stream(ctx, Name)
	if err != nil {
		return State{}, fmt.Errorf("stream %s: %w", Name, err)
	}
	info := s.CachedInfo()
	state := State{
		Settings: Settings{
			Replicas:    info.Config.Replicas,
			MaxAge:      info.Config.MaxAge,
			DedupWindow: info.Config.Duplicates,
			MaxBytes:    max(info.Config.MaxBytes, 0),
		},
		Messages: info.State.Msgs, Bytes: info.State.Bytes,
	}
	if state.Messages > 0 {
		state.Oldest = info.State.FirstTime
	}
	return state, nil
}

// Change sets the age, the dedup window and the size of EXECUTIONS, and the age of PROGRESS, on a
// running installation. Own streams of queues get the same age, if they have none of their own, and
// the same dedup window. A shorter age deletes older messages at once. A longer dedup window
// applies to deliveries that the server still remembers, and to later ones. Change can be repeated.
// Executors that start afterwards must have the same settings.
func Change(ctx context.Context, js jetstream.JetStream, to Settings) error {
	if err := to.Validate(); err != nil {
		return err
	}
	for _, name := range []string{Name, ProgressName} {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		config := s.CachedInfo().Config
		config.MaxAge = to.MaxAge
		if name == Name {
			config.Duplicates, config.MaxBytes = to.DedupWindow, to.Config().MaxBytes
		}
		if _, err := js.UpdateStream(ctx, config); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	owned, err := OwnQueues(ctx, js)
	if err != nil {
		return err
	}
	for _, own := range owned {
		if err := EnsureOwn(ctx, js, to, own.Queue, own.Limits); err != nil {
			return err
		}
	}
	return nil
}
