package recorder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// source is a stream from which the recorder fetches messages.
type source struct {
	streamName     string
	consumerConfig jetstream.ConsumerConfig
	streamIdentity string // the stream's identity; set when fetching begins
}

// isStartStream reports whether the source is a stream of start messages.
func (s source) isStartStream() bool { return s.streamName == pairOfStream(s.streamName).starts }

// maxStartBacklog is the number of waiting start messages above which the recorder delays fetching
// reports.
const maxStartBacklog = 2_000

// delayProgressFetch delays fetching reports while many start messages are waiting, for example
// after an outage of the database. Otherwise, most reports would be recorded before their start
// messages, and the store keeps only a limited number of such reports. A few reports still get
// through, so that a steady flow of start messages cannot block reports forever. waited reports
// whether there was a delay.
func (r *Recorder) delayProgressFetch(ctx context.Context, from source) (waited bool) {
	if p := pairOfStream(from.streamName); from.streamName != p.progress ||
		r.startBacklogs.Load(p.starts) <= maxStartBacklog {
		return false
	}
	retry.Sleep(ctx, 10*time.Millisecond)
	return true
}

// consumerPollInterval is how often a consumer's state is polled. It is short, so that a lost
// consumer is recreated about as soon as /readyz reports its loss.
const consumerPollInterval = time.Second

// At a low rate, the recorder records messages as they arrive. At a high rate, it fetches them in
// bursts with pauses in between, which saves CPU time: messages sent together cost the NATS server
// and the executor far less than single ones, and one large transaction costs far less than several
// small ones.
const (
	// fetchSize is the maximum number of messages per request at a low rate.
	fetchSize = 250
	// burstFetchSize is the maximum number of messages per request in a burst. A burst consists of
	// several requests, up to maxBatchMessages messages or maxBatchBytes.
	burstFetchSize = 1_000
	// maxBatchBytes is the total length of bodies at which a burst ends. No further messages are
	// fetched while messages of this total length are waiting to be recorded.
	maxBatchBytes = 32 << 20
	// burstRate is the rate, in messages per second, at which the recorder begins to fetch in
	// bursts. It stops doing so after maxSmallBursts consecutive bursts with fewer than
	// minBurstMessages messages each, because a single small burst says little about the rate.
	burstRate = 1_000
	// minPauseAfterBurst and maxPauseAfterBurst are the shortest and the longest pause after a
	// burst. A message that arrives during the pause is recorded only after it.
	minPauseAfterBurst, maxPauseAfterBurst = 25 * time.Millisecond, 200 * time.Millisecond
	// Up to a rate of longerPauseMinRate messages per second, the pause after a burst is
	// minPauseAfterBurst. For every thousand messages per second above that rate, the pause is
	// longer by extraPausePerThousand, because at a high rate saving CPU time is more important
	// than a short delay.
	longerPauseMinRate    = 5_000
	extraPausePerThousand = 35 * time.Millisecond
	minBurstMessages      = int(burstRate * minPauseAfterBurst / time.Second / 4)
	maxSmallBursts        = 4
)

// pauseAfterBurst returns the pause after a burst of the given number of messages. since is the
// time from the beginning of the previous burst to the beginning of this one.
func pauseAfterBurst(messages int, since time.Duration) time.Duration {
	rate := int64(messages) * int64(time.Second) / int64(max(since, minPauseAfterBurst))
	longer := time.Duration(max(rate-longerPauseMinRate, 0) * int64(extraPausePerThousand) / 1000)
	return min(minPauseAfterBurst+longer, maxPauseAfterBurst)
}

var errReconnected = errors.New("the connection was lost, and the stream may be another one")

// followStreams fetches messages from all streams until the context is done. It begins to fetch
// from streams that are created while it runs, and stops fetching from streams that are deleted.
func (r *Recorder) followStreams(ctx context.Context, arrived *arrivalBuffer) {
	var fetching sync.WaitGroup
	defer fetching.Wait()
	running := map[string]context.CancelFunc{} // keyed by stream name
	follow := func(name string) {
		if running[name] != nil {
			return
		}
		following, stop := context.WithCancel(ctx)
		running[name] = stop
		r.streamCount.Add(1)
		fetching.Go(func() {
			defer r.streamCount.Add(-1)
			from := r.newSource(name)
			r.consumeWithRetry(following, "the recorder", func(ctx context.Context) error {
				return r.followStream(ctx, from, arrived)
			})
			if ctx.Err() == nil {
				r.forgetStream(name)
			}
		})
	}
	defer func() {
		for _, stop := range running {
			stop()
		}
	}()
	for _, name := range sharedStreamPair.streamNames() {
		follow(name)
	}
	for ctx.Err() == nil {
		// If the streams cannot be listed, continue with the known ones.
		if names, err := r.existingStreams(ctx); err == nil {
			names = append(names, sharedStreamPair.streamNames()...)
			for _, name := range names {
				follow(name)
			}
			for name, stop := range running {
				if !slices.Contains(names, name) {
					stop()
					delete(running, name)
				}
			}
		}
		retry.Sleep(ctx, r.timings.consumerPollInterval)
	}
}

