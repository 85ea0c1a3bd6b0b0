package runnertest_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
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

// If an execution is canceled before a runner receives it, it never reaches a handler, not even in
// a group that is created later.
func TestACanceledExecutionNeverBegins(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	begun := make(chan string, 10)
	canceled := ingress.Start(t, runnertest.Post{})
	ingress.Cancel(t, canceled)
	other := ingress.Start(t, runnertest.Post{})
	handler := func(_ context.Context, e runner.Execution) (any, error) {
		begun <- e.ID
		return nil, nil
	}
	stop := start(t, nc, runner.Options{}, handler)
	if final := ingress.Await(t, canceled); final.Status != execution.Canceled {
		t.Errorf("it ended as %+v", final)
	}
	if final := ingress.Await(t, other); final.Status != execution.Succeeded {
		t.Errorf("another one ended as %+v", final)
	}
	stop()
	server.Restart()
	// Connect again: if nc had not noticed the restart yet, it would lose what is published next.
	nc = server.Connect(t)
	ingress = runnertest.NewIngress(t, nc)
	// A new group receives all executions again.
	start(t, nc, runner.Options{Group: "another"}, handler)
	last := ingress.Start(t, runnertest.Post{})
	ingress.Await(t, last)
	for len(begun) > 0 {
		if id := <-begun; id == canceled {
			t.Error("a handler began with a canceled execution")
		}
	}
}

// A runner has read three cancellations when the bucket is deleted and recreated, so that revisions
// begin with 1 again. After a reconnect, the runner finds a new cancellation there although its
// revision is lower than those that it has read.
func TestCancellationsWithLowerRevisions(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	for _, id := range []string{"first", "second", "third"} {
		ingress.Cancel(t, id)
	}
	connection := server.Connect(t)
	start(t, connection, runner.Options{}, func(
		context.Context, runner.Execution,
	) (any, error) {
		return nil, nil
	})
	ingress.Await(t, ingress.Start(t, runnertest.Post{}))
	deleteCancellations(t, nc)
	ingress = runnertest.NewIngress(t, nc) // recreates the bucket
	canceled := execution.IDForDelivery("workflow", "webhook", "delivery")
	ingress.Cancel(t, canceled)
	for _, other := range []string{"fourth", "fifth", "sixth"} { // up to revision 4; 3 is known
		ingress.Cancel(t, other)
	}
	if err := connection.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	if id := ingress.Start(t, runnertest.Post{DeliveryID: "delivery"}); id != canceled {
		t.Fatalf("the execution is %s, want %s", id, canceled)
	}
	if final := ingress.Await(t, canceled); final.Status != execution.Canceled {
		t.Errorf("it ended as %+v", final)
	}
}

// A runner has read three cancellations when the bucket is deleted and recreated. Even without a
// reconnect, the runner finds a new cancellation there although its revision is lower than those
// that it has read.
func TestCancellationsOfANewBucketWithoutAReconnect(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	for _, id := range []string{"first", "second", "third"} {
		ingress.Cancel(t, id)
	}
	begun := make(chan struct{}, 1)
	start(t, nc, runner.Options{}, func(
		ctx context.Context, _ runner.Execution,
	) (any, error) {
		begun <- struct{}{} // now the runner knows three keys
		<-ctx.Done()
		return nil, ctx.Err()
	})
	id := ingress.Start(t, runnertest.Post{})
	<-begun
	deleteCancellations(t, nc)
	ingress = runnertest.NewIngress(t, nc) // recreates the bucket
	ingress.Cancel(t, id)
	if final := ingress.Await(t, id); final.Status != execution.Canceled {
		t.Errorf("it ended as %+v", final)
	}
}

// An idle runner has read three cancellations when the bucket is deleted, recreated and given four
// new ones. The runner finds the first of these, although it has already read a key with the same
// revision, and although the fourth one has a higher revision than any that it has read.
func TestCancellationsOfANewBucketThatHasMoreKeys(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	for _, id := range []string{"first", "second", "third"} {
		ingress.Cancel(t, id)
	}
	start(t, nc, runner.Options{}, func(context.Context, runner.Execution) (any, error) {
		return nil, nil
	})
	ingress.Await(t, ingress.Start(t, runnertest.Post{})) // now the runner knows three keys
	deleteCancellations(t, nc)
	ingress = runnertest.NewIngress(t, nc) // recreates the bucket
	canceled := execution.IDForDelivery("workflow", "webhook", "delivery")
	for _, id := range []string{canceled, "fourth", "fifth", "sixth"} {
		ingress.Cancel(t, id)
	}
	ingress.Start(t, runnertest.Post{DeliveryID: "delivery"})
	if final := ingress.Await(t, canceled); final.Status != execution.Canceled {
		t.Errorf("it ended as %+v", final)
	}
}

