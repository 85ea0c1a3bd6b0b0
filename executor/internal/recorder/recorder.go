// Package recorder turns the stream's messages into records. A message is
// acknowledged only after the transaction that holds it is committed; what comes
// twice is recorded once, because an execution's ID is unique.
package recorder

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/executor/internal/changes"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/tracing"
)

// Durable is the name of the consumer that all executors share.
const Durable = "executor"

const (
	maxBatch = 500
	// ackWait is after how long another executor gets what this one did not acknowledge:
	// how late a record can be when its executor was killed.
	ackWait = 5 * time.Second
	// finishWait is how long what has arrived may take to be recorded after the end.
	finishWait = 5 * time.Second
)

// Recorder records. Several of them, in several executors, share the work.
type Recorder struct {
	// SendersFirst is for a process that answers senders, too: the recorder rests between its
	// batches, so that a burst of requests is answered first and recorded right after. It is
	// to be set before Run.
	SendersFirst bool

	js      jetstream.JetStream
	store   store.Store
	changes *changes.Changes
	ready   *ops.Readiness
	metrics *metrics
	tracer  trace.Tracer // nil: tracing is off
	log     logrus.FieldLogger
}

// New records what is on the stream into s.
func New(js jetstream.JetStream, s store.Store, c *changes.Changes, o *ops.Ops, log logrus.FieldLogger) *Recorder {
	return &Recorder{js: js, store: s, changes: c, ready: o.Ready, metrics: newMetrics(o.Metrics), tracer: tracing.Tracer(o.Traces, "executor"), log: log}
}

// Run records until the context ends. It goes on through faults of NATS and of the
// database: meanwhile the stream keeps what is not recorded.
func (r *Recorder) Run(ctx context.Context) { r.keepOn(ctx, "the recorder", r.consume) }

// keepOn begins to consume anew, whenever that has failed, until the context ends.
func (r *Recorder) keepOn(ctx context.Context, who string, consume func(context.Context) error) {
	for ctx.Err() == nil {
		err := consume(ctx)
		if ctx.Err() != nil {
			return
		}
		r.log.WithError(err).Warn(who + " lost its consumer; it begins anew")
		pause(ctx, time.Second)
	}
}

