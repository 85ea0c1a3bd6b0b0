// Package runner is the kit for programs that run workflows. It takes executions from
// the stream, calls a handler for each, and reports its result.
//
// # What a runner can rely on
//
// Every execution that was accepted reaches every group of its queue at least once; the
// members of a group share the work. A handler can run twice for one execution: when its
// process died or lost its connection before the report was stored, when it did not return in
// time, and after an error. Make its effects idempotent, with the execution's ID as the key: the
// primary key of an insert, the idempotency key of a call.
//
// Executions with an order key (a setting of a trigger node) begin one after the other: executions
// of one workflow and one key are in the group one at a time, in the order in which they were
// accepted, also after retries, and when a member dies. An execution that keeps failing holds up
// its key until its last attempt. Executions without a key have no order. A runner that was frozen
// or cut off for longer than AckWait ends the context of a handler of such an execution with the
// cause ErrLost, because another member may have begun it.
//
// An execution ends once, as succeeded or failed; later reports change nothing.
//
// # Errors and faults
//
//	the handler returns an error,       another attempt after Options.Backoff; after
//	panics, or exceeds its time         Options.Attempts the execution fails
//	it returns a Permanent error, or    the execution fails at once
//	an output that is not valid JSON
//	it ignores the end of its context   the runner abandons it a second later and uses its
//	                                    place for others: a handler that hangs blocks nothing,
//	                                    but leaks its goroutine
//	the process dies, or is cut off     another member gets the execution after
//	                                    Options.AckWait. After Options.Attempts it fails
//	the report cannot be stored         the runner repeats it for as long as AckWait; then
//	                                    the execution runs again
//	the message cannot be decoded       the runner terminates it
//
// Nothing that a handler returns or panics with ends the process, and neither does a panic in the
// code that the runner calls beside it: an error's or an output's methods, and the functions, the
// log and the tracer in Options. The runner logs that panic, and goes on. Out of its reach are
// os.Exit, goroutines that a handler starts, and what the Go runtime ends a process for, such as
// concurrent writes to a map.
//
// Failed executions and undecodable messages are dead letters, which operators see. A failed
// execution can be requeued: that starts another execution, with another ID and RerunOf set.
//
// # What runs again after a kill
//
// The runner acknowledges a message when the stream has confirmed the final report. If a process is
// killed, these executions run again: those in its handlers, those whose report was not confirmed
// yet (at most Options.Concurrency of each), and those whose acknowledgement was in flight.
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

// Execution is one execution, as its handler receives it.
type Execution struct {
	// Start holds the IDs, the headers and the query. Its Payload holds the bytes of the body as
	// they were sent.
	execution.Start
	// Input is the JSON document that is the workflow's input.
	Input []byte
	// Attempt is the number of the attempt, from 1.
	Attempt int
}

// Handler runs one execution. It returns the output: a value that encoding/json can marshal, a
// json.RawMessage, or nil for none. The execution fails if the output does not fit into a NATS
// message (max_payload, 1 MB by default). After an error or a panic there is another attempt, up
// to Options.Attempts, unless the error is Permanent. The context ends at Options.Timeout, and
// when the runner's DrainTimeout is over.
type Handler func(ctx context.Context, e Execution) (output any, err error)

// Permanent marks an error after which there is no further attempt. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// RetryAfter marks an error after which the next attempt begins after the given time, instead of
// after Options.Backoff. It is useful if a target has named the time when it can be called again.
// If the attempt was the last one, the execution fails all the same. RetryAfter returns nil for
// nil.
func RetryAfter(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, after}
}

type retryAfterError struct {
	error
	after time.Duration // the pause before the next attempt
}

func (e *retryAfterError) Unwrap() error { return e.error }

// MaxOutput returns the maximum size of an output in bytes, as JSON. It depends on max_payload of
// the NATS servers.
func MaxOutput(nc *nats.Conn) int64 { return nc.MaxPayload() - reportOverhead }

