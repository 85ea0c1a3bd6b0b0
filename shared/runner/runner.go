// Package runner is for programs that run workflows. It consumes executions from the stream, calls
// a handler for each, and reports the result.
//
// # What a runner can rely on
//
// Every execution that was accepted reaches every group of its queue at least once; the members of
// a group share the work. A handler may run more than once for one execution: if its process died
// or lost its connection before the report was stored, if it did not return in time, and after an
// error. Make its effects idempotent, with the execution's ID as the key: the primary key of an
// insert, the idempotency key of a call. Executions with an order key (a setting of a trigger node)
// run one after another. Within a group, executions of one workflow with the same key run one at a
// time, in the order in which they were accepted, even after retries and when a member dies. An
// execution that keeps failing blocks its key until its last attempt. It also blocks other keys
// that have the same lane: a queue with ordered executions has 16 lanes, and a hash of the workflow
// and the key selects one of them. Executions without a key have no order. If a runner was frozen
// or cut off for most of AckWait, or NATS has delivered an execution again, the runner cancels the
// context of the handler with the cause ErrLost, because another member may begin the execution.
//
// An execution ends once, as succeeded, failed or canceled; later reports have no effect.
//
// # Errors and faults
//
//	the handler returns an error,       another attempt after Options.Backoff; after
//	panics, or exceeds its time         Options.Attempts the execution fails
//	it returns a Permanent error, or    the execution fails immediately
//	an output that is not valid JSON
//	it ignores the end of its context   the runner abandons it a second later and uses its
//	                                    slot for others: a handler that hangs blocks nothing,
//	                                    but leaks its goroutine
//	the process dies or is cut off      another member gets the execution after
//	                                    Options.AckWait. After Options.Attempts it fails
//	the report cannot be stored         the runner repeats it until AckWait has passed; then
//	                                    the execution runs again. While the storage of NATS
//	                                    is full, AckWait begins again with each refusal, until
//	                                    DrainTimeout after the end of the context
//	the message cannot be decoded       the runner terminates it
//
// Nothing that a handler returns or panics with ends the process. Neither does a panic in other
// code that the runner calls: the methods of an error or an output, and the functions, the log and
// the tracer in Options. The runner logs such a panic and continues. It has no control over
// os.Exit, goroutines that a handler starts, and fatal errors of the Go runtime, such as concurrent
// map writes.
//
// Failed executions and undecodable messages are dead letters, which operators can see. A failed
// execution can be requeued: that starts another execution with a different ID and with RerunOf
// set.
//
// # What runs again after a kill
//
// The runner acknowledges a message once the stream has confirmed the final report. If a process is
// killed, three kinds of executions run again: those in its handlers and those whose report has not
// been confirmed yet (at most Options.Concurrency of each), and those whose acknowledgment was in
// flight.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// Execution is one execution as passed to a handler.
type Execution struct {
	// Start holds the IDs, the headers and the query. Its Payload holds the bytes of the body as
	// sent.
	execution.Start
	// Input is the JSON document that is the workflow's input.
	Input []byte
	// Attempt is the number of this attempt, from 1.
	Attempt int
}

// Handler runs one execution and returns its output: a value that encoding/json can marshal, a
// json.RawMessage, or nil if there is no output. The execution fails if the output does not fit
// into a NATS message (max_payload, 1 MB by default). After an error or a panic the execution is
// retried, up to Options.Attempts, unless the error is Permanent. The context ends after
// Options.Timeout, and when the runner's DrainTimeout has passed.
type Handler func(ctx context.Context, e Execution) (output any, err error)

// Permanent wraps err to tell the runner not to retry the execution. It returns nil if err is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// RetryAfter wraps err and sets the delay before the next attempt, in place of the delay from
// Options.Backoff. Use it if a service that the handler calls has said when to call again. If the
// attempt was the last one, the execution still fails. RetryAfter returns nil if err is nil.
func RetryAfter(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, after}
}

type retryAfterError struct {
	error
	delay time.Duration // delay before the next attempt
}

func (e *retryAfterError) Unwrap() error { return e.error }

