// Package recorder records the messages of the streams in the database. It acknowledges a message
// only after the transaction that records it has been committed. A message that is delivered twice
// is recorded once, because execution IDs are unique.
//
// One goroutine for each stream fetches messages (fetch.go) and passes them to the recording
// goroutine (arrivals.go). The recording goroutine decodes them in batches (batch.go), commits each
// batch (commit.go), and then acknowledges its messages (recorder.go). If the database turns out to
// lack acknowledged messages, the consumers are rewound (position.go, rewind.go). An execution
// whose start message is gone, so that no runner will end it, is ended as failed (lost.go).
package recorder

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/executor/internal/changes"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/tracing"
)

const (
	// maxBatchMessages is the maximum number of messages in one transaction. In larger
	// transactions, each message costs less; with SQLite, for example, more messages share a page
	// of the ID index. With 1,000 messages per transaction, one message takes 31 µs of CPU time;
	// with 4,000 messages and correspondingly longer pauses, it takes 26 µs.
	maxBatchMessages = 4_000
	// ackWait is how long a message may stay unacknowledged before it is delivered to another
	// executor. When an executor is killed, the messages that it was handling are recorded only
	// after this delay.
	ackWait = 5 * time.Second
	// drainTimeout is how long Run may continue after its context is done, to record messages that
	// have already arrived.
	drainTimeout = 5 * time.Second
)

// Config configures a Recorder. The first five fields must be set.
type Config struct {
	JetStream jetstream.JetStream
	Store     Store
	Changes   *changes.Notifier // receives the IDs of the records that have changed
	Ops       *ops.Ops
	Log       logrus.FieldLogger

	// PublishingRequests is the number of requests whose messages an ingress in this process is
	// storing now. The recorder waits during a burst of requests: see pacing.go. nil means that
	// this process has no ingress.
	PublishingRequests *atomic.Int64
	// Retention is how long execution records are kept. The recorder does not search for older
	// records, and does not record older messages. 0 means that records are kept forever.
	Retention time.Duration
	// SaveCapturedSecret stores box, a sealed secret that a node's provider has sent. The recorder
	// may call it repeatedly with the same secret, and retries until it succeeds. nil means that
	// such secrets are ignored.
	SaveCapturedSecret func(ctx context.Context, workflowID, nodeID string, box []byte) error
	// SenderPreset returns the current preset of a node's sender, or "" if the node has none.
	// Observations about a sender with another preset are ignored. After an error, the recorder
	// retries until it succeeds. nil means that no observation is ignored for this reason.
	SenderPreset func(ctx context.Context, workflowID, nodeID string) (string, error)
	// WorkflowInAccountSince returns the time since which a workflow has been in its account; ok is
	// false if there is no workflow with that ID. Observations from before that time are ignored,
	// because they are about the workflow in another account, or about an earlier workflow with the
	// same ID. After an error, the recorder retries until it succeeds. nil means that no
	// observation is ignored for this reason.
	WorkflowInAccountSince func(ctx context.Context, id string) (at time.Time, ok bool, err error)
	// OnDatabaseBehind is called when the database is found to lack acknowledged messages. The
	// database may then also lack data that does not come from the recorder's streams, such as
	// audit entries, so OnDatabaseBehind should copy such data again. nil means that there is no
	// such data.
	OnDatabaseBehind func(ctx context.Context)
	// SkippingConsumers returns the runners' consumers that have skipped start messages. The
	// recorder publishes these start messages again, and then calls OnRedelivered for the consumer.
	// SkippingConsumers may be nil if no consumer has skipped any; otherwise, OnRedelivered must be
	// set.
	SkippingConsumers func() ([]SkippingConsumer, error)
	OnRedelivered     func(SkippingConsumer) error
}

// SkippingConsumer identifies a runner group's consumer that has skipped start messages.
type SkippingConsumer struct {
	// Stream is the name of the consumer's stream: the shared stream, or a queue's own. A group has
	// a consumer with the same name in each of them.
	Stream   string
	Consumer string
}

// Store is the part of store.Store that a Recorder uses.
type Store interface {
	store.Recording
	store.Records
	store.AsideMessages
	store.Reports
	store.HandledMessages
}

// Recorder records the streams' messages in the database. Several recorders, in several executors,
// share the work.
type Recorder struct {
	config  Config
	timings timings
	js      jetstream.JetStream
	store   Store
	ready   *ops.Readiness
	changes *changes.Notifier
	metrics *metrics
	tracer  trace.Tracer // nil if tracing is off
	log     logrus.FieldLogger

	databaseHealth   *databaseHealth
	suspects         poisonSuspects
	lastAcked        lastAckedMessages
	databaseRecovery databaseRecovery
	searchNow        chan struct{} // a value makes EndLostExecutions search now; buffer size 1
	// fullSearchDue reports whether the next search by EndLostExecutions must read all executions.
	fullSearchDue        atomic.Bool
	oldestLateAcceptance oldestLateAcceptance
	recoveryStarted      chan struct{} // a value signals the start of a recovery; buffer size 1
	// startBacklogs holds the number of undelivered messages in each stream of start messages.
	startBacklogs startBacklogs
	streamCount   atomic.Int64 // number of streams being followed
}