// Options are the options of a runner. Only Group is required.
type Options struct {
	// Queue is the queue whose executions the runner takes. "" means the default queue.
	Queue string
	// Group is the name that the members of a group share, [A-Za-z0-9_-]{1,64}. It is part
	// of the durable consumer's name: a group that restarts continues where it stopped.
	Group string
	// OnlyNew makes a new group start with executions that are accepted from now on, instead of
	// with the oldest one in the stream. It has no effect on an existing group.
	OnlyNew bool
	// Concurrency is the number of handlers that run at the same time. 0 means 10.
	Concurrency int
	// Attempts is the number of attempts before an execution fails. 0 means 5.
	Attempts int
	// Backoff returns the pause after the given attempt. nil means 1 s, doubled each time, at most
	// 1 min.
	Backoff func(attempt int) time.Duration
	// Timeout is the maximum duration of one attempt. 0 means 5 min.
	Timeout time.Duration
	// AckWait is the time after which another member gets the work of a runner that died.
	// Handlers may work longer: the runner sends heartbeats for them. 0 means 15 s.
	// An existing group keeps its value.
	AckWait time.Duration
	// ReportRunningAfter is the time for which a handler works before the runner reports that its
	// execution is running. A quicker execution is reported once, when it has ended, with the time
	// at which it began. 0 means 1 s; a negative value means at once.
	ReportRunningAfter time.Duration
	// DrainTimeout is the time for which handlers may continue after the context of Run has ended.
	// Then their contexts end, and other members get their executions. 0 means 30 s.
	DrainTimeout time.Duration
	// OnReady is called once, when the group's consumer has answered: from then on the runner takes
	// executions. It must be quick. nil means that it is not called.
	OnReady func()
	// Log gets one line for each attempt: at info if it succeeded or was handed back, otherwise at
	// warn. A panic in one of these options is logged at error. nil means slog.Default(), without
	// the lines at info; slog.New(slog.DiscardHandler) logs nothing.
	Log *slog.Logger
	// Observe is called at the end of each attempt, by several goroutines at once. It must be
	// quick. runnermetrics.New returns a function that counts attempts for Prometheus. nil means
	// that it is not called.
	Observe func(Attempt)
	// Traces makes a span for each attempt, in the trace of the request that started the execution.
	// The handler's context contains the span, so the handler's own spans are below it. nil means
	// OpenTelemetry's global provider, which makes no spans until the program sets one.
	Traces trace.TracerProvider
}

// Attempt describes one attempt and its result.
type Attempt struct {
	Execution *execution.Start // nil means that the message could not be read
	Result    Result
	Number    int           // counts from 1; 0 means that the message could not be read
	Took      time.Duration // from the arrival of the message to the end of the attempt
	Err       error         // nil means that it succeeded
}

// Result is the result of an attempt.
type Result string

// These are the possible results of an attempt.
const (
	Succeeded   Result = "succeeded"
	Failed      Result = "failed"       // final: the execution has failed
	Canceled    Result = "canceled"     // final: an operator has canceled the execution
	TriedAgain  Result = "tried again"  // the attempt failed, and another one follows
	HandedBack  Result = "handed back"  // the runner stopped: another member takes it
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
	orElse(&o.Concurrency, 10)
	orElse(&o.Attempts, 5)
	orElse(&o.Timeout, 5*time.Minute)
	orElse(&o.AckWait, stream.RunnerAckWait)
	orElse(&o.ReportRunningAfter, time.Second)
	orElse(&o.DrainTimeout, 30*time.Second)
	if o.Backoff == nil {
		o.Backoff = backoff
	}
	return o, nil
}

// backoff is the default of Options.Backoff.
func backoff(attempt int) time.Duration { return min(time.Second<<min(attempt-1, 10), time.Minute) }