// MaxOutput returns the maximum size of an output in bytes, as JSON. It depends on the max_payload
// of the NATS servers.
func MaxOutput(nc *nats.Conn) int64 { return nc.MaxPayload() - reportOverheadBytes }

// Options are the options of a runner. Only Group is required.
type Options struct {
	// Queue is the queue whose executions the runner consumes. "" means the default queue.
	Queue string
	// Group is the name that the members of a group share, [A-Za-z0-9_-]{1,64}. It is part of the
	// durable consumer's name: a group that restarts continues where it stopped.
	Group string
	// OnlyNew makes a new group begin with executions that are accepted from now on, instead of
	// with the oldest one in the stream. It has no effect on an existing group.
	OnlyNew bool
	// Concurrency is the number of handlers that run at the same time. 0 means 10.
	Concurrency int
	// Attempts is the number of attempts after which an execution fails. 0 means 5.
	Attempts int
	// Backoff returns the delay after the given attempt, counted from 1. nil means 1 s, doubled
	// after each attempt, up to 1 min.
	Backoff func(attempt int) time.Duration
	// Timeout is the maximum duration of one attempt. 0 means 5 min.
	Timeout time.Duration
	// AckWait is the time after which the executions of a runner that died are redelivered to
	// another member. Handlers may run longer, because the runner sends heartbeats for them. 0
	// means 15 s. An existing group keeps its value.
	AckWait time.Duration
	// ReportRunningAfter is how long a handler works before the runner reports that its execution
	// is running. An execution that finishes sooner is reported only once, at its end; that report
	// includes the time at which it began. 0 means 1 s; a negative value means that the report is
	// sent immediately.
	ReportRunningAfter time.Duration
	// DrainTimeout is how long handlers may continue after the context of Run has ended. After
	// that, their contexts are canceled and other members get their executions, except those that
	// an operator has canceled, which end as canceled. 0 means 30 s.
	DrainTimeout time.Duration
	// OnReady is called once, when the group's consumer has been found or created: from then on the
	// runner consumes executions. It must return quickly. It may be nil.
	OnReady func()
	// Log receives one line for each attempt: at level info if the attempt succeeded or was handed
	// back, otherwise at level warn. While a report waits because the storage of NATS is full, Log
	// receives a line at level warn each AckWait. A panic in Backoff, OnReady, Observe or Traces is
	// logged at level error. If Log is nil, the runner uses slog.Default() but omits the lines at
	// level info; slog.New(slog.DiscardHandler) logs nothing.
	Log *slog.Logger
	// Observe is called at the end of each attempt, from several goroutines concurrently. It must
	// return quickly. runnermetrics.New returns a function that counts attempts for Prometheus. It
	// may be nil.
	Observe func(Attempt)
	// Traces creates a span for each attempt, in the trace of the request that started the
	// execution. The handler's context contains the span, so the handler's spans become its
	// children. nil means OpenTelemetry's global provider, which creates no spans until the program
	// sets one.
	Traces trace.TracerProvider
}

// Attempt describes one attempt and its result.
type Attempt struct {
	Execution *execution.Start // nil if the message could not be decoded
	Result    Result
	Number    int           // counts from 1; 0 if the message could not be decoded
	Took      time.Duration // from the arrival of the message to the end of the attempt
	Err       error         // nil if the attempt succeeded
}

// Result describes how an attempt ended.
type Result string

// The possible results of an attempt.
const (
	Succeeded   Result = "succeeded"
	Failed      Result = "failed"       // final: the execution has failed
	Canceled    Result = "canceled"     // final: an operator has canceled the execution
	TriedAgain  Result = "tried again"  // the attempt failed and will be retried
	HandedBack  Result = "handed back"  // the runner stops, or another member may have the message
	NotReported Result = "not reported" // the final report was not stored: the execution runs again
	Unreadable  Result = "unreadable"   // the message cannot be decoded
)

