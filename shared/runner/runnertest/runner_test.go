package runnertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// start calls runner.Run in the background, with the group "group" unless options name another one.
// stop ends the context of Run and waits until Run has returned. It is also called when the test
// ends.
func start(
	t *testing.T, nc *nats.Conn, options runner.Options, handler runner.Handler,
) (stop func()) {
	t.Helper()
	if options.Group == "" {
		options.Group = "group"
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx, nc, options, handler) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the runner ended with %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func soon(int) time.Duration { return time.Millisecond }

func TestAHandlerGetsWhatWasSent(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	got := make(chan runner.Execution, 1)
	start(t, nc, runner.Options{Queue: "gpu"},
		func(_ context.Context, e runner.Execution) (any, error) {
			got <- e
			return nil, nil
		})
	ingress.Start(t, runnertest.Post{Body: "of another queue"})
	id := ingress.Start(t, runnertest.Post{
		Queue: "gpu", WorkflowID: "wf", ContentType: "text/plain", Body: "a\xff", DeliveryID: "d",
		Headers: execution.Values{"X-GitHub-Event": {"1"}}, Query: execution.Values{"q": {"2"}},
	})
	e := <-got
	if e.ID != id || e.WorkflowID != "wf" || string(e.Payload.Body) != "a\xff" ||
		string(e.Input) != `{"body":"Yf8=","bodyEncoding":"base64"}` ||
		e.Headers["X-Github-Event"][0] != "1" || e.Headers.Get("x-github-EVENT") != "1" ||
		e.Headers.Get("X-Other") != "" || e.Query.Get("q") != "2" || e.DeliveryID != "d" ||
		e.Attempt != 1 {
		t.Errorf("%+v", e)
	}
	states := ingress.States(t, id)
	// A quick execution is reported only once, at its end.
	if len(states) != 1 || states[0].Status != execution.Succeeded || states[0].Output != nil ||
		states[0].StartedAt.IsZero() || states[0].StartedAt.After(states[0].At) {
		t.Errorf("%+v", states)
	}
}

// A handler that runs for a while is reported as running, with the time at which it began. With a
// negative ReportRunningAfter, the report is sent immediately.
func TestRunningIsReportedOfWhatTakesAWhile(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	for group, after := range map[string]time.Duration{
		"later":   20 * time.Millisecond,
		"at-once": -1,
	} {
		t.Run(group, func(t *testing.T) {
			reported, err := nc.SubscribeSync("executions.progress." + group + ".>")
			if err != nil {
				t.Fatal(err)
			}
			start(t, nc, runner.Options{Queue: group, ReportRunningAfter: after}, func(
				context.Context, runner.Execution,
			) (any, error) {
				_, err := reported.NextMsg(10 * time.Second) // wait until it is reported as running
				return nil, err
			})
			id := ingress.Start(t, runnertest.Post{Queue: group})
			states := ingress.States(t, id)
			if len(states) != 2 || states[0].Status != execution.Running ||
				states[1].Status != execution.Succeeded ||
				!states[1].StartedAt.Equal(states[0].At) {
				t.Errorf("%+v", states)
			}
		})
	}
}

// If the connection is closed for good, the contexts of the handlers are canceled and the runner
// ends, because results can no longer be reported.
func TestAConnectionThatIsClosedEndsTheRunner(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	begun, canceled := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- runner.Run(context.Background(), nc, runner.Options{
			Group:        "group",
			DrainTimeout: time.Hour,
		}, func(ctx context.Context, _ runner.Execution) (any, error) {
			close(begun)
			<-ctx.Done()
			close(canceled)
			return nil, nil
		})
	}()
	ingress.Start(t, runnertest.Post{})
	<-begun
	if err := nc.Publish(strings.Repeat("x", 5000), nil); err != nil {
		// The subject is longer than the server's max_control_line, which makes nats.go close the
		// connection for good.
		t.Fatal(err)
	}
	<-canceled
	if err := <-ended; !errors.Is(err, runner.ErrConnectionClosed) ||
		!errors.Is(err, nc.LastError()) {
		t.Errorf("the runner ended with %v", err)
	}
}