// timings holds the durations that tests shorten. defaultTimings returns the ones for
// production.
type timings struct {
	consumerAckWait time.Duration // AckWait of the consumers
	// how long a transaction may take before the executor is marked as not ready
	slowTransactionThreshold time.Duration
	applyTimeout             time.Duration // maximum duration of a transaction
	// delay before a suspected poison message is delivered again
	poisonRetryDelay     time.Duration
	consumerPollInterval time.Duration // interval between two queries of a consumer
	// interval of heartbeats while ApplyIngressReports waits for a report
	heartbeatInterval time.Duration
	// interval between comparisons of the database with the streams
	databaseCompareInterval time.Duration
	// how long it may be unknown whether a new database lacks messages before the executor is
	// marked as not ready
	uncertaintyGrace time.Duration
	// time from the start of EndLostExecutions, or from a reconnect, until it searches
	lostSearchDelay  time.Duration
	lostRecheckDelay time.Duration // delay before a missing start message is looked up again
	// interval at which EndLostExecutions checks whether everything is recorded
	catchUpPollInterval time.Duration
	// lostSearchInterval returns the interval between two searches. maxAge is the shortest maximum
	// age of the streams of start messages, or 0 if one of them could not be read.
	lostSearchInterval func(maxAge time.Duration) time.Duration
}

func defaultTimings() timings {
	return timings{
		consumerAckWait:          ackWait,
		slowTransactionThreshold: ackWait,
		applyTimeout:             applyTimeout,
		poisonRetryDelay:         poisonRetryDelay,
		consumerPollInterval:     consumerPollInterval,
		heartbeatInterval:        heartbeatInterval,
		databaseCompareInterval:  databaseCompareInterval,
		uncertaintyGrace:         uncertaintyGrace,
		lostSearchDelay:          lostSearchDelay,
		lostRecheckDelay:         lostRecheckDelay,
		catchUpPollInterval:      catchUpPollInterval,
		lostSearchInterval:       lostSearchInterval,
	}
}

// New returns a Recorder. Call Run, ApplyIngressReports and EndLostExecutions to start its loops.
func New(c Config) *Recorder {
	m := newMetrics(c.Ops.Metrics)
	return &Recorder{
		config:          c,
		timings:         defaultTimings(),
		js:              c.JetStream,
		store:           c.Store,
		ready:           c.Ops.Readiness,
		changes:         c.Changes,
		metrics:         m,
		searchNow:       make(chan struct{}, 1),
		recoveryStarted: make(chan struct{}, 1),
		tracer:          tracing.Tracer(c.Ops.TracerProvider, "executor"),
		log:             c.Log,
		databaseHealth: &databaseHealth{
			ready: c.Ops.Readiness, failures: m.failedTransactions,
			log: c.Log,
		},
		suspects: poisonSuspects{
			minTries:     minPoisonTries,
			minRetryTime: minPoisonRetryTime,
			byMessageKey: map[messageKey]*poisonSuspect{},
		},
	}
}

// Run records the streams' messages until the context is done. It survives failures of NATS and of
// the database: the streams keep the messages that are not recorded yet.
func (r *Recorder) Run(ctx context.Context) {
	// recording outlives ctx, so that messages that have already arrived can still be recorded when
	// ctx is done.
	recording, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drainTimeout, giveUp) })()

	// New messages go into this buffer while a batch is being recorded, and become the next batch.
	var arrived arrivalBuffer
	var keeping sync.WaitGroup
	go func() {
		r.followStreams(ctx, &arrived)
		arrived.close()
	}()
	keeping.Go(func() { r.extendAckWaits(recording, &arrived) })
	keeping.Go(func() { r.watchForDataLoss(ctx) })
	defer keeping.Wait()
	defer giveUp()
	first := requestBurstGate{publishing: r.config.PublishingRequests}
	for messages := arrived.nextBatch(); messages != nil; messages = arrived.nextBatch() {
		first.awaitQuiet(ctx, messages[0])
		began := time.Now()
		r.recordBatch(recording, messages)
		if r.config.PublishingRequests != nil {
			waiting := max(numPendingAfter(messages[len(messages)-1]),
				r.startBacklogs.largestOwnBacklog())
			retry.Sleep(ctx, pauseAfterBatch(time.Since(began), waiting))
		}
	}
}