func (o Options) withDefaults() (Options, error) {
	if o.Queue == "" {
		o.Queue = execution.DefaultQueue
	}
	if !execution.ValidName(o.Queue) || !execution.ValidName(o.Group) {
		return o,
			fmt.Errorf("runner: queue %q and group %q must match %s", o.Queue, o.Group,
				execution.NamePattern)
	}
	setDefault(&o.Concurrency, 10)
	setDefault(&o.Attempts, 5)
	setDefault(&o.Timeout, 5*time.Minute)
	setDefault(&o.AckWait, stream.RunnerAckWait)
	setDefault(&o.ReportRunningAfter, time.Second)
	setDefault(&o.DrainTimeout, 30*time.Second)
	if o.Backoff == nil {
		o.Backoff = defaultBackoff
	}
	if o.Concurrency < 0 || o.Attempts < 0 || o.Timeout < 0 || o.AckWait < 0 || o.DrainTimeout < 0 {
		return o, errors.New("runner: Concurrency, Attempts, Timeout, AckWait and DrainTimeout " +
			"must not be negative; 0 is the default")
	}
	return o, nil
}

// defaultBackoff is the default of Options.Backoff: 1 s after the first attempt, doubled after each
// further one, up to 1 min.
func defaultBackoff(attempt int) time.Duration {
	return min(time.Second<<min(attempt-1, 10), time.Minute)
}

func setDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

func (o Options) group() stream.RunnerGroup {
	return stream.RunnerGroup{Queue: o.Queue, Group: o.Group}
}

// consumerName returns the name of the group's durable consumer.
func (o Options) consumerName() string { return o.group().ConsumerName() }

// runner is the state of one call to Run.
type runner struct {
	Options
	nc            *nats.Conn
	handler       Handler
	attemptTracer trace.Tracer
	inFlight      *inFlightMessages // the messages that have not been acknowledged yet
	// cancellations tracks the executions that were canceled and must not run.
	cancellations *cancellations
	// streamCreated is when the shared stream was created that has the group's consumer. It is nil
	// until it is known, and stays nil if the runner may not read the stream.
	streamCreated   atomic.Pointer[time.Time]
	consumerMissing chan struct{} // has a buffer for one value: see checkConsumer
	// exclusiveSlotsCtx is canceled as soon as the runner also consumes from lanes or from the
	// queue's own stream. The group's consumer in the shared stream must then share the concurrency
	// slots with them.
	exclusiveSlotsCtx context.Context    //nolint:containedctx // says whether slots are shared
	shareSlots        context.CancelFunc // cancels exclusiveSlotsCtx
	// queuePhase is the stream.QueueStreamPhase in the queue's record when it was last read. It
	// determines where the queue's new start messages are stored.
	queuePhase atomic.Int32
	// ownStreamSource is the consumer in the queue's own stream; nil while the runner does not use
	// it.
	ownStreamSource atomic.Pointer[pullSource]
	// lastExecutionFromOwnStream reports whether the last execution without an order key came from
	// the queue's own stream: see usesLongPoll.
	lastExecutionFromOwnStream atomic.Bool
	// hasReadQueueSettings reports whether the queue's record has ever been read, which proves that
	// the runner's NATS account has the permission to read it.
	hasReadQueueSettings atomic.Bool
	// readableProgressStreams holds the names of those streams of reports from which the runner has
	// already read the last report on an execution. This proves that the runner's NATS account has
	// the permission to do so. An account may have the permission for only some of the streams.
	readableProgressStreams sync.Map
	// freeSlots holds a token for each free concurrency slot.
	freeSlots chan struct{}
	// unconfirmedReports limits the number of final reports that the stream has not confirmed yet,
	// because their executions run again if this process dies. It holds one value per such report.
	unconfirmedReports chan struct{}
	// unacknowledgedMessages counts the messages whose attempts have begun and that the runner has
	// not yet acknowledged, handed back or given up.
	unacknowledgedMessages sync.WaitGroup
	// handlersCtx is the parent context of all handlers. It ends when they may no longer continue.
	handlersCtx context.Context //nolint:containedctx // it is not the context of one call
}

// ErrConnectionClosed means that the connection to NATS was closed for good, so Run cannot
// continue.
var ErrConnectionClosed = errors.New("runner: the connection to NATS is closed for good")