// newSource returns the source for the stream with the given name. The source contains the
// configuration of the recorder's consumer.
func (r *Recorder) newSource(name string) source {
	return source{streamName: name, consumerConfig: jetstream.ConsumerConfig{
		Durable:       stream.RecorderConsumerName,
		Description:   "hookstart: the executors record every message",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       r.timings.consumerAckWait,
		MaxAckPending: 10 * maxBatchMessages,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	}}
}

// consumeWithRetry calls consume, and calls it again after each failure, until the context is done.
// who names the consumer in the log.
func (r *Recorder) consumeWithRetry(
	ctx context.Context, who string, consume func(context.Context) error,
) {
	var lastLogged time.Time
	for ctx.Err() == nil {
		err := consume(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errReconnected) {
			continue
		}
		if time.Since(lastLogged) >= logInterval {
			lastLogged = time.Now()
			r.log.WithError(err).Warn(who + " lost its consumer; it begins anew")
		}
		retry.Sleep(ctx, time.Second)
	}
}

// followStream adds messages to arrived until the consumer fails or the context is done. If the
// context ends a request early, messages on their way are lost. The server redelivers them after
// the consumer's AckWait.
func (r *Recorder) followStream(ctx context.Context, from source, arrived *arrivalBuffer) error {
	connection := r.connectionNumber()
	config := from.consumerConfig
	if existing, err := r.js.Consumer(ctx, from.streamName, config.Durable); err == nil &&
		existing.CachedInfo().Paused {
		// The consumer may be paused because a backup is being restored. Keep its PauseUntil,
		// because CreateOrUpdateConsumer would otherwise end the pause.
		config.PauseUntil = existing.CachedInfo().Config.PauseUntil
	}
	consumer, err := r.js.CreateOrUpdateConsumer(ctx, from.streamName, config)
	if err != nil {
		return fmt.Errorf("consumer %s: %w", from.consumerConfig.Durable, err)
	}
	// Compare the streams with the database even if the consumer is new. If the server cannot read
	// the settings of a consumer, it forgets the consumer but keeps its state on disk, and a new
	// consumer with the same name starts with that old state.
	if _, err := r.compareAndRewind(ctx, pairOfStream(from.streamName)); err != nil {
		return err
	}
	s, err := r.js.Stream(ctx, from.streamName)
	if err != nil {
		return fmt.Errorf("stream %s: %w", from.streamName, err)
	}
	from.streamIdentity = streamIdentityOf(s.CachedInfo())
	watching, stopWatching := context.WithCancelCause(ctx)
	defer stopWatching(nil)
	go r.watchConsumer(watching, from, consumer, stopWatching, connection)
	burstAt := time.Now() // when the previous burst began
	smallBursts := 0      // number of consecutive bursts with fewer than minBurstMessages
	for inBursts := false; ; {
		arrived.awaitRoom(watching)
		wait := r.delayProgressFetch(watching, from)
		began := time.Now()
		var n int
		var drained bool
		switch {
		case wait:
			n, err = r.fetchUpTo(watching, from, consumer, 1, arrived)
		case inBursts:
			n, drained, err = r.fetchBurst(watching, from, consumer, arrived)
		default:
			n, err = r.fetchUpTo(watching, from, consumer, fetchSize, arrived)
		}
		switch why := context.Cause(watching); {
		case why != nil:
			return why
		// ErrNoHeartbeat needs no restart: the loop sends the request again.
		case err != nil && !errors.Is(err, jetstream.ErrNoHeartbeat):
			return fmt.Errorf("consumer %s: %w", from.consumerConfig.Durable, err)
		case wait:
		case !inBursts:
			inBursts = n == fetchSize && time.Since(began) < fetchSize*time.Second/burstRate
			smallBursts = 0
		case n < minBurstMessages:
			if smallBursts++; smallBursts == maxSmallBursts {
				inBursts = false
			} else {
				retry.Sleep(watching, minPauseAfterBurst)
			}
		default:
			smallBursts = 0
			if drained {
				retry.Sleep(watching, pauseAfterBurst(n, began.Sub(burstAt)))
			}
		}
		burstAt = began
	}
}

