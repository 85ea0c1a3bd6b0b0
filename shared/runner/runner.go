// Package runner is the kit for programs that run workflows: it takes executions from
// the stream, calls a handler for each, and reports what became of it.
//
// # What a runner can rely on
//
// Every execution that was accepted reaches every group of its queue at least once; the
// members of a group share the work. A handler can run twice for one execution: when its
// process died or was cut off before it had reported, when it did not return in time, and
// after an error, which is tried again. To be safe, make what it does depend on the
// execution's ID: an insert with the ID as its key, an idempotency key for a call.
// There is no order, not even within a workflow.
//
// An execution ends as succeeded or failed, once; what is reported later changes nothing.
//
// # What becomes of what goes wrong
//
//	the handler returns an error,       tried again after Options.Backoff; the last of
//	panics, or is out of time           Options.Attempts fails the execution
//	it returns a Permanent error, or    the execution fails at once
//	an output that is no JSON
//	it does not heed its context        it is left alone a second later, and its place given
//	                                    to others: a handler that hangs blocks nothing, but
//	                                    leaks what it holds
//	the process dies, or is cut off     another member gets it after Options.AckWait. One that
//	                                    kills Options.Attempts of them fails
//	the report cannot be stored         it is sent again for as long as AckWait; then the
//	                                    execution runs again
//	the message cannot be decoded       it is terminated
//
// What has failed, and what cannot be decoded, is on the operators' list of dead letters. A
// failed one can be requeued: that is another execution, with another ID and RerunOf set.
//
// # What a kill repeats
//
// A message is acknowledged when the stream has confirmed the final report. If a process is
// killed, what its handlers worked on runs again, and what waited for the confirmation: at
// most Options.Concurrency of each, and what was on its way to the server.
package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// Execution is what a handler gets.
type Execution struct {
	// Start holds the IDs, the headers, the query, the delivery ID, and in its Payload the
	// body's bytes as sent.
	execution.Start
	// Input is the JSON document that the workflow works on.
	Input []byte
	// Attempt counts from 1.
	Attempt int
}

// Handler runs one execution. What it returns is the output, and must be a value that
// encoding/json can marshal, or a json.RawMessage; nil is none. One that is longer than the
// NATS server's largest message, 1 MB by default, makes the execution fail. An error, or a
// panic, is tried again until Options.Attempts, unless it is Permanent. The context ends at
// Options.Timeout, and when the runner stops and can wait no longer.
type Handler func(ctx context.Context, e Execution) (output any, err error)

// Permanent makes an error that is not tried again.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// Options say how a runner works. Only Group is required.
type Options struct {
	// Queue is the queue whose executions are run. "" means the default queue.
	Queue string
	// Group is the name that the members of a group share, [A-Za-z0-9_-]{1,64}. It is also
	// that of the durable consumer: a group that comes back goes on where it was.
	Group string
	// OnlyNew lets a new group begin with what is accepted from now on, not with all that
	// the stream still holds. It makes no difference to a group that exists.
	OnlyNew bool
	// Concurrency is how many handlers run at once. 0 means 10.
	Concurrency int
	// Attempts is how often an execution is tried before it is failed. 0 means 5.
	Attempts int
	// Backoff is how long to wait after the given attempt failed. nil means 1 s, doubled
	// each time, at most 1 min.
	Backoff func(attempt int) time.Duration
	// Timeout is how long one attempt may take. 0 means 5 min.
	Timeout time.Duration
	// AckWait is how long it takes until the work of a runner that died is given to another.
	// A handler that works longer is no problem: the runner says that it is alive. 0 means 15 s.
	// A group that exists keeps what it has.
	AckWait time.Duration
	// DrainTimeout is how long handlers may finish after the context of Run has ended; then
	// their own contexts end, and what they worked on is handed back. 0 means 30 s.
	DrainTimeout time.Duration
	// Log gets one line for each attempt. nil means that nobody hears it.
	Log logrus.FieldLogger
	// Observe is called at the end of each attempt, by several goroutines at once; it must
	// be quick. runnermetrics.New makes one that counts for Prometheus. nil: nobody is told.
	Observe func(Attempt)
	// Traces makes a span for each attempt, in the trace of the request that started the
	// execution. The handler's context has it, so a handler's own spans are below it. nil means
	// OpenTelemetry's global provider, which makes none until the program sets one.
	Traces trace.TracerProvider
}

// Attempt is what became of one attempt.
type Attempt struct {
	Execution *execution.Start // nil: the message could not be read
	Result    Result
	Number    int // from 1; 0: the message could not be read
	Took      time.Duration
	Err       error // nil: it succeeded
}

// Result is one of these.
type Result string

// What can become of an attempt.
const (
	Succeeded   Result = "succeeded"
	Failed      Result = "failed"       // for good: the execution is failed
	TriedAgain  Result = "tried again"  // it failed, and there will be another one
	HandedBack  Result = "handed back"  // the runner stopped: another member takes it
	NotReported Result = "not reported" // the stream did not take the final report: it comes again
	Unreadable  Result = "unreadable"   // the message is none that a runner knows
)