// Handlers return errors, panic, hang, or return outputs that cannot be reported. Each of these
// executions ends after the documented number of attempts with the right reason, and none blocks
// the others.
func TestWhatGoesWrong(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	var attempts sync.Map
	hung := make(chan struct{})
	defer close(hung)
	start(t, nc, runner.Options{Attempts: 3, Backoff: soon, Timeout: time.Second, Concurrency: 2},
		func(ctx context.Context, e runner.Execution) (any, error) {
			n, _ := attempts.LoadOrStore(e.WorkflowID, new(atomic.Int32))
			counter, _ := n.(*atomic.Int32)
			counter.Add(1)
			switch e.WorkflowID {
			case "fails":
				return nil, errors.New("no\xff")
			case "permanent":
				return nil, runner.Permanent(errors.New("never"))
			case "panics":
				panic("oh")
			case "hangs":
				<-hung
			case "slow":
				<-ctx.Done()
				return nil, ctx.Err()
			case "no-json":
				return func() {}, nil
			case "no-utf8":
				return json.RawMessage("\"\xff\""), nil
			case "huge":
				return strings.Repeat("x", int(nc.MaxPayload())), nil
			case "chatty":
				return nil, runner.Permanent(errors.New(strings.Repeat("x", 5000)))
			case "second":
				if e.Attempt == 1 {
					return nil, errors.New("once")
				}
			}
			return e.Attempt, nil
		})
	if err := nc.Publish("executions.start.default.poison.node", []byte("\xff")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		workflow, reason string
		attempts         int32
		status           execution.Status
	}{
		{"fails", "no\uFFFD", 3, execution.Failed},
		{"permanent", "never", 1, execution.Failed},
		{"panics", "panic: oh", 3, execution.Failed},
		{"hangs", "did not return within 1s", 3, execution.Failed},
		{"slow", "deadline exceeded", 3, execution.Failed},
		{"no-json", "not valid JSON", 1, execution.Failed},
		{"no-utf8", "not valid JSON: a string is not valid UTF-8", 1, execution.Failed},
		{
			"huge", "the output has 1048578 bytes, but a report takes at most 1032192", 1,
			execution.Failed,
		},
		{"chatty", "xx …", 1, execution.Failed},
		{"second", "", 2, execution.Succeeded},
		{"fine", "", 1, execution.Succeeded},
	} {
		id := ingress.Start(t, runnertest.Post{WorkflowID: c.workflow})
		final := ingress.Await(t, id)
		n, _ := attempts.Load(c.workflow)
		counter, _ := n.(*atomic.Int32)
		if final.Status != c.status || !strings.Contains(final.Error, c.reason) ||
			counter.Load() != c.attempts {
			t.Errorf("%s: %+v after %d attempts", c.workflow, final, counter.Load())
		}
	}
}

// If a handler returns after it was abandoned, its result is ignored: its execution has ended, and
// its concurrency slot belongs to another execution.
func TestAnAbandonedHandlerReturns(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	release, observed := make(chan struct{}), make(chan runner.Attempt, 10)
	var running atomic.Int32
	stop := start(t, nc, runner.Options{
		Attempts:    1,
		Timeout:     10 * time.Millisecond,
		Concurrency: 1,
		Observe: func(a runner.Attempt) {
			observed <- a
		},
	}, func(_ context.Context, e runner.Execution) (any, error) {
		if e.WorkflowID == "hangs" {
			<-release
			return "too late", nil
		}
		defer running.Add(-1)
		return running.Add(1), nil
	})
	id := ingress.Start(t, runnertest.Post{WorkflowID: "hangs"})
	if got := ingress.Await(t, id); got.Status != execution.Failed ||
		!strings.Contains(got.Error, "did not return within 10ms") {
		t.Errorf("%+v", got)
	}
	close(release)
	var ids []string
	for range 9 {
		ids = append(ids, ingress.Start(t, runnertest.Post{}))
	}
	for _, id := range ids {
		if got := ingress.Await(t, id); string(got.Output) != "1" {
			t.Errorf("not alone: %+v", got)
		}
	}
	if states := ingress.States(t, id); len(states) != 1 {
		t.Errorf("%+v", states)
	}
	stop()
	if len(observed) != 10 {
		t.Errorf("%d attempts were observed", len(observed))
	}
}

