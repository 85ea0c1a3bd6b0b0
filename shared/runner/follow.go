package runner

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// While a runner is running, its queue may get lanes, get its own stream, and lose that stream
// again. The runner polls the queue's record in the registry to notice this. When a queue gets its
// own stream, start messages remain in the shared stream, so the runner consumes from both.

const (
	// settingsPollInterval is the interval at which a runner reads its queue's record.
	settingsPollInterval = 2 * time.Second
	// settingsReadTimeout is the maximum duration of one read.
	settingsReadTimeout = 5 * time.Second
)

// consumeLanesAndOwnStream consumes executions from the queue's lanes and from the queue's own
// stream, as soon as these exist, until ctx ends. main is the group's consumer in the shared
// stream.
func (r *runner) consumeLanesAndOwnStream(
	ctx context.Context,
	js jetstream.JetStream,
	main *jetstream.ConsumerInfo,
) {
	var taking sync.WaitGroup
	defer taking.Wait()
	tick := time.NewTicker(settingsPollInterval)
	defer tick.Stop()
	leave := func() {} // stops consuming from the queue's own stream
	begun := 0         // number of lanes that are already being consumed
	for {
		settings, known := r.readQueueSettings(ctx, js)
		if known {
			r.queuePhase.Store(int32(settings.Stream.Phase))
		}
		switch {
		case !known:
		case !settings.Stream.Phase.HasOwnStream():
			leave()
		case r.ownStreamSource.Load() == nil:
			leave = r.consumeOwnStream(ctx, js, main, &taking)
		}
		for ; begun < settings.Lanes; begun++ {
			lane := begun
			r.shareSlots()
			taking.Go(func() { r.consumeLane(ctx, js, main, lane) })
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// readQueueSettings reads the queue's record. known is false if the record could not be read.
//
// If no server responds to the request, the runner's separate NATS account may lack the permission
// to read the record. readQueueSettings then determines only s.Lanes, by counting the lane
// consumers that the executor has created for the group. It nevertheless requests the record again
// on the next call, because a cluster that is starting does not respond either.
func (r *runner) readQueueSettings(
	ctx context.Context, js jetstream.JetStream,
) (s stream.QueueSettings, known bool) {
	ctx, cancel := context.WithTimeout(ctx, settingsReadTimeout)
	defer cancel()
	s, err := stream.ReadQueueSettings(ctx, r.nc, r.Queue)
	if !errors.Is(err, nats.ErrNoResponders) { // which may mean a missing permission
		if err == nil {
			r.hasReadQueueSettings.Store(true)
		}
		return s, err == nil
	}
	for ; ; s.Lanes++ {
		if _, err := js.Consumer(ctx, stream.ExecutionsName,
			r.group().LaneConsumerName(s.Lanes)); err != nil {
			return s, false
		}
	}
}

// consumeOwnStream begins to consume executions from the queue's own stream, and returns a function
// that stops this. If the stream cannot be used yet, both consumeOwnStream and the returned
// function do nothing. main is the group's consumer in the shared stream. taking counts the
// goroutines that consume.
func (r *runner) consumeOwnStream(
	ctx context.Context, js jetstream.JetStream, main *jetstream.ConsumerInfo,
	taking *sync.WaitGroup,
) (leave func()) {
	consumer, err := r.ensureOwnStreamConsumer(ctx, js, main)
	if err == nil {
		err = r.inFlight.openOwnStreamPublisher(r.Queue)
	}
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			r.log(slog.LevelWarn, "the queue's own stream cannot be taken", func() []slog.Attr {
				return []slog.Attr{slog.String("error", err.Error())}
			})
		}
		return func() {}
	}
	own := &pullSource{stream.Layout{Own: true}, consumer}
	ctx, leave = context.WithCancel(ctx)
	r.ownStreamSource.Store(own)
	r.shareSlots()
	taking.Go(func() {
		defer leave()
		_ = r.consumeSource(ctx, own) // after an error, consumeOwnStream is called again
		r.ownStreamSource.CompareAndSwap(own, nil)
	})
	return leave
}

// ensureOwnStreamConsumer returns the group's consumer in the queue's own stream, and creates it if
// it does not exist. A runner in a separate NATS account may not create it; there, the executor
// does so. main is the group's consumer in the shared stream.
func (r *runner) ensureOwnStreamConsumer(
	ctx context.Context, js jetstream.JetStream, main *jetstream.ConsumerInfo,
) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, settingsReadTimeout)
	defer cancel()
	return stream.EnsureRunnerConsumer(ctx, js, r.group(), r.group().OwnStreamConsumerConfig(main))
}
