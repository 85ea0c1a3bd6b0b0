package stream

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// nudges are how long Next waits before it looks again whether the server was asked for
// more.
var nudges = []time.Duration{10 * time.Millisecond, 250 * time.Millisecond}

// Next gets the next message of a consumer, however long that takes. It fails when the
// iterator has ended, or cannot go on; it goes on through missed heartbeats.
//
// It is there because nats.go 1.55.0 (jetstream/pull.go) can forget to ask the server for
// more: it does not ask while the last request is still being sent, and when all that this
// one brings is taken before it counts as sent, the iterator waits for messages that
// nobody asked for, until it misses a heartbeat. A Next that begins does ask.
func Next(messages jetstream.MessagesContext) (jetstream.Msg, error) {
	for {
		msg, err := next(messages)
		if !errors.Is(err, jetstream.ErrNoHeartbeat) {
			return msg, err
		}
		// The iterator asks anew.
	}
}

func next(messages jetstream.MessagesContext) (jetstream.Msg, error) {
	for _, wait := range nudges {
		msg, err := messages.Next(jetstream.NextMaxWait(wait))
		if !errors.Is(err, nats.ErrTimeout) {
			return msg, err
		}
	}
	// Only a Next that waits long enough notices that heartbeats are missing.
	return messages.Next()
}