// consume records until the consumer fails or the context ends.
func (r *Recorder) consume(ctx context.Context) error {
	consumer, err := r.js.CreateOrUpdateConsumer(ctx, stream.Name, jetstream.ConsumerConfig{
		Durable:       Durable,
		Description:   "hookstart: the executors record every message",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxAckPending: 20 * maxBatch,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return fmt.Errorf("consumer %s: %w", Durable, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(4*maxBatch), jetstream.PullHeartbeat(5*time.Second))
	if err != nil {
		return fmt.Errorf("consumer %s: %w", Durable, err)
	}
	measuring, stopMeasuring := context.WithCancel(ctx)
	defer stopMeasuring()
	go r.measureLag(measuring, consumer)

	// At the end, what has arrived is still recorded.
	recording, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() {
		messages.Drain()
		time.AfterFunc(finishWait, giveUp)
	})()

	arrived := make(chan jetstream.Msg)
	failed := make(chan error, 1)
	go func() {
		defer close(arrived)
		for {
			msg, err := stream.Next(messages)
			if err != nil {
				failed <- err
				return
			}
			arrived <- msg
		}
	}()
	for batch := range batches(arrived) {
		began := time.Now()
		r.record(recording, batch)
		if r.SendersFirst {
			pause(ctx, rest(time.Since(began), pending(batch[len(batch)-1])))
		}
	}
	return <-failed
}

const (
	// restRatio is how much longer than a batch the rest after it is, when nothing waits: a
	// quarter of one core remains for recording.
	restRatio = 3
	// maxRest keeps what has arrived, and waits, well within ackWait.
	maxRest = 100 * time.Millisecond
	// maxBehind is how many messages may wait. The nearer to it, the shorter the rest: what
	// lasts longer than a burst is kept up with.
	maxBehind = 30_000
)

// rest is how long the recorder rests after a batch that took so long, when so many
// messages wait.
func rest(took time.Duration, waiting uint64) time.Duration {
	leisure := 1 - float64(min(waiting, maxBehind))/maxBehind
	return min(time.Duration(restRatio*leisure*float64(took)), maxRest)
}

// pending is how many messages waited in the stream when this one came.
func pending(msg jetstream.Msg) uint64 {
	meta, err := msg.Metadata()
	if err != nil {
		return 0
	}
	return meta.NumPending
}

// batches gathers what is there: while one batch is recorded, the next one grows.
func batches(arrived <-chan jetstream.Msg) <-chan []jetstream.Msg {
	out := make(chan []jetstream.Msg)
	go func() {
		defer close(out)
		var batch []jetstream.Msg
		for {
			var (
				in     = arrived
				ripe   chan<- []jetstream.Msg
				closed bool
			)
			if len(batch) > 0 {
				ripe = out
			}
			if len(batch) >= maxBatch {
				in = nil
			}
			select {
			case msg, open := <-in:
				if closed = !open; !closed {
					batch = append(batch, msg)
				}
			case ripe <- batch:
				batch = nil
			}
			if closed {
				if len(batch) > 0 {
					out <- batch
				}
				return
			}
		}
	}()
	return out
}

// record records one batch. It tries until it succeeds or the context ends.
func (r *Recorder) record(ctx context.Context, messages []jetstream.Msg) {
	began := time.Now()
	b := decode(messages, began)
	applied, err := r.apply(ctx, b)
	if err != nil {
		return // the context ended; the messages come again
	}
	r.acknowledge(messages, b, applied)
	if err := r.changes.Tell(applied.Changed); err != nil {
		r.log.WithError(err).Debug("watchers were not told of changes")
	}
	if len(applied.Foreign) > 0 {
		r.log.WithField("executions", applied.Foreign[:min(len(applied.Foreign), 10)]).
			Warn("progress was reported on another queue or workflow than the execution's; it changed nothing")
	}
	if b.withID > 0 {
		r.log.WithField("messages", b.withID).
			Warn("progress was reported with a Nats-Msg-Id, which is for starts: a delivery of that ID would be taken for a repeat")
	}
	took := time.Since(began)
	r.metrics.observe(b, applied, took)
	if meta, err := messages[0].Metadata(); err == nil {
		r.metrics.delay.Observe(max(0, time.Since(meta.Timestamp)).Seconds()) // the server's clock may be ahead
	}
	r.trace(ctx, messages, b, began)
	r.log.WithFields(logrus.Fields{
		"messages": len(messages), "starts": len(b.New), "progress": len(b.Progress), "unreadable": len(b.Unreadable),
		"changed": len(applied.Changed), "duration_ms": float64(took.Microseconds()) / 1000,
	}).Info("recorded")
}

// apply commits a batch, whatever it takes.
func (r *Recorder) apply(ctx context.Context, b *batch) (store.Applied, error) {
	for attempt := 1; ; attempt++ {
		applied, err := r.store.Apply(ctx, b.Batch)
		if err == nil {
			r.ready.Ready("database")
			return applied, nil
		}
		if ctx.Err() != nil {
			return applied, ctx.Err()
		}
		r.metrics.failures.Inc()
		if r.store.Ping(ctx) == nil && attempt >= 3 {
			// The database is there and refuses: a record in this batch must be at fault.
			return r.applySingly(ctx, b)
		}
		r.ready.NotReady("database", "the last transaction failed; it is tried again, and the stream keeps what is not recorded")
		r.log.WithError(err).WithField("attempt", attempt).Warn("a batch could not be recorded; it is tried again")
		pause(ctx, min(100*time.Millisecond<<min(attempt, 5), 2*time.Second))
	}
}

// applySingly finds out what the database refuses, and puts it aside as unreadable.
func (r *Recorder) applySingly(ctx context.Context, b *batch) (store.Applied, error) {
	var all store.Applied
	for _, one := range b.split() {
		applied, err := r.store.Apply(ctx, one.Batch)
		if err != nil && ctx.Err() == nil && r.store.Ping(ctx) == nil {
			aside := one.aside(err)
			r.log.WithError(err).WithField("stream_sequence", aside.StreamSequence).Error("the database refuses a record; it is put aside")
			applied, err = r.store.Apply(ctx, store.Batch{Unreadable: []store.Unreadable{aside}})
		}
		if err != nil {
			if ctx.Err() != nil {
				return all, ctx.Err()
			}
			return r.apply(ctx, b) // it went away meanwhile; what is recorded already does not matter
		}
		all.Changed = append(all.Changed, applied.Changed...)
		all.Unknown = append(all.Unknown, applied.Unknown...)
		all.Foreign = append(all.Foreign, applied.Foreign...)
	}
	return all, nil
}

// The start of an execution whose progress is reported may still be in another
// executor's hands. Progress is tried again that often, then it is put aside.
const (
	unknownTries = 20
	unknownPause = 250 * time.Millisecond
)

func (r *Recorder) acknowledge(messages []jetstream.Msg, b *batch, applied store.Applied) {
	unknown := map[string]bool{}
	for _, id := range applied.Unknown {
		unknown[id] = true
	}
	for _, msg := range messages {
		var err error
		switch id, isProgress := b.progressOf[msg]; {
		case b.unreadable[msg] != "":
			err = msg.TermWithReason(b.unreadable[msg])
		case isProgress && unknown[id] && deliveries(msg) < unknownTries:
			err = msg.NakWithDelay(unknownPause)
		case isProgress && unknown[id]:
			err = msg.TermWithReason("progress of an execution that is not recorded")
		default:
			err = msg.Ack()
		}
		if err != nil {
			r.log.WithError(err).Debug("an acknowledgement was not sent; the message comes again")
		}
	}
}

func deliveries(msg jetstream.Msg) uint64 {
	meta, err := msg.Metadata()
	if err != nil {
		return 0
	}
	return meta.NumDelivered
}

// measureLag asks how much is not recorded yet, and how much there is.
func (r *Recorder) measureLag(ctx context.Context, consumer jetstream.Consumer) {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		if info, err := consumer.Info(asking); err == nil {
			r.metrics.lag.Set(float64(info.NumPending) + float64(info.NumAckPending))
		}
		if s, err := r.js.Stream(asking, stream.Name); err == nil {
			info := s.CachedInfo()
			r.metrics.streamBytes.Set(float64(info.State.Bytes))
			r.metrics.streamMaxBytes.Set(float64(max(0, info.Config.MaxBytes)))
		}
		cancel()
		pause(ctx, 5*time.Second)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

type metrics struct {
	records    *prometheus.CounterVec
	unreadable prometheus.Counter
	foreign    prometheus.Counter
	withID     prometheus.Counter
	failures   prometheus.Counter
	batch      prometheus.Histogram
	duration   prometheus.Histogram
	delay      prometheus.Histogram
	lag        prometheus.Gauge

	streamBytes, streamMaxBytes prometheus.Gauge
}

func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hookstart_executor_messages_total", Help: "Messages that were recorded, by kind.",
		}, []string{"kind"}),
		unreadable: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_executor_unreadable_total", Help: "Messages that could not be decoded and were put aside.",
		}),
		foreign: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_executor_foreign_progress_total",
			Help: "Executions of which progress was reported on another queue or workflow than theirs: a runner that is wrong, or forges.",
		}),
		withID: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_executor_progress_with_id_total",
			Help: "Progress with a Nats-Msg-Id: a runner that is wrong, or uses up a delivery's ID.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_executor_transaction_failures_total", Help: "Transactions that failed and were tried again.",
		}),
		batch: prometheus.NewHistogram(ops.Histogram("hookstart_executor_batch_messages", "Messages of one transaction.",
			prometheus.ExponentialBuckets(1, 2, 10))),
		duration: prometheus.NewHistogram(ops.Histogram("hookstart_executor_batch_duration_seconds", "From the batch's last message to its commit.",
			ops.Seconds)),
		delay: prometheus.NewHistogram(ops.Histogram("hookstart_executor_record_delay_seconds", "From the stream's storing of a batch's first message to the commit.",
			prometheus.ExponentialBuckets(0.001, 4, 10))),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hookstart_executor_lag_messages", Help: "Messages of the stream that are not recorded yet, by all executors.",
		}),
		streamBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hookstart_executor_stream_bytes", Help: "Size of the stream.",
		}),
		streamMaxBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hookstart_executor_stream_max_bytes", Help: "Size past which the stream takes no more; 0: no bound of its own.",
		}),
	}
	for _, kind := range []string{"start", "rejection", "progress"} {
		m.records.WithLabelValues(kind) // zero is a value, too
	}
	registry.MustRegister(m.delay, m.streamBytes, m.streamMaxBytes)
	registry.MustRegister(m.records, m.unreadable, m.foreign, m.withID, m.failures, m.batch, m.duration, m.lag)
	return m
}

func (m *metrics) observe(b *batch, applied store.Applied, took time.Duration) {
	m.records.WithLabelValues("start").Add(float64(b.starts))
	m.records.WithLabelValues("rejection").Add(float64(len(b.New) - b.starts))
	m.records.WithLabelValues("progress").Add(float64(len(b.Progress)))
	m.unreadable.Add(float64(len(b.Unreadable)))
	m.foreign.Add(float64(len(applied.Foreign)))
	m.withID.Add(float64(b.withID))
	m.batch.Observe(float64(len(b.New) + len(b.Progress) + len(b.Unreadable)))
	m.duration.Observe(took.Seconds())
}