func TestGroupsAndMembers(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	const executions = 200
	var (
		mu   sync.Mutex
		runs = map[string][]string{} // execution IDs, by group
		all  = make(chan struct{}, 2*executions)
	)
	for _, member := range []string{"a", "a", "b"} {
		start(t, server.Connect(t), runner.Options{Group: member}, func(
			_ context.Context, e runner.Execution,
		) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			runs[member] = append(runs[member], e.ID)
			all <- struct{}{}
			return nil, nil
		})
	}
	for range executions {
		ingress.Start(t, runnertest.Post{})
	}
	for range 2 * executions {
		<-all
	}
	mu.Lock()
	defer mu.Unlock()
	for group, ids := range runs {
		slices.Sort(ids)
		if len(slices.Compact(ids)) != executions {
			t.Errorf("group %s ran %d different executions", group, len(slices.Compact(ids)))
		}
	}
}

// A runner that stops lets its handlers finish. Executions that it cannot finish are redelivered to
// another member.
func TestStopping(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	began, finish := make(chan string, 10), make(chan struct{})
	// AckWait is so long that only messages that were handed back are redelivered. The consumer
	// keeps this setting for all runners of the group.
	options := runner.Options{DrainTimeout: time.Hour, AckWait: time.Hour}
	stop := start(t, server.Connect(t), options, func(
		_ context.Context, e runner.Execution,
	) (any, error) {
		began <- e.ID
		<-finish
		return "finished", nil
	})
	id := ingress.Start(t, runnertest.Post{})
	<-began
	go func() { close(finish) }()
	stop()
	if got := ingress.Await(t, id); string(got.Output) != `"finished"` {
		t.Errorf("%+v", got)
	}

	stop = start(t, server.Connect(t), runner.Options{
		DrainTimeout: time.Millisecond,
	}, func(ctx context.Context, e runner.Execution) (any, error) {
		began <- e.ID
		<-ctx.Done()
		return nil, ctx.Err()
	})
	id = ingress.Start(t, runnertest.Post{})
	<-began
	stop()
	start(t, server.Connect(t), runner.Options{},
		func(context.Context, runner.Execution) (any, error) {
			return "by another", nil
		})
	if got := ingress.Await(t, id); string(got.Output) != `"by another"` {
		t.Errorf("%+v", got)
	}
}

// The executions of a runner that dies are redelivered to another member after AckWait. An
// execution whose handler works for longer than AckWait is not redelivered.
func TestDyingAndWorkingForLong(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	const ackWait = time.Second
	dying := server.Connect(t)
	died := make(chan struct{})
	go func() {
		_ = runner.Run(context.Background(), dying, runner.Options{
			Group:   "group",
			AckWait: ackWait,
		}, func(context.Context, runner.Execution) (any, error) {
			dying.Close()
			close(died)
			return "too late", nil
		})
	}()
	id := ingress.Start(t, runnertest.Post{})
	<-died
	var runs atomic.Int32
	start(t, server.Connect(t), runner.Options{AckWait: ackWait}, func(
		context.Context, runner.Execution,
	) (any, error) {
		runs.Add(1)
		<-time.After(4 * ackWait)
		return "done", nil
	})
	if got := ingress.Await(t, id); string(got.Output) != `"done"` || runs.Load() != 1 {
		t.Errorf("%+v after %d runs", got, runs.Load())
	}
}

