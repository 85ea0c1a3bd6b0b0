package runner

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// consumerCheckInterval is the interval at which a runner that has reconnected tries to find its
// consumer, until NATS responds.
const consumerCheckInterval = time.Second

// recreateLostConsumers recreates the group's consumer after NATS has lost its storage. It runs
// until ctx ends, and looks for the consumer after each reconnect. The server reports the deletion
// of a consumer to waiting requests. It does not report that the consumer is missing after the
// storage was lost, so the runner would request messages forever. recreateLostConsumers creates the
// consumer only in a new stream: in the known stream, a new consumer would redeliver executions
// that have already ended.
//
// It does the same for the queue's own stream. main is the group's consumer in the shared stream.
//
// It does nothing if the runner may not read the stream, which is the case in a separate NATS
// account. An executor then creates the consumer.
func (r *runner) recreateLostConsumers(
	ctx context.Context, js jetstream.JetStream, main *jetstream.ConsumerInfo,
) {
	connected := r.nc.StatusChanged(nats.CONNECTED)
	defer r.nc.RemoveStatusListener(connected)
	known, err := js.Stream(ctx, stream.ExecutionsName)
	if err != nil {
		return
	}
	created := known.CachedInfo().Created
	for {
		select {
		case <-ctx.Done():
			return
		case <-connected:
		}
		for ctx.Err() == nil {
			now, err := js.Stream(ctx, stream.ExecutionsName)
			if err == nil && !now.CachedInfo().Created.Equal(created) {
				if _, err = ensureConsumer(ctx, js, r.Options); err == nil {
					created = now.CachedInfo().Created
				}
			}
			if err == nil {
				err = r.recreateLostOwnConsumer(ctx, js, main)
			}
			if err == nil || errors.Is(err, stream.ErrConsumerConflict) {
				break
			}
			sleep(ctx, consumerCheckInterval)
		}
	}
}

// recreateLostOwnConsumer recreates the group's consumer if the queue's own stream is newer than
// the consumer that the runner uses.
func (r *runner) recreateLostOwnConsumer(
	ctx context.Context, js jetstream.JetStream, main *jetstream.ConsumerInfo,
) error {
	own := r.own.Load()
	if own == nil {
		return nil
	}
	now, err := js.Stream(ctx, stream.OwnStreamName(r.Queue))
	if err == nil && now.CachedInfo().Created.After(own.consumer.CachedInfo().Created) {
		_, err = r.ensureOwnConsumer(ctx, js, main)
	}
	return err
}
