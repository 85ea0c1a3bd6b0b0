package recorder

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// source is a stream whose messages are recorded.
type source struct {
	stream   string
	consumer jetstream.ConsumerConfig
	pull     int // how many messages are asked for at once
}

// sources are the streams that feed the batches. Their messages are recorded in the same
// transactions, starts first.
func (r *Recorder) sources() []source {
	consumer := jetstream.ConsumerConfig{
		Durable:       Durable,
		Description:   "hookstart: the executors record every message",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxAckPending: 20 * maxBatch,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	}
	return []source{{stream.Name, consumer, 4 * maxBatch}, {stream.ProgressName, consumer, maxBatch}}
}

// maxAhead is how many starts may wait before reports are held back.
const maxAhead = 4 * maxBatch

// letStartsPass slows reports down while many starts wait, as after an outage of the database:
// otherwise most would come before their starts, and more than can be kept. What it lets
// through keeps a queue's reports from waiting for ever behind starts that never end.
func (r *Recorder) letStartsPass(ctx context.Context, from source) {
	if from.stream == stream.ProgressName && r.startsWaiting.Load() > maxAhead {
		pause(ctx, 10*time.Millisecond)
	}
}

const (
	// heartbeat is how often the server says that a request for messages still stands.
	heartbeat = 5 * time.Second
	// watchEvery is how often a consumer's state is asked for.
	watchEvery = 5 * time.Second
	// silence is how long nothing may come while messages wait: nats.go asks anew when it
	// has missed two heartbeats.
	silence = 3 * heartbeat
)

// fetch passes messages on until the consumer fails or the context ends; then what the
// server has sent already is still passed on.
func (r *Recorder) fetch(ctx context.Context, from source, arrived chan<- jetstream.Msg) error {
	connection := r.connection()
	config := from.consumer
	if existing, err := r.js.Consumer(ctx, from.stream, config.Durable); err == nil && existing.CachedInfo().Paused {
		config.PauseUntil = existing.CachedInfo().Config.PauseUntil // a backup is being restored: an update would end that
	}
	consumer, err := r.js.CreateOrUpdateConsumer(ctx, from.stream, config)
	if err != nil {
		return fmt.Errorf("consumer %s: %w", from.consumer.Durable, err)
	}
	// Also one that was just made: a server that could not read a consumer's settings makes it with the state
	// that it finds in its folder.
	if err := r.rewind(ctx, from, consumer); err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(from.pull), jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return fmt.Errorf("consumer %s: %w", from.consumer.Durable, err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Drain)()

	var waiting atomic.Int64 // since when, in nanoseconds; 0: not now
	watching, stopWatching := context.WithCancelCause(ctx)
	defer stopWatching(nil)
	go r.watch(watching, from.stream, consumer, &waiting, func(why error) {
		stopWatching(why)
		if errors.Is(why, errReconnected) {
			messages.Drain() // what the server has sent already is recorded
			// Lost again at this moment, the connection cannot be told to drain.
			time.AfterFunc(heartbeat, messages.Stop)
			return
		}
		messages.Stop()
	}, connection)
	for {
		r.letStartsPass(ctx, from)
		waiting.Store(time.Now().UnixNano())
		msg, err := stream.Next(messages)
		waiting.Store(0)
		if why := context.Cause(watching); err != nil && why != nil {
			err = why
		}
		if err != nil {
			return err
		}
		if from.stream == stream.Name {
			r.startsWaiting.Store(pending(msg))
		}
		arrived <- msg
	}
}

// lag notes how much of a stream is not recorded.
func (r *Recorder) lag(name string, info *jetstream.ConsumerInfo) {
	waiting := float64(info.NumPending) + float64(info.NumAckPending)
	if name == stream.Name {
		r.startsWaiting.Store(info.NumPending)
		r.metrics.lag.Set(waiting)
	} else {
		r.metrics.progressLag.Set(waiting)
	}
}

var (
	errSilent      = errors.New("nothing comes although messages wait")
	errReconnected = errors.New("the connection was lost, and the stream may be another one")
)

// watch asks how much is not recorded yet, and how much there is. It lets the consumer be
// made anew when it is gone or silent, for nats.go itself goes on asking for ever, and after the connection was
// lost, so that it is rewound if the stream was taken back meanwhile.
func (r *Recorder) watch(ctx context.Context, name string, consumer jetstream.Consumer, waiting *atomic.Int64, anew func(why error), connection uint64) {
	for ctx.Err() == nil {
		if r.js.Conn().IsConnected() && r.connection() != connection {
			anew(errReconnected)
			return
		}
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		info, err := consumer.Info(asking)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound):
			anew(err)
		case err != nil:
		default:
			r.lag(name, info)
			since := waiting.Load()
			if info.NumPending > 0 && !info.Paused && info.NumAckPending < info.Config.MaxAckPending && since != 0 && time.Since(time.Unix(0, since)) > silence {
				anew(errSilent)
			}
		}
		if s, err := r.js.Stream(asking, stream.Name); err == nil && name == stream.Name {
			info := s.CachedInfo()
			r.metrics.streamBytes.Set(float64(info.State.Bytes))
			r.metrics.streamMaxBytes.Set(float64(max(0, info.Config.MaxBytes)))
			r.metrics.observeReplicas(info.Cluster)
		}
		cancel()
		pause(ctx, r.watchEvery)
	}
}