// A runner that has found the bucket missing looks for cancellations again once the bucket exists.
func TestCancellationsAfterTheBucketWasMissing(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	start(t, nc, runner.Options{}, func(context.Context, runner.Execution) (any, error) {
		return nil, nil
	})
	ingress.Await(t, ingress.Start(t, runnertest.Post{}))
	deleteCancellations(t, nc)
	ingress.Await(t, ingress.Start(t, runnertest.Post{})) // now the runner has found it missing
	ingress = runnertest.NewIngress(t, nc)                // recreates the bucket
	canceled := execution.IDForDelivery("workflow", "webhook", "delivery")
	ingress.Cancel(t, canceled)
	ingress.Start(t, runnertest.Post{DeliveryID: "delivery"})
	if final := ingress.Await(t, canceled); final.Status != execution.Canceled {
		t.Errorf("it ended as %+v", final)
	}
}

// Once a runner knows 1000 cancellations (minCancellationsToForget), it forgets those whose keys
// have expired. An execution whose cancellation was forgotten runs.
func TestExpiredCancellationsAreForgotten(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	expired := execution.IDForDelivery("workflow", "webhook", "delivery")
	begun := make(chan struct{}, 1)
	start(t, nc, runner.Options{}, func(ctx context.Context, e runner.Execution) (any, error) {
		if e.ID == expired {
			return nil, nil
		}
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	// readKeys waits until the runner has read all keys in the bucket. To do so, it cancels a
	// running execution, which stores the newest key, and waits until the execution has ended. By
	// then, the runner has read this key, and therefore all earlier ones.
	readKeys := func() {
		t.Helper()
		id := ingress.Start(t, runnertest.Post{})
		<-begun
		ingress.Cancel(t, id)
		ingress.Await(t, id)
	}
	cancelMany := func(name string, count int) {
		t.Helper()
		for n := range count {
			ingress.Cancel(t, name+strconv.Itoa(n))
		}
	}
	ingress.Cancel(t, expired)
	cancelMany("old", 900)
	readKeys()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := js.Stream(t.Context(), stream.CancellationsStream)
	if err == nil {
		err = bucket.Purge(t.Context()) // as if all keys had expired
	}
	if err != nil {
		t.Fatal(err)
	}
	cancelMany("new", 200)
	// The runner forgets expired keys after it has read the newest key and canceled its execution.
	// When the second call of readKeys returns, the runner has read another key, so it has
	// forgotten the expired ones by then.
	readKeys()
	readKeys()
	ingress.Start(t, runnertest.Post{DeliveryID: "delivery"})
	if final := ingress.Await(t, expired); final.Status != execution.Succeeded {
		t.Errorf("it ended as %+v", final)
	}
}

// deleteCancellations deletes the bucket, as if its server had lost its storage.
func deleteCancellations(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err == nil {
		err = js.DeleteStream(t.Context(), stream.CancellationsStream)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A runner does not wait until it has read all cancellations. With 1000 of them, which take 20 s to
// read over a slow connection, a handler is called within 10 s. The handler of a canceled execution
// is not called.
func TestManyCancellationsDoNotDelayHandlers(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	for i := range 1000 {
		ingress.Cancel(t, strconv.Itoa(i))
	}
	connection := server.Connect(t, nats.SetCustomDialer(slowDialer{}))
	begun := make(chan string, 1)
	start(t, connection, runner.Options{}, func(
		_ context.Context, e runner.Execution,
	) (any, error) {
		begun <- e.ID
		return nil, nil
	})
	canceled := execution.IDForDelivery("workflow", "webhook", "delivery")
	ingress.Cancel(t, canceled)
	ingress.Start(t, runnertest.Post{DeliveryID: "delivery"})
	runs := ingress.Start(t, runnertest.Post{})
	select {
	case id := <-begun:
		if id != runs {
			t.Errorf("%s began, want %s", id, runs)
		}
	case <-time.After(10 * time.Second): // reading all keys takes 20 s
		t.Error("no handler has begun")
	}
	if final := ingress.Await(t, canceled); final.Status != execution.Canceled {
		t.Errorf("the canceled one ended as %+v", final)
	}
}

// A runner finishes reading all cancellations even if the oldest ones expire meanwhile.
func TestCancellationsExpireWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	for i := range 100 {
		ingress.Cancel(t, strconv.Itoa(i))
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	connection := server.Connect(t, nats.SetCustomDialer(slowDialer{}))
	start(t, connection, runner.Options{}, func(
		ctx context.Context, _ runner.Execution,
	) (any, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	id := ingress.Start(t, runnertest.Post{})
	<-begun
	ingress.Cancel(t, id)
	expire, late := time.NewTicker(500*time.Millisecond), time.After(30*time.Second)
	defer expire.Stop()
	for { // reading all keys takes 2 s
		select {
		case <-ended:
			return
		case <-late:
			t.Fatal("the handler was not told that it is canceled")
		case <-expire.C:
			bucket, err := js.Stream(t.Context(), stream.CancellationsStream)
			if err == nil {
				oldest := bucket.CachedInfo().State.FirstSeq
				err = bucket.Purge(t.Context(), jetstream.WithPurgeSequence(oldest+1))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// slowDialer opens connections on which each read takes 20 ms longer.
type slowDialer struct{ net.Dialer }

func (d slowDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.Dialer.Dial(network, address)
	return slowConn{conn}, err
}

type slowConn struct{ net.Conn }

func (c slowConn) Read(b []byte) (int, error) {
	<-time.After(20 * time.Millisecond)
	return c.Conn.Read(b)
}

// When an execution is canceled, its handler's context ends with the cause ErrCanceled. If the
// handler returns an error, the execution is canceled; otherwise its result counts as usual.
func TestAHandlerIsCanceled(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	begun := make(chan struct{}, 2)
	start(t, nc, runner.Options{}, func(ctx context.Context, e runner.Execution) (any, error) {
		begun <- struct{}{}
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), runner.ErrCanceled) {
			t.Errorf("the context ended by %v", context.Cause(ctx))
		}
		if e.WorkflowID == "completes" {
			return "done", nil
		}
		return nil, ctx.Err()
	})
	gives := ingress.Start(t, runnertest.Post{WorkflowID: "gives-up"})
	completes := ingress.Start(t, runnertest.Post{WorkflowID: "completes"})
	<-begun
	<-begun
	ingress.Cancel(t, gives)
	ingress.Cancel(t, completes)
	if final := ingress.Await(t, gives); final.Status != execution.Canceled ||
		final.StartedAt.IsZero() || final.Attempt != 1 {
		t.Errorf("one that gave up ended as %+v", final)
	}
	if final := ingress.Await(t, completes); final.Status != execution.Succeeded ||
		string(final.Output) != `"done"` {
		t.Errorf("one that completed ended as %+v", final)
	}
}

// A runner that stops waits for the handler of a canceled execution only until DrainTimeout has
// passed.
func TestAStopDoesNotWaitForACanceledHandler(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	begun, canceled, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	stop := start(t, nc, runner.Options{DrainTimeout: time.Millisecond},
		func(ctx context.Context, _ runner.Execution) (any, error) {
			close(begun)
			<-ctx.Done()
			close(canceled)
			<-end
			return nil, ctx.Err()
		})
	id := ingress.Start(t, runnertest.Post{})
	<-begun
	ingress.Cancel(t, id)
	<-canceled
	late := time.AfterFunc(20*time.Second, func() { close(end) })
	stop()
	if late.Stop() {
		close(end)
	} else {
		t.Error("the runner has waited for the handler")
	}
	if final := ingress.Await(t, id); final.Status != execution.Canceled ||
		!strings.Contains(final.Error, "before the runner stopped") {
		t.Errorf("it ended as %+v", final)
	}
}

// When an ordered execution is canceled, the next one with its key begins: immediately if the
// canceled one has not begun, otherwise after its handler has returned.
func TestACanceledExecutionHoldsUpNothing(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	begun := make(chan string, 10)
	post := runnertest.Post{OrderKey: "k"}
	runs, waits := ingress.Start(t, post), ingress.Start(t, post)
	last := ingress.Start(t, post)
	start(t, nc, runner.Options{}, func(ctx context.Context, e runner.Execution) (any, error) {
		begun <- e.ID
		if e.ID == last {
			return nil, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if id := <-begun; id != runs {
		t.Fatalf("%s began first, want %s", id, runs)
	}
	ingress.Cancel(t, waits)
	ingress.Cancel(t, runs)
	if id := <-begun; id != last {
		t.Errorf("%s began next, want %s", id, last)
	}
	for id, want := range map[string]execution.Status{
		runs: execution.Canceled, waits: execution.Canceled, last: execution.Succeeded,
	} {
		if final := ingress.Await(t, id); final.Status != want {
			t.Errorf("%s ended as %+v, want %s", id, final, want)
		}
	}
}