func orElse[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

func (o Options) group() stream.RunnerGroup {
	return stream.RunnerGroup{Queue: o.Queue, Group: o.Group}
}

// consumer returns the name of the group's durable consumer.
func (o Options) consumer() string { return o.group().Consumer() }

// runner is the state of one call of Run.
type runner struct {
	Options
	nc       *nats.Conn
	handler  Handler
	spans    trace.Tracer
	underway *underway // the messages that are not acknowledged yet
	// cancellations knows what is not to run.
	cancellations *cancellations
	// sharing ends, by a call of share, when the group's consumer in the shared stream must share
	// the places for handlers: with lanes, or with the consumer in the queue's own stream.
	sharing context.Context    //nolint:containedctx // it says since when places are shared
	share   context.CancelFunc // ends sharing
	// phase says where new starts of the queue are stored, by the last reading of the queue's
	// record. It holds a stream.Phase.
	phase atomic.Int32
	// own is the consumer in the queue's own stream; nil while the runner takes nothing from there.
	own atomic.Pointer[source]
	// ownActive reports whether the last execution came from the queue's own stream.
	ownActive atomic.Bool
	// ownAccount reports whether the runner's account may not read the queue's record. Only follow
	// uses it.
	ownAccount bool
	// places holds a token for each place that is free.
	places chan struct{}
	// unconfirmed bounds the number of reports without a confirmation: their executions would run
	// again if this process died.
	unconfirmed chan struct{}
	// unacknowledged counts the messages that were begun and not yet acknowledged or handed back.
	unacknowledged sync.WaitGroup
	// working is the context of all handlers. It ends when they may no longer continue.
	working context.Context //nolint:containedctx // the context of all handlers, not of one call
}

// ErrConnectionClosed means that the connection to NATS is closed for good: Run cannot continue
// with it.
var ErrConnectionClosed = errors.New("runner: the connection to NATS is closed for good")

// Run runs executions until the context ends, then lets handlers finish, and returns nil. It
// continues after lost connections. At the start it waits up to 30 s for the stream, which the
// executor creates.
//
// When the connection is closed for good (by Close, by a limit of its reconnects, or by an error of
// the server that nats.go does not know), nothing can be reported any more: Run ends the contexts
// of the handlers and returns ErrConnectionClosed with the connection's last error. The program
// should then exit and be restarted: other members get the executions meanwhile.
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
		return nil // the caller has ended the context while Run was waiting: this is not a failure
	}
	if err != nil {
		return err
	}
	options.AckWait = consumer.CachedInfo().Config.AckWait
	working, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	r := &runner{
		Options:       options,
		nc:            nc,
		handler:       handler,
		working:       working,
		cancellations: newCancellations(nc),
		places:        make(chan struct{}, options.Concurrency),
		unconfirmed:   make(chan struct{}, options.Concurrency),
	}
	r.sharing, r.share = context.WithCancel(working)
	r.spans = r.tracer()
	r.ready()
	for range options.Concurrency {
		r.leave()
	}
	//nolint:contextcheck // a handler has its own, which outlives ctx
	if r.underway, err = newUnderway(r); err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	defer r.underway.close()
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
	go r.replaceConsumer(taking, js, consumer.CachedInfo())
	var following sync.WaitGroup
	following.Go(func() { r.follow(taking, js, consumer.CachedInfo()) })
	if err = r.take(taking, &source{consumer: consumer}); err != nil {
		stop()
	}
	following.Wait()
	r.unacknowledged.Wait()
	stop()
	<-present
	<-watching
	if nc.IsClosed() {
		return errors.Join(ErrConnectionClosed, nc.LastError())
	}
	// The last acknowledgements must reach the server.
	return errors.Join(err, nc.FlushTimeout(5*time.Second))
}

// ready calls OnReady.
func (r *runner) ready() {
	if r.OnReady == nil {
		return
	}
	defer r.recovered("OnReady")
	r.OnReady()
}

// waitAtStart is the maximum time that Run waits for the stream and the consumer that the executor
// creates.
const waitAtStart = 30 * time.Second

// ensureConsumer creates the group's consumer. A runner with an account of its own may not create
// it, and waits until the executor has.
func ensureConsumer(
	ctx context.Context, js jetstream.JetStream, o Options,
) (jetstream.Consumer, error) {
	config := o.group().ConsumerConfig(o.AckWait)
	if o.OnlyNew {
		config.DeliverPolicy = jetstream.DeliverNewPolicy
	}
	ctx, cancel := context.WithTimeout(ctx, waitAtStart)
	defer cancel()
	var consumer jetstream.Consumer
	var refused error // waiting would not help
	err := retry.Do(ctx, func(ctx context.Context) (err error) {
		consumer, err = stream.EnsureRunnerConsumer(ctx, js, o.group(), config)
		if errors.Is(err, stream.ErrOtherConsumer) {
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