// Run runs executions until ctx ends, then lets handlers finish, and returns nil. It survives lost
// connections. At the start it waits up to 30 s for the stream, which the executor creates.
//
// If the connection is closed for good (by Close, by the limit on reconnects, or by a server error
// that nats.go does not know), nothing can be reported anymore: Run cancels the contexts of the
// handlers and returns ErrConnectionClosed, joined with the connection's last error. The program
// should then exit and be restarted; other members get the executions meanwhile.
func Run(ctx context.Context, nc *nats.Conn, options Options, handler Handler) error {
	options, err := options.withDefaults()
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	consumer, err := ensureConsumer(ctx, js, options)
	if ctx.Err() != nil {
		return nil // the caller canceled ctx while Run was waiting, which is not a failure
	}
	if err != nil {
		return err
	}
	options.AckWait = consumer.CachedInfo().Config.AckWait
	working, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	r := &runner{
		Options:            options,
		nc:                 nc,
		handler:            handler,
		handlersCtx:        working,
		cancellations:      newCancellations(nc),
		consumerMissing:    make(chan struct{}, 1),
		freeSlots:          make(chan struct{}, options.Concurrency),
		unconfirmedReports: make(chan struct{}, options.Concurrency),
	}
	r.exclusiveSlotsCtx, r.shareSlots = context.WithCancel(working)
	r.attemptTracer = r.tracer()
	r.notifyReady()
	for range options.Concurrency {
		r.freeSlot()
	}
	//nolint:contextcheck // a handler has its own, which outlives ctx
	if r.inFlight, err = newInFlightMessages(r, js); err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	defer r.inFlight.close()
	taking, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(taking, func() { time.AfterFunc(r.DrainTimeout, giveUp) })()
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-closed:
			giveUp()
			stop()
		case <-taking.Done():
		}
	}()
	present := make(chan struct{})
	go func() { r.announcePresence(taking); close(present) }()
	go r.watchCancellations(working)
	go r.recreateLostConsumers(taking, js, consumer.CachedInfo())
	var following sync.WaitGroup
	following.Go(func() { r.consumeLanesAndOwnStream(taking, js, consumer.CachedInfo()) })
	if err = r.consumeSource(taking, &pullSource{consumer: consumer}); err != nil {
		stop()
	}
	following.Wait()
	r.unacknowledgedMessages.Wait()
	stop()
	<-present
	<-watching
	if nc.IsClosed() {
		return errors.Join(ErrConnectionClosed, nc.LastError())
	}
	// Flush, so that the last acknowledgments reach the server.
	return errors.Join(err, nc.FlushTimeout(5*time.Second))
}

// notifyReady calls OnReady, if it is set.
func (r *runner) notifyReady() {
	if r.OnReady == nil {
		return
	}
	defer r.recoverOptionPanic("OnReady")
	r.OnReady()
}

// startTimeout is how long Run waits for the stream and the consumer that the executor creates.
const startTimeout = 30 * time.Second

// ensureConsumer returns the group's consumer, and creates it if it does not exist. A runner in a
// separate NATS account may not create the consumer, so ensureConsumer waits there until the
// executor has created it.
func ensureConsumer(
	ctx context.Context, js jetstream.JetStream, o Options,
) (jetstream.Consumer, error) {
	config := o.group().ConsumerConfig(o.AckWait)
	if o.OnlyNew {
		config.DeliverPolicy = jetstream.DeliverNewPolicy
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var consumer jetstream.Consumer
	var refused error // an error that waiting does not resolve
	err := retry.Do(ctx, func(ctx context.Context) (err error) {
		consumer, err = stream.EnsureRunnerConsumer(ctx, js, o.group(), config)
		if errors.Is(err, stream.ErrConsumerConflict) {
			refused, err = err, nil
		}
		return err
	})
	if refused != nil {
		return nil, fmt.Errorf("runner: %w", refused)
	}
	if err != nil {
		return nil,
			fmt.Errorf("runner: %w; the executor creates the stream, and, with "+
				"--runner-groups=%s/%s, the consumer of a runner that may not create it", err,
				o.Queue, o.Group)
	}
	return consumer, nil
}