// recordBatch records one batch, retrying as long as necessary, and acknowledges its messages.
func (r *Recorder) recordBatch(ctx context.Context, messages []jetstream.Msg) {
	began := time.Now()
	entries := decode(messages, began, r.retentionCutoff(began))
	applied := r.commit(ctx, entries)
	// Announce the changes before acknowledging. If this executor is killed in between, the
	// messages are redelivered, and the changes are announced then.
	r.announceChanges(append(applied.ChangedIDs, redeliveredIDs(entries)...))
	connection := r.connectionNumber()
	for i, e := range entries {
		yieldToOthers(i)
		if e.verdict == verdictRecorded {
			r.lastAcked.add(connection, e)
		}
		if err := r.acknowledge(e); err != nil {
			r.log.WithError(err).Debug("an acknowledgement was not sent; the message comes again")
		}
	}
	if len(applied.MismatchedIDs) > 0 {
		r.log.WithField("executions", applied.MismatchedIDs[:min(len(applied.MismatchedIDs), 10)]).
			Warn("progress was reported on another queue or workflow than the execution's; it " +
				"changed nothing")
	}
	if applied.DroppedProgress > 0 {
		r.log.WithField("reports", applied.DroppedProgress).
			Warn("reports of executions that are not recorded were dropped: too many are kept " +
				"already")
	}
	took := time.Since(began)
	r.metrics.observeBatch(entries, applied, took)
	if meta, err := messages[0].Metadata(); err == nil {
		// The difference is negative if the server's clock is ahead.
		r.metrics.recordDelay.Observe(max(0, time.Since(meta.Timestamp)).Seconds())
	}
	r.traceBatch(ctx, entries, began)
	count := map[messageKind]int{}
	decided := 0
	for _, e := range entries {
		count[e.kind]++
		if e.verdict == verdictRecorded || e.verdict == verdictPutAside {
			decided++
		}
	}
	r.log.WithFields(logrus.Fields{
		"messages":    len(messages),
		"decided":     decided,
		"starts":      count[kindStart] + count[kindRejection],
		"progress":    count[kindProgress],
		"unreadable":  count[kindUnreadable],
		"changed":     len(applied.ChangedIDs),
		"duration_ms": float64(took.Microseconds()) / 1000,
	}).Info("recorded")
}

// announceChanges notifies watchers, such as event streams of the operators' API, that executions
// have changed.
func (r *Recorder) announceChanges(ids []string) {
	if err := r.changes.Publish(ids); err != nil {
		r.log.WithError(err).Debug("watchers were not told of changes")
	}
}

// retentionCutoff returns the beginning of the period for which records are kept: messages that
// were stored earlier are not recorded. It returns the zero time if records are kept forever.
func (r *Recorder) retentionCutoff(now time.Time) time.Time {
	if r.config.Retention == 0 {
		return time.Time{}
	}
	return now.Add(-r.config.Retention)
}

// acknowledge acknowledges an entry's message according to its verdict.
func (r *Recorder) acknowledge(e *entry) error {
	switch e.verdict {
	case verdictRecorded:
		return e.msg.Ack()
	case verdictPutAside:
		return e.msg.TermWithReason("put aside as a dead letter")
	case verdictPoisonSuspect:
		return e.msg.NakWithDelay(r.timings.poisonRetryDelay)
	case verdictUndecided:
	}
	return nil
}

// numPendingAfter returns how many messages were still waiting in the stream when msg was
// delivered, or 0 if its metadata is unreadable.
func numPendingAfter(msg jetstream.Msg) uint64 {
	meta, err := msg.Metadata()
	if err != nil {
		return 0
	}
	return meta.NumPending
}

// connectionNumber returns the number of reconnects to NATS, which identifies the connection.
func (r *Recorder) connectionNumber() uint64 { return r.js.Conn().Stats().Reconnects }

// AwaitQueueStartsRecorded waits until everything that the shared stream and the queue's own stream
// contain at the time of the call is recorded, or until the context is done.
func AwaitQueueStartsRecorded(ctx context.Context, js jetstream.JetStream, queue string) {
	for _, name := range []string{stream.ExecutionsName, stream.OwnStreamName(queue)} {
		stream.AwaitConsumed(ctx, js, name, stream.RecorderConsumerName)
	}
}

// AwaitStartsRecorded waits until everything that the streams of start messages contain at the time
// of the call is recorded, or until the context is done.
func AwaitStartsRecorded(ctx context.Context, js jetstream.JetStream) {
	var names []string
	retry.Until(ctx, 20*time.Millisecond, func() bool {
		starts, _, err := stream.StreamNames(ctx, js)
		names = starts
		return err == nil
	})
	for _, name := range names {
		stream.AwaitConsumed(ctx, js, name, stream.RecorderConsumerName)
	}
}
