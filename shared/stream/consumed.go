package stream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// consumedEvery is the interval at which AwaitConsumed polls the consumer.
const consumedEvery = 20 * time.Millisecond

// AwaitConsumed waits until a consumer has acknowledged everything that was in its stream at the
// time of the call, or until ctx ends. Messages that arrive later do not prolong the wait.
// AwaitConsumed returns immediately if there is no such stream.
func AwaitConsumed(ctx context.Context, js jetstream.JetStream, streamName, consumer string) {
	var last uint64
	tick := time.NewTicker(consumedEvery)
	defer tick.Stop()
	for {
		found, err := js.Consumer(ctx, streamName, consumer)
		if err == nil && last == 0 {
			if s, err := js.Stream(ctx, streamName); err == nil {
				last = s.CachedInfo().State.LastSeq
			}
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return
		}
		if err == nil {
			info := found.CachedInfo()
			if info.NumPending == 0 && info.NumAckPending == 0 ||
				last > 0 && info.AckFloor.Stream >= last {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
