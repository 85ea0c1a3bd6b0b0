package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/recorder"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/registry/agree"
	"github.com/hookstart/hookstart/shared/stream"
)

// checks are the conditions of readiness: without any of them an executor cannot record, or answer operators. The recorder
// itself reports a lost consumer or a failing transaction.
func checks(nc *nats.Conn, js jetstream.JetStream, follower *agree.Follower, records store.Store, c Config) []ops.Check {
	return []ops.Check{
		bus.Check("executor NATS", nc),
		{Part: "executor streams", Ask: func(ctx context.Context) error { return keepStreams(ctx, js, c) }},
		{Part: "executor consumer", Ask: func(ctx context.Context) error { return hasConsumer(ctx, js) }},
		{Part: "executor registry", Ask: follower.CatchUp},
		{Part: "executor database", Ask: records.Ping},
	}
}

// keepStreams recreates a deleted stream. Its messages are lost, but no process has to be restarted.
func keepStreams(ctx context.Context, js jetstream.JetStream, c Config) error {
	for _, name := range streams {
		_, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if err := ensureStreams(ctx, js, c); err != nil {
				return fmt.Errorf("the stream %s is not there, and cannot be made: %w", name, err)
			}
			return fmt.Errorf("the stream %s was not there; it was made anew, empty", name)
		}
		if err != nil {
			return fmt.Errorf("the stream %s: %w", name, err)
		}
	}
	return nil
}

// hasConsumer asks for the recorder's consumers. The recorder makes a lost one anew, and may fail to: a NATS server refuses a
// consumer whose state a power cut has damaged.
func hasConsumer(ctx context.Context, js jetstream.JetStream) error {
	for _, name := range []string{stream.Name, stream.ProgressName} {
		_, err := js.Consumer(ctx, name, recorder.Durable)
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("the recorder's consumer of the stream %s is not there; it is made anew", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
