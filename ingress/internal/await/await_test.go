package await

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

func TestMain(m *testing.M) { os.Exit(natstest.Main(m)) }

// bed is a test bed: a NATS server with the streams, and a connection that publishes reports on one
// execution.
type bed struct {
	t    *testing.T
	nats *natstest.Node
	nc   *nats.Conn
	js   jetstream.JetStream
}

func start(t *testing.T) *bed {
	t.Helper()
	server := natstest.Start(t)
	b := &bed{t: t, nats: server, nc: server.Connect(t)}
	var err error
	if b.js, err = jetstream.New(b.nc); err == nil {
		err = stream.EnsureSharedStreams(t.Context(), b.js, stream.DefaultSettings)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	workflow, queue = "orders", "default"
	id              = "0199aaaa-0000-7000-8000-000000000001"
)

var waited = Execution{
	ID:         id,
	AccountID:  "acme",
	WorkflowID: workflow,
	Queue:      queue,
}

// report publishes a report of the execution in the shared stream, and waits until it is stored.
func (b *bed) report(status execution.Status, output string) {
	b.t.Helper()
	b.reportIn(stream.Layout{}, queue, status, output)
}

// reportIn is like report, but for an execution whose start message is in the given stream and
// queue.
func (b *bed) reportIn(
	at stream.Layout, queue string, status execution.Status, output string,
) {
	b.t.Helper()
	msg, err := at.ProgressMessage(queue, workflow, "node", "", execution.Progress{
		ID:      id,
		Status:  status,
		At:      time.Now(),
		Attempt: 1,
		Output:  []byte(output),
	})
	if err == nil {
		_, err = b.js.PublishMsg(b.t.Context(), msg)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// begin calls Waits.Begin for a connection, and returns the Waits and the new Wait. If no signal
// arrives, the Wait reads the stream for the first time after the delay first.
func (b *bed) begin(nc *nats.Conn, first time.Duration) (*Waits, *Wait) {
	b.t.Helper()
	waits := New(nc, 10)
	b.t.Cleanup(waits.Stop)
	waits.firstReadDelay = first
	wait, err := waits.Begin(waited)
	if err != nil || wait == nil {
		b.t.Fatalf("it does not wait: %v", err)
	}
	b.t.Cleanup(wait.End)
	return waits, wait
}

// loseSignals stops the delivery of reports to a Wait, as happens in a cluster if a server does not
// know the subscription yet.
func loseSignals(t *testing.T, w *Wait) {
	t.Helper()
	for _, sub := range w.subs {
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
	w.subs = nil
}

func (r Result) expect(t *testing.T, reason Reason, status execution.Status, output string) {
	t.Helper()
	if r.Reason != reason || r.Status != status || string(r.Output) != output {
		t.Errorf("%s, %s, %s; want %s, %s, %s", r.Reason, r.Status, r.Output, reason, status,
			output)
	}
}

func enough(int) bool { return true }

const never = time.Hour

// If no subscriber receives the final report, Wait finds it by reading the stream: in one of its
// periodic reads or, if none is due before the wait times out, in a last read at the timeout.
func TestALostReportIsFound(t *testing.T) {
	t.Parallel()
	b := start(t)
	_, soon := b.begin(b.nc, firstReadDelay)
	_, last := b.begin(b.nc, never)
	_, running := b.begin(b.nc, never)
	for _, wait := range []*Wait{soon, last, running} {
		loseSignals(t, wait)
	}
	b.report(execution.Running, "")
	// At the limit, Await reads the stream once more, and finds that the execution is running.
	running.Await(t.Context(), time.Now(), enough).expect(t, ReasonTimeLimit, execution.Running, "")
	b.report(execution.Succeeded, "7")
	b.report(execution.Failed, "") // a later final report changes nothing
	last.Await(t.Context(), time.Now(), enough).
		expect(t, ReasonExecutionEnded, execution.Succeeded, "7")

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	soon.Await(ctx, time.Now().Add(never), enough).
		expect(t, ReasonExecutionEnded, execution.Succeeded, "7")
}

// If an execution ends while the connection to NATS is lost, Wait finds the final report after the
// reconnect, even if it last read the stream long ago.
func TestAnEndDuringAReconnectIsFound(t *testing.T) {
	t.Parallel()
	b := start(t)
	link := b.nats.NewProxy(t)
	nc, err := nats.Connect(link.URL(), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	_, wait := b.begin(nc, never)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	results := make(chan Result, 1)
	go func() { results <- wait.Await(ctx, time.Now().Add(never), enough) }()

	lost := nc.StatusChanged(nats.RECONNECTING)
	link.Cut()
	<-lost
	b.report(execution.Succeeded, "7")
	link.Heal()
	(<-results).expect(t, ReasonExecutionEnded, execution.Succeeded, "7")
}

// The connection to NATS is lost and restored after Begin and before Await. In between, the
// execution ends, and its report is not delivered. Await finds the report, because it reads the
// stream after the reconnect.
func TestAReconnectBeforeAwait(t *testing.T) {
	t.Parallel()
	b := start(t)
	link := b.nats.NewProxy(t)
	nc, err := nats.Connect(link.URL(), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	waits, wait := b.begin(nc, never)
	link.Cut()
	b.report(execution.Succeeded, "7")
	link.Heal()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	retry.Until(ctx, time.Millisecond, func() bool {
		return waits.nextReconnect() != wait.reconnected
	})
	wait.Await(ctx, time.Now().Add(never), enough).
		expect(t, ReasonExecutionEnded, execution.Succeeded, "7")
}

// If NATS does not respond, a request still gets its response at most a second after its time
// limit, even if a read of the execution began just before the limit.
func TestNATSThatHangsDoesNotDelayTheLimit(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	b := &bed{t: t, nats: server, nc: server.Connect(t)}
	reading := make(chan *nats.Msg, 10)
	// This subscription receives the requests to JetStream but never replies.
	if _, err := b.nc.ChanSubscribe("$JS.API.>", reading); err != nil {
		t.Fatal(err)
	}
	_, wait := b.begin(server.Connect(t), never)
	wait.signalRead()
	limit := time.Now().Add(200 * time.Millisecond)
	wait.Await(t.Context(), limit, enough).expect(t, ReasonTimeLimit, execution.Queued, "")
	if late := time.Since(limit); late > time.Second {
		t.Errorf("%v after the limit", late)
	}
	if len(reading) < 2 { // one read before the limit, and the last read
		t.Errorf("it has read %d times", len(reading))
	}
}

// When a Wait has ended, for whatever reason, its slot is free and its subscription is gone. After
// Stop, a Waits no longer watches the connection.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	b := start(t)
	before := b.nc.NumSubscriptions()
	waits := New(b.nc, 10)
	waits.firstReadDelay = never
	b.report(execution.Running, "")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx      context.Context
		limit    time.Duration
		repeated bool
		want     Reason
	}{
		{canceled, never, false, ReasonSenderGone},
		{canceled, never, true, ReasonSenderGone},
		{t.Context(), 0, true, ReasonTimeLimit},
		{t.Context(), never, false, ReasonStopping},
	} {
		wait, err := waits.Begin(waited)
		if err != nil || wait == nil {
			t.Fatalf("it does not wait: %v", err)
		}
		if waits.Waiting() != 1 {
			t.Errorf("%d wait", waits.Waiting())
		}
		if c.repeated {
			wait.ExpectEarlierStart([]string{queue, "other"})
		}
		if c.want == ReasonStopping {
			waits.Stop()
			waits.Stop()
		}
		result := wait.Await(c.ctx, time.Now().Add(c.limit), enough)
		if result.Reason != c.want || result.Status.Final() {
			t.Errorf("%+v, want %s", result, c.want)
		}
		wait.End()
		wait.End()
		if waits.Waiting() != 0 || len(waits.waitingByAccount) != 0 {
			t.Errorf("%s: %d wait, accounts %v", c.want, waits.Waiting(), waits.waitingByAccount)
		}
	}
	// The connection itself has one subscription, for replies to its requests.
	if now := b.nc.NumSubscriptions(); now > before+1 {
		t.Errorf("%d subscriptions became %d", before, now)
	}
}

// If no memory is free for an output, the Wait tries again later, and returns the output once there
// is enough memory.
func TestAnOutputWaitsForMemory(t *testing.T) {
	t.Parallel()
	b := start(t)
	_, wait := b.begin(b.nc, never)
	b.report(execution.Succeeded, `"text"`)
	tries := 0
	wait.Await(t.Context(), time.Now().Add(never), func(bytes int) bool {
		tries++
		return bytes == 6 && tries == 3
	}).expect(t, ReasonExecutionEnded, execution.Succeeded, `"text"`)
	wait.signalRead()
	result := wait.Await(t.Context(), time.Now(), func(int) bool { return false })
	if result.Reason != ReasonTimeLimit {
		t.Errorf("without memory: %+v", result)
	}
}

// A repeated request may be for an execution that started while the workflow used another queue.
// Its reports are then in that queue's own stream. If the execution has already ended, the Wait
// finds its final report by reading the own streams of other queues. If it ends later, the report
// arrives as a message, which makes the Wait read it.
func TestARepeatFindsTheEndInAnotherQueuesOwnStream(t *testing.T) {
	t.Parallel()
	b := start(t)
	if err := stream.EnsureOwnStreams(t.Context(), b.js, stream.DefaultSettings, "left",
		stream.QueueStreamLimits{}); err != nil {
		t.Fatal(err)
	}
	var ownStreams []string
	for i := range 2 * maxOtherQueuesPerRead {
		ownStreams = append(ownStreams, fmt.Sprint("queue-", i))
	}
	ownStreams = append(ownStreams, "left")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	_, signaled := b.begin(b.nc, never)
	signaled.ExpectEarlierStart([]string{"left"})
	signaled.Await(ctx, time.Now(), enough).expect(t, ReasonTimeLimit, execution.Queued, "")
	b.reportIn(stream.Layout{Own: true}, "left", execution.Succeeded, "7")
	signaled.Await(ctx, time.Now().Add(never), enough).
		expect(t, ReasonExecutionEnded, execution.Succeeded, "7")

	for name, queues := range map[string][]string{"one": {"left"}, "many": ownStreams} {
		_, wait := b.begin(b.nc, 10*time.Millisecond)
		wait.ExpectEarlierStart(queues)
		loseSignals(t, wait)
		tries := 0
		result := wait.Await(ctx, time.Now().Add(never), func(int) bool {
			tries++
			return tries == 2 // at first there is no memory for the output
		})
		if result.Reason != ReasonExecutionEnded || string(result.Output) != "7" {
			t.Errorf("%s: %+v", name, result)
		}
	}
}
