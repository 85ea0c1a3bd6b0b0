package stream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// nextRetryWaits holds the time limits of the first calls that each Next makes to the iterator. If
// a call times out, Next calls the iterator again, which makes it send a pull request if none is
// outstanding.
var nextRetryWaits = []time.Duration{10 * time.Millisecond, 250 * time.Millisecond}

// Next returns the next message of a consumer. It blocks until there is one, even if heartbeats are
// missed, and fails only if the iterator was stopped or cannot continue.
//
// It works around a bug in nats.go 1.55.0 (jetstream/pull.go): the iterator does not send a pull
// request while the previous one is still being sent. If all messages of the previous request are
// consumed before it counts as sent, no request is outstanding, and the iterator waits until it
// misses a heartbeat. Every call to the iterator's Next sends a request if none is outstanding.
func Next(messages jetstream.MessagesContext) (jetstream.Msg, error) {
	for {
		msg, err := nextWithRetries(messages)
		if !errors.Is(err, jetstream.ErrNoHeartbeat) {
			return msg, err
		}
		// Heartbeats were missed. Retry: the next call makes the iterator send a new pull request.
	}
}

// NextWhileConsumerExists is like Next, but also fails with jetstream.ErrConsumerNotFound or
// jetstream.ErrStreamNotFound if the consumer no longer exists. The server reports the deletion of
// a consumer only to pull requests that are waiting at that moment. So after NATS has lost its
// storage, or if the stream is deleted while no request is waiting, Next would request messages
// forever. NextWhileConsumerExists checks whether the consumer exists whenever heartbeats are
// missed.
func NextWhileConsumerExists(
	ctx context.Context, consumer jetstream.Consumer, messages jetstream.MessagesContext,
) (jetstream.Msg, error) {
	for {
		msg, err := nextWithRetries(messages)
		if !errors.Is(err, jetstream.ErrNoHeartbeat) {
			return msg, err
		}
		_, err = consumer.Info(ctx)
		if errors.Is(err, jetstream.ErrConsumerNotFound) ||
			errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, err
		}
	}
}

func nextWithRetries(messages jetstream.MessagesContext) (jetstream.Msg, error) {
	for _, wait := range nextRetryWaits {
		msg, err := messages.Next(jetstream.NextMaxWait(wait))
		if !errors.Is(err, nats.ErrTimeout) {
			return msg, err
		}
	}
	// Wait without a time limit: a call with a short limit would not detect missed heartbeats.
	return messages.Next()
}