// If an execution kills every process that runs it, it fails after the last allowed attempt, and
// the handler is not called again.
func TestNobodyFinishesIt(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	deadly := ingress.Start(t, runnertest.Post{WorkflowID: "deadly"})
	consumer, err := js.CreateConsumer(t.Context(), stream.ExecutionsName, jetstream.ConsumerConfig{
		Durable:       "runner-default-group",
		FilterSubject: stream.QueueFilterSubject("default"),
		AckPolicy:     jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // as if the runners had died: delivered but never acknowledged
		msg, err := consumer.Next()
		if err == nil {
			err = msg.Nak()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var runs atomic.Int32
	start(t, nc, runner.Options{Attempts: 3}, func(context.Context, runner.Execution) (any, error) {
		runs.Add(1)
		return nil, nil
	})
	if got := ingress.Await(t, deadly); got.Status != execution.Failed ||
		!strings.Contains(got.Error, "in 3 attempts") || runs.Load() != 0 {
		t.Errorf("%+v after %d more runs", got, runs.Load())
	}
	if got := ingress.Await(t,
		ingress.Start(t, runnertest.Post{})); got.Status != execution.Succeeded {
		t.Errorf("the next one: %+v", got)
	}
}

// If the report of an execution cannot be stored immediately, the runner resends the report. It
// does not run the execution again.
func TestReportsAreSentAgain(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	began, finish := make(chan struct{}, 10), make(chan struct{})
	nc := server.Connect(t)
	start(t, nc, runner.Options{}, func(_ context.Context, e runner.Execution) (any, error) {
		began <- struct{}{}
		<-finish
		return e.Attempt, nil
	})
	id := ingress.Start(t, runnertest.Post{})
	<-began
	lost := nc.StatusChanged(nats.RECONNECTING)
	server.Stop()
	<-lost
	close(finish)
	server.Restart()
	if got := ingress.Await(t, id); string(got.Output) != "1" || len(began) != 0 {
		t.Errorf("%+v after %d more runs", got, len(began))
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	for _, bad := range []runner.Options{
		{},
		{Group: "a.b"},
		{Group: "a", Queue: "*"},
		{Group: "a", Concurrency: -1},
		{Group: "a", Attempts: -1},
		{Group: "a", Timeout: -1},
	} {
		if err := runner.Run(t.Context(), nc, bad, nil); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// A runner may start before the executor, which creates the stream. It may also be stopped while it
// is still waiting for the stream.
func TestARunnerWaitsForTheStream(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	asked := make(chan *nats.Msg, 64)
	if _, err := nc.ChanSubscribe("$JS.API.CONSUMER.INFO.>", asked); err != nil {
		t.Fatal(err)
	}
	stop := start(t, nc, runner.Options{Group: "early"}, nil)
	<-asked
	stop()
	ran := make(chan struct{})
	start(t, nc, runner.Options{}, func(context.Context, runner.Execution) (any, error) {
		close(ran)
		return nil, nil
	})
	<-asked
	runnertest.NewIngress(t, nc).Start(t, runnertest.Post{})
	<-ran
}

// While all handlers of a runner are busy, its consumer is deleted, or the whole stream is
// replaced. No request of the runner is open then, so the server tells it nothing. Afterwards, the
// runner ends with an error in the first case. In the second case, it creates its consumer in the
// new stream.
func TestAConsumerDisappearsWhileTheRunnerIsBusy(t *testing.T) {
	t.Parallel()
	for _, replaced := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream replaced %t", replaced), func(t *testing.T) {
			t.Parallel()
			nc := natstest.Start(t).Connect(t)
			ingress := runnertest.NewIngress(t, nc)
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			began, finish := make(chan struct{}, 1), make(chan struct{})
			ran := make(chan error, 1)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go func() {
				ran <- runner.Run(ctx, nc, runner.Options{Group: "group", Concurrency: 1}, func(
					context.Context, runner.Execution,
				) (any, error) {
					began <- struct{}{}
					<-finish
					return nil, nil
				})
			}()
			ingress.Start(t, runnertest.Post{})
			<-began
			if !replaced {
				err = js.DeleteConsumer(t.Context(), stream.ExecutionsName, "runner-default-group")
			} else if err = js.DeleteStream(t.Context(), stream.ExecutionsName); err == nil {
				err = stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings)
			}
			if err != nil {
				t.Fatal(err)
			}
			close(finish)
			if !replaced {
				if err := <-ran; !errors.Is(err, jetstream.ErrConsumerDeleted) {
					t.Errorf("the runner ended with %v", err)
				}
				return
			}
			if got := ingress.Await(t,
				ingress.Start(t, runnertest.Post{})); got.Status != execution.Succeeded {
				t.Errorf("in the new stream: %+v", got)
			}
			stop()
			if err := <-ran; err != nil {
				t.Error(err)
			}
		})
	}
}

// A runner requests only as many messages as it has free concurrency slots. A message that waited
// for a slot for longer than AckWait would also run on another member.
func TestNothingWaitsForAPlace(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	const executions = 16
	var ids []string
	for range executions {
		ids = append(ids, ingress.Start(t, runnertest.Post{}))
	}
	const ackWait = 3 * time.Second // long enough for heartbeats even on a busy machine
	var attempts sync.Map
	for range 2 {
		start(t, server.Connect(t), runner.Options{AckWait: ackWait, Concurrency: 4}, func(
			_ context.Context, e runner.Execution,
		) (any, error) {
			if _, again := attempts.LoadOrStore(e.ID, e.Attempt); again || e.Attempt != 1 {
				t.Errorf("execution %s: attempt %d", e.ID, e.Attempt)
			}
			<-time.After(2 * ackWait)
			return nil, nil
		})
	}
	for _, id := range ids {
		if got := ingress.Await(t, id); got.Status != execution.Succeeded {
			t.Errorf("%+v", got)
		}
	}
}

// A NATS server that has lost heartbeats in a restart may redeliver an execution to the process
// that is working on it. The execution then runs only once.
func TestDeliveredAgainWhileItRuns(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	heartbeats, err := nc.SubscribeSync(
		"$JS.ACK." + stream.ExecutionsName + ".runner-default-group.>",
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// heartbeat waits for a heartbeat of the given delivery.
	heartbeat := func(delivery string) *nats.Msg {
		t.Helper()
		for {
			msg, err := heartbeats.NextMsgWithContext(ctx)
			if err != nil {
				t.Fatalf("of delivery %s: %v", delivery, err)
			}
			if strings.Split(msg.Subject, ".")[4] == delivery && string(msg.Data) == "+WPI" {
				return msg
			}
		}
	}
	finish, runs := make(chan struct{}), atomic.Int32{}
	start(t, server.Connect(t), runner.Options{AckWait: 2 * time.Second, Attempts: 1}, func(
		context.Context, runner.Execution,
	) (any, error) {
		runs.Add(1)
		<-finish
		return "once", nil
	})
	id := ingress.Start(t, runnertest.Post{})
	if err := nc.Publish(heartbeat("1").Subject, []byte("-NAK")); err != nil {
		t.Fatal(err)
	}
	heartbeat("2")
	close(finish)
	if got := ingress.Await(t, id); string(got.Output) != `"once"` || runs.Load() != 1 {
		t.Errorf("%+v after %d runs", got, runs.Load())
	}
	for {
		msg, err := heartbeats.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatalf("it was not acknowledged: %v", err)
		}
		if string(msg.Data) == "+ACK" {
			return
		}
	}
}

// When NATS has lost its storage, the executor recreates the stream. The runner then recreates its
// consumer itself and continues without a restart.
func TestARunnerGoesOnAfterNATSLostItsStore(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	got := make(chan string, 1)
	start(t, server.Connect(t), runner.Options{},
		func(_ context.Context, e runner.Execution) (any, error) {
			got <- e.ID
			return nil, nil
		})
	before := runnertest.NewIngress(t, server.Connect(t)).Start(t, runnertest.Post{})
	if id := <-got; id != before {
		t.Fatalf("%s ran, not %s", id, before)
	}
	server.Stop()
	if err := os.RemoveAll(server.StoreDir()); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	after := runnertest.NewIngress(t, server.Connect(t)).Start(t, runnertest.Post{})
	select {
	case id := <-got:
		if id != after {
			t.Errorf("%s ran, not %s", id, after)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the runner did not take the new execution")
	}
}
