package stream

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// consumedPollInterval is the interval at which AwaitConsumed polls the consumer.
const consumedPollInterval = 20 * time.Millisecond

// Unacknowledged returns the number of a consumer's messages that have not been acknowledged,
// whether or not they have been delivered.
func Unacknowledged(info *jetstream.ConsumerInfo) int64 {
	return int64(info.NumPending) + int64(info.NumAckPending) //nolint:gosec // below 2^63
}

// IsDrained reports whether a consumer has delivered all of its messages and every one of them is
// acknowledged.
func IsDrained(info *jetstream.ConsumerInfo) bool { return Unacknowledged(info) == 0 }

// CaughtUp reports whether a consumer has acknowledged all its messages up to the sequence last. An
// idle consumer has always caught up, even if the last sequence that it has acknowledged is lower:
// the last message of the stream may belong to another consumer or may have been deleted.
func CaughtUp(info *jetstream.ConsumerInfo, last uint64) bool {
	return info.AckFloor.Stream >= last || IsDrained(info)
}

// AwaitConsumed waits until a consumer has acknowledged everything that was in its stream at the
// time of the call, or until ctx ends. Messages that arrive later do not prolong the wait.
// AwaitConsumed returns immediately if there is no such stream.
func AwaitConsumed(ctx context.Context, js jetstream.JetStream, streamName, consumer string) {
	const unknown = math.MaxUint64
	last := uint64(unknown)
	tick := time.NewTicker(consumedPollInterval)
	defer tick.Stop()
	for {
		found, err := js.Consumer(ctx, streamName, consumer)
		if err == nil && last == unknown {
			if s, err := js.Stream(ctx, streamName); err == nil {
				last = s.CachedInfo().State.LastSeq
			}
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return
		}
		if err == nil && CaughtUp(found.CachedInfo(), last) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
