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

// recreateLostConsumers recreates the group's consumers in the shared stream and in the queue's own
// stream after NATS has lost its storage. Otherwise, the runner would wait forever: the server ends
// an open request if the consumer is deleted, but not if its storage is lost.
//
// recreateLostConsumers looks up the streams after each reconnect, and when checkConsumer has not
// found the consumer, until ctx ends. It creates a consumer only if the stream is a new one. In a
// stream that the runner already knows, a new consumer would redeliver executions that have already
// ended. main is the group's consumer in the shared stream.
//
// It does nothing if the runner may not read the stream, which is the case in a separate NATS
// account. An executor then creates the consumers.
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
	if created.After(main.Created) { // the stream was replaced after the consumer was found
		created = time.Time{}
	}
	r.streamCreated.Store(&created)
	for {
		select {
		case <-ctx.Done():
			return
		case <-connected:
		case <-r.consumerMissing:
		}
		for ctx.Err() == nil {
			now, err := js.Stream(ctx, stream.ExecutionsName)
			if err == nil && !now.CachedInfo().Created.Equal(*r.streamCreated.Load()) {
				options := r.Options
				// The group exists already: it must receive what was stored since the loss, too.
				options.OnlyNew = false
				if _, err = ensureConsumer(ctx, js, options); err == nil {
					r.streamCreated.Store(&now.CachedInfo().Created)
				}
			}
			if err == nil {
				err = r.recreateConsumerInNewOwnStream(ctx, js, main)
			}
			if err == nil || errors.Is(err, stream.ErrConsumerConflict) {
				break
			}
			sleep(ctx, consumerCheckInterval)
		}
	}
}

// checkConsumer looks for the group's consumer in the shared stream, after requests for messages
// have failed. It returns jetstream.ErrConsumerDeleted if somebody has deleted the consumer. The
// server tells that only to a request that is open at that moment; all handlers may have been busy
// then. If the whole stream is gone, or is a new one, checkConsumer makes recreateLostConsumers
// create the consumer once there is a stream, and returns nil.
func (r *runner) checkConsumer(ctx context.Context, consumer jetstream.Consumer) error {
	ctx, cancel := context.WithTimeout(ctx, consumerCheckTimeout)
	defer cancel()
	created := r.streamCreated.Load() // read it first: recreateLostConsumers may change it
	if _, err := consumer.Info(ctx); !isNotFound(err) {
		return nil
	}
	now, err := r.inFlight.js.Stream(ctx, stream.ExecutionsName)
	if err == nil && created != nil && now.CachedInfo().Created.Equal(*created) {
		return jetstream.ErrConsumerDeleted
	}
	select {
	case r.consumerMissing <- struct{}{}:
	default:
	}
	return nil
}

// consumerCheckTimeout is the maximum duration of checkConsumer.
const consumerCheckTimeout = 5 * time.Second

// isNotFound reports whether an error says that a consumer, or its stream, does not exist.
func isNotFound(err error) bool {
	return errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrStreamNotFound)
}

// recreateConsumerInNewOwnStream recreates the group's consumer in the queue's own stream, if that
// stream is newer than the consumer that the runner uses.
func (r *runner) recreateConsumerInNewOwnStream(
	ctx context.Context, js jetstream.JetStream, main *jetstream.ConsumerInfo,
) error {
	own := r.ownStreamSource.Load()
	if own == nil {
		return nil
	}
	now, err := js.Stream(ctx, stream.OwnStreamName(r.Queue))
	if err == nil && now.CachedInfo().Created.After(own.consumer.CachedInfo().Created) {
		_, err = r.ensureOwnStreamConsumer(ctx, js, main)
	}
	return err
}