func (o Options) withDefaults() (Options, error) {
	if o.Queue == "" {
		o.Queue = execution.DefaultQueue
	}
	if !execution.ValidName(o.Queue) || !execution.ValidName(o.Group) {
		return o, fmt.Errorf("runner: queue %q and group %q must match %s", o.Queue, o.Group, execution.NamePattern)
	}
	orElse(&o.Concurrency, 10)
	orElse(&o.Attempts, 5)
	orElse(&o.Timeout, 5*time.Minute)
	orElse(&o.AckWait, stream.RunnerAckWait)
	orElse(&o.DrainTimeout, 30*time.Second)
	if o.Backoff == nil {
		o.Backoff = func(attempt int) time.Duration { return min(time.Second<<min(attempt-1, 10), time.Minute) }
	}
	return o, nil
}

func orElse[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

func (o Options) group() stream.RunnerGroup {
	return stream.RunnerGroup{Queue: o.Queue, Group: o.Group}
}

// consumer is the name of the group's durable consumer.
func (o Options) consumer() string { return o.group().Consumer() }

// runner is a Run under way.
type runner struct {
	Options
	nc       *nats.Conn
	handler  Handler
	underway *underway
	// unconfirmed bounds the reports that the stream has not confirmed yet, and so what
	// would run again if this process died, although its handler has returned.
	unconfirmed chan struct{}
	// unacknowledged are the messages that were begun.
	unacknowledged sync.WaitGroup
	// working ends when handlers may not go on.
	working context.Context //nolint:containedctx // it is that of all handlers, not of a call
}

// Run runs executions until the context ends, then lets handlers finish, and returns nil.
// It goes on through lost connections. At the start it waits 30 s for the stream, which the
// executor makes.
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
		return nil // who is asked to end while still waiting has not failed
	}
	if err != nil {
		return err
	}
	options.AckWait = consumer.CachedInfo().Config.AckWait
	working, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	r := &runner{
		Options: options, nc: nc, handler: handler, working: working,
		unconfirmed: make(chan struct{}, options.Concurrency),
	}
	if r.underway, err = newUnderway(nc, options.AckWait); err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	defer r.underway.close()
	taking, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(taking, func() { time.AfterFunc(r.DrainTimeout, giveUp) })()
	err = r.take(taking, stop, consumer)
	r.unacknowledged.Wait()
	// What was acknowledged last must reach the server.
	return errors.Join(err, nc.FlushTimeout(5*time.Second))
}

// waitAtStart is how long Run waits for what the executor makes.
const waitAtStart = 30 * time.Second

// ensureConsumer makes the group's consumer if it may, or waits until the executor has. Where
// runners have an account of their own, only the executor may.
func ensureConsumer(ctx context.Context, js jetstream.JetStream, o Options) (jetstream.Consumer, error) {
	config := o.group().ConsumerConfig(o.AckWait)
	if o.OnlyNew {
		config.DeliverPolicy = jetstream.DeliverNewPolicy
	}
	ctx, cancel := context.WithTimeout(ctx, waitAtStart)
	defer cancel()
	var consumer jetstream.Consumer
	err := stream.Retry(ctx, func(ctx context.Context) (err error) {
		consumer, err = stream.EnsureConsumer(ctx, js, config)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("runner: %w; the executor makes the stream, and for a runner that may not itself, the consumer: --runner-groups=%s/%s", err, o.Queue, o.Group)
	}
	return consumer, nil
}

// take hands executions to handlers until the context ends, and returns when they have
// returned. It calls stop when it fails: handlers may take as long to finish as always.
func (r *runner) take(ctx context.Context, stop func(), consumer jetstream.Consumer) error {
	// No more is fetched than there are places: the rest is for the other members.
	messages, err := consumer.Messages(jetstream.PullMaxMessages(r.Concurrency), jetstream.PullHeartbeat(5*time.Second))
	if err != nil {
		return fmt.Errorf("runner: consumer %s: %w", r.consumer(), err)
	}
	defer context.AfterFunc(ctx, messages.Drain)()
	defer messages.Stop()
	// As many take from the channel as there are places; they keep their stacks from one
	// execution to the next.
	var places sync.WaitGroup
	taken := make(chan jetstream.Msg)
	free := make(chan struct{}, r.Concurrency)
	for range r.Concurrency {
		places.Go(func() { //nolint:contextcheck // what a handler has done is reported after ctx has ended, too
			for msg := range taken {
				r.run(msg, r.unacknowledged.Done)
				<-free
			}
		})
	}
	defer places.Wait()
	defer close(taken)
	for {
		free <- struct{}{}
		msg, err := stream.Next(messages)
		switch {
		case errors.Is(err, jetstream.ErrMsgIteratorClosed):
			return nil
		case err != nil:
			stop()
			return fmt.Errorf("runner: consumer %s: %w", r.consumer(), err)
		case ctx.Err() != nil:
			_ = msg.Nak() // fetched, not begun: for another member, at once
			<-free
		default:
			r.unacknowledged.Add(1)
			taken <- msg
		}
	}
}