// fetchUpTo requests up to maxMessages messages, and adds each one to arrived as soon as it
// arrives. It returns once all have arrived or the request has expired. n is the number of messages
// that have arrived.
func (r *Recorder) fetchUpTo(
	ctx context.Context, from source, consumer jetstream.Consumer, maxMessages int,
	arrived *arrivalBuffer,
) (n int, err error) {
	batch, err := consumer.Fetch(maxMessages, jetstream.FetchContext(ctx))
	if err != nil {
		return 0, err
	}
	for msg := range batch.Messages() {
		n++
		r.addFetched(from, []jetstream.Msg{msg}, arrived)
	}
	return n, batch.Error()
}

// fetchBurst fetches the messages that are available now, up to about maxFetchPerStream, and then
// adds all of them to arrived. n is their number. drained is true if the stream has no further
// messages at the moment.
func (r *Recorder) fetchBurst(
	ctx context.Context, from source, consumer jetstream.Consumer, arrived *arrivalBuffer,
) (n int, drained bool, err error) {
	var messages []jetstream.Msg
	most, mostBytes := r.maxFetchPerStream()
	request := min(burstFetchSize, most)
	for size := 0; len(messages) < most && size < mostBytes && !drained && err == nil &&
		ctx.Err() == nil; {
		var batch jetstream.MessageBatch
		if batch, err = consumer.FetchNoWait(request); err != nil {
			break
		}
		before := len(messages)
		for msg := range batch.Messages() {
			messages, size = append(messages, msg), size+len(msg.Data())
		}
		drained, err = len(messages)-before < request, batch.Error()
	}
	r.addFetched(from, messages, arrived)
	return len(messages), drained, err
}

// addFetched adds messages to arrived. If the messages are start messages, it also updates the
// backlog of their stream, from the metadata of the last message.
func (r *Recorder) addFetched(from source, messages []jetstream.Msg, arrived *arrivalBuffer) {
	if len(messages) == 0 {
		return
	}
	if from.isStartStream() {
		r.startBacklogs.Store(from.streamName, numPendingAfter(messages[len(messages)-1]))
	}
	for i, msg := range messages {
		messages[i] = fetchedMsg{msg, from.streamIdentity}
	}
	arrived.add(messages...)
}

// setLag sets the metric for the number of messages in a stream that are not recorded yet.
func (r *Recorder) setLag(from source, info *jetstream.ConsumerInfo) {
	waiting := float64(stream.Unacknowledged(info))
	if from.isStartStream() {
		r.startBacklogs.Store(from.streamName, info.NumPending)
		r.metrics.startLag.WithLabelValues(from.streamName).Set(waiting)
	} else {
		r.metrics.progressLag.WithLabelValues(from.streamName).Set(waiting)
	}
}

// watchConsumer polls the consumer's state and the stream's size, and updates the metrics. If the
// consumer was deleted, or if the process has reconnected to NATS, it calls the function restart,
// which makes followStream start again. followStream then also rewinds the consumer if the stream
// was rolled back.
func (r *Recorder) watchConsumer(
	ctx context.Context, from source, consumer jetstream.Consumer, restart func(why error),
	connection uint64,
) {
	connected := r.js.Conn().StatusChanged(nats.CONNECTED)
	defer r.js.Conn().RemoveStatusListener(connected)
	for ctx.Err() == nil {
		if r.js.Conn().IsConnected() && r.connectionNumber() != connection {
			restart(errReconnected)
			return
		}
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		info, err := consumer.Info(asking)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound):
			restart(err)
		case err == nil:
			r.setLag(from, info)
			r.updateAckFloor(from.streamName, from.streamIdentity, info.AckFloor.Stream)
		}
		if from.isStartStream() {
			if s, err := r.js.Stream(asking, from.streamName); err == nil {
				r.metrics.observeStream(s.CachedInfo())
			}
		}
		cancel()
		timer := time.NewTimer(r.timings.consumerPollInterval)
		select {
		case <-ctx.Done():
		case <-connected:
		case <-timer.C:
		}
		timer.Stop()
	}
}
