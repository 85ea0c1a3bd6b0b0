package queuestreams_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/operators/queuestreams"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

func TestMain(m *testing.M) { os.Exit(natstest.Main(m)) }

// fixture has an executor's registry, and two ingresses that store start messages. Its method mover
// creates Movers.
type fixture struct {
	*registrytest.Registry
	t         *testing.T
	nc        *nats.Conn
	ingresses []*registrytest.Ingress
}

func start(t *testing.T, nc *nats.Conn) *fixture {
	t.Helper()
	f := &fixture{Registry: registrytest.Start(t, nc), t: t, nc: nc}
	for range 2 {
		i, heartbeat := registrytest.StartIngress(t, nc)
		t.Cleanup(heartbeat.Stop)
		f.ingresses = append(f.ingresses, i)
	}
	return f
}

func (f *fixture) mover(settings stream.Settings, reached func(string)) *queuestreams.Mover {
	return queuestreams.New(queuestreams.Config{
		JetStream:     f.JetStream,
		Editor:        f.Editor,
		RegistryIndex: f.RegistryIndex,
		Settings:      settings,
		Log:           logtest.Discard(),
		OnStep:        reached,
	})
}

// workflow creates a workflow in a queue.
func (f *fixture) workflow(id, queue string) {
	f.t.Helper()
	if _, _, err := f.PutAccount(f.t.Context(), "a", "A", "pro"); err != nil {
		f.t.Fatal(err)
	}
	if err := f.put(f.t.Context(), id, queue); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) put(ctx context.Context, id, queue string) error {
	_, _, err := f.PutWorkflow(ctx, edit.WorkflowSpec{
		ID:        id,
		AccountID: "a",
		Name:      id,
		Queue:     queue,
		Triggers:  []edit.TriggerSpec{{NodeID: "node"}},
	})
	return err
}

// moveWorkflow calls MoveWorkflow. On a busy machine, the call may fail because the workflow was
// closed for too long; then moveWorkflow repeats it.
func (f *fixture) moveWorkflow(
	m *queuestreams.Mover, change *edit.CrossStreamQueueChangeError,
	store func(context.Context) error,
) (err error) {
	for range 20 {
		if err = m.MoveWorkflow(f.t.Context(), change, store); !errors.Is(err,
			queuestreams.ErrCopyUnfinished) && !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	return err
}

var errClosed = errors.New("closed")

// send stores a delivery as an ingress does, and reports whether it was a duplicate. It returns
// errClosed if the queue or workflow is closed.
func (f *fixture) send(ingress int, workflowID, deliveryID string) (duplicate bool, err error) {
	view, ok := f.ingresses[ingress].Lookup(workflowID)
	if !ok {
		return false, errors.New("no such workflow")
	}
	pass := view.Workflow.AcquirePermit()
	defer pass.Release()
	if pass.Target == registry.StoreTargetClosed {
		return false, errClosed
	}
	msg, err := stream.Layout{
		Own: pass.Target == registry.StoreTargetOwn,
	}.StartMessage(
		execution.Start{
			ID:         execution.IDForDelivery(workflowID, "node", deliveryID),
			WorkflowID: workflowID,
			NodeID:     "node",
			AccountID:  "a",
			Queue:      view.Workflow.Queue,
			DeliveryID: deliveryID,
			Payload:    execution.Payload{Kind: execution.BodyText},
		},
	)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ack, err := f.JetStream.PublishMsg(ctx, msg)
	if err != nil {
		return false, err
	}
	return ack.Duplicate, nil
}

// starts returns the number of start messages for each execution, across all streams.
func (f *fixture) starts() map[string]int {
	f.t.Helper()
	found := map[string]int{}
	names, _, err := stream.StreamNames(f.t.Context(), f.JetStream)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, name := range names {
		if err := stream.ForEachMessage(f.t.Context(), f.JetStream, name,
			jetstream.OrderedConsumerConfig{
				HeadersOnly: true,
			}, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
				if stream.IsStartSubject(msg.Subject()) {
					found[msg.Headers().Get(stream.HeaderExecutionID)]++
				}
				return nil
			}); err != nil {
			f.t.Fatal(err)
		}
	}
	return found
}

// load sends new deliveries and duplicates of earlier ones, until it is stopped.
type load struct {
	f         *fixture
	workflows []string
	stop      chan struct{}
	done      sync.WaitGroup

	mu         sync.Mutex
	stored     []delivery
	refused    int
	repeats    int
	longest    time.Duration // the longest time that one sender was refused
	missed     []delivery    // duplicates that were not recognized
	unexpected []error
}

type delivery struct{ workflowID, id string }

func (f *fixture) load(workflows ...string) *load {
	l := &load{f: f, workflows: workflows, stop: make(chan struct{})}
	for n := range 4 {
		l.done.Go(func() { l.run(n) })
	}
	return l
}

func (l *load) run(n int) {
	var since time.Time // since when this sender has been refused
	for i := 0; ; i++ {
		select {
		case <-l.stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
		d, repeat := delivery{l.workflows[rand.IntN(len(l.workflows))], fmt.Sprintf("%d-%d", n, i)},
			false
		l.mu.Lock()
		if len(l.stored) > 0 && i%3 == 0 {
			d, repeat = l.stored[rand.IntN(len(l.stored))], true
		}
		l.mu.Unlock()
		duplicate, err := l.f.send(n%2, d.workflowID, d.id)
		l.mu.Lock()
		switch {
		case errors.Is(err, errClosed):
			l.refused++
			if since.IsZero() {
				since = time.Now()
			}
			l.longest = max(l.longest, time.Since(since))
		case err != nil:
			l.unexpected = append(l.unexpected, err)
		default:
			since = time.Time{}
			if !repeat {
				l.stored = append(l.stored, d)
			} else if l.repeats++; !duplicate {
				l.missed = append(l.missed, d)
			}
		}
		l.mu.Unlock()
	}
}

// end stops the load. It checks that each delivery started exactly one execution, and that each
// duplicate was recognized.
func (l *load) end() {
	t := l.f.t
	t.Helper()
	close(l.stop)
	l.done.Wait()
	for _, d := range l.stored { // each is repeated once more
		if duplicate, err := l.f.send(0, d.workflowID, d.id); err != nil || !duplicate {
			l.missed = append(l.missed, d)
		}
	}
	found := l.f.starts()
	lost, doubled := 0, 0
	for _, d := range l.stored {
		switch n := found[execution.IDForDelivery(d.workflowID, "node", d.id)]; {
		case n == 0:
			lost++
		case n > 1:
			doubled++
		}
	}
	t.Logf("%d stored, %d repeats, %d refused, the longest refusal %s", len(l.stored), l.repeats,
		l.refused, l.longest.Round(time.Millisecond))
	if lost > 0 || doubled > 0 || len(l.missed) > 0 || len(l.unexpected) > 0 {
		t.Errorf("lost %d, doubled %d, unrecognised repeats %d (%.3v), errors %.3v", lost, doubled,
			len(l.missed), l.missed, l.unexpected)
	}
	if len(l.stored) < 50 || l.repeats < 20 {
		t.Errorf("only %d deliveries and %d repeats", len(l.stored), l.repeats)
	}
}

func (l *load) await(n int) {
	l.mu.Lock()
	want := len(l.stored) + n
	l.mu.Unlock()
	for {
		l.mu.Lock()
		have := len(l.stored)
		l.mu.Unlock()
		if have >= want {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

// A queue moves to its own stream and back several times, while two ingresses store deliveries and
// duplicates for it. No delivery is lost, and every duplicate is recognized.
func TestMovesUnderLoad(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "q")
	m := f.mover(stream.DefaultSettings, nil)
	l := f.load("wf")
	for range 3 {
		l.await(30)
		if err := m.MoveToOwnStream(t.Context(), "q", edit.QueueStreamSpec{}); err != nil {
			t.Fatal(err)
		}
		q, _ := f.RegistryIndex.Queue("q")
		if q.Record.Stream.Phase != registry.QueuePhaseOwnStream {
			t.Errorf("after the move in: %s", q.Record.Stream.Phase)
		}
		l.await(30)
		if err := m.MoveToShared(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		q, _ = f.RegistryIndex.Queue("q")
		if q.Record.Stream.Phase != registry.QueuePhaseDrainingOwnStream {
			t.Errorf("after the move out: %s", q.Record.Stream.Phase)
		}
	}
	l.await(30)
	l.end()
	own, err := f.JetStream.Stream(t.Context(), stream.OwnStreamName("q"))
	if err != nil || own.CachedInfo().State.Msgs == 0 {
		t.Errorf("the own stream took nothing: %v", err)
	}
}

// While one executor moves a queue, LongestMoveDuration of another executor's Mover is more than 0.
// It is 0 before and after the move.
func TestLongestMove(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "q")
	stands, goOn := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() {
		close(stands)
		<-goOn
	})
	moving := f.mover(stream.DefaultSettings, func(string) { once() })
	other := f.mover(stream.DefaultSettings, func(string) { <-goOn })
	running, stop := context.WithCancel(t.Context())
	defer stop()
	go other.Run(running)
	if got := other.LongestMoveDuration(); got != 0 {
		t.Errorf("before the move: %v", got)
	}
	moved := make(chan error, 1)
	go func() { moved <- moving.MoveToOwnStream(t.Context(), "q", edit.QueueStreamSpec{}) }()
	await := func(lasts bool) {
		t.Helper()
		within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		retry.Until(within, 20*time.Millisecond, func() bool {
			return (other.LongestMoveDuration() > 0) == lasts
		})
		if (other.LongestMoveDuration() > 0) != lasts {
			t.Errorf("a move lasts: %v; want %v", other.LongestMoveDuration(), lasts)
		}
	}
	<-stands
	await(true)
	close(goOn)
	if err := <-moved; err != nil {
		t.Error(err)
	}
	await(false)
}

// If an executor crashes in any step of a move, another executor completes the move.
func TestAnotherExecutorCompletesAMove(t *testing.T) {
	t.Parallel()
	for _, out := range []bool{false, true} {
		for _, step := range []string{"moving", "close", "closed", "open"} {
			name, verb := step, "In"
			if out {
				verb = "Out"
			}
			if step == "moving" || step == "closed" {
				name += verb
			}
			t.Run(step+verb, func(t *testing.T) {
				t.Parallel()
				f := start(t, natstest.Start(t).Connect(t))
				f.workflow("wf", "q")
				if out {
					if err := f.mover(stream.DefaultSettings, nil).MoveToOwnStream(t.Context(), "q",
						edit.QueueStreamSpec{}); err != nil {
						t.Fatal(err)
					}
				}
				l := f.load("wf")
				l.await(30)
				ctx, kill := context.WithCancel(t.Context())
				defer kill()
				var killed atomic.Bool
				first := f.mover(stream.DefaultSettings, func(at string) {
					if at == name {
						killed.Store(true)
						kill()
					}
				})
				move := func(m *queuestreams.Mover, ctx context.Context) error {
					if out {
						return m.MoveToShared(ctx, "q")
					}
					return m.MoveToOwnStream(ctx, "q", edit.QueueStreamSpec{})
				}
				if err := move(first, ctx); err == nil || !killed.Load() {
					t.Errorf("it was not interrupted: %v", err)
				}
				second := f.mover(stream.DefaultSettings, nil)
				running, stop := context.WithCancel(t.Context())
				defer stop()
				go second.Run(running)
				want := registry.QueuePhaseOwnStream
				if out {
					want = registry.QueuePhaseDrainingOwnStream
				}
				for deadline := time.Now().Add(30 * time.Second); ; {
					q, _ := f.RegistryIndex.Queue("q")
					if q.Record.Stream.Phase == want {
						break
					}
					if time.Now().After(deadline) {
						t.Fatalf("the move is not complete: %s", q.Record.Stream.Phase)
					}
					<-time.After(20 * time.Millisecond)
				}
				l.await(30)
				l.end()
				if l.longest > 15*time.Second { // usually 4.5 s at most; more on a busy machine
					t.Errorf("a sender was refused for %s", l.longest)
				}
			})
		}
	}
}

// Run resumes two interrupted moves. One of them blocks before it copies anything. The other one
// still completes, and another call to MoveToOwnStream for the blocked queue returns as soon as its
// context is done.
func TestALongMoveHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	queues := [...]string{"q", "other"}
	for _, queue := range queues {
		ctx, kill := context.WithCancel(t.Context())
		killed := f.mover(stream.DefaultSettings, func(string) { kill() })
		if err := killed.MoveToOwnStream(ctx, queue, edit.QueueStreamSpec{}); err == nil {
			t.Fatal("it was not interrupted")
		}
	}
	goOn := make(chan struct{})
	var steps atomic.Int32
	m := f.mover(stream.DefaultSettings, func(string) {
		if steps.Add(1) == 1 {
			<-goOn
		}
	})
	running, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); m.Run(running) }()
	moving := func() (list []string) {
		for _, queue := range queues {
			if q, _ := f.RegistryIndex.Queue(queue); q.Record.Stream.Phase.IsMoving() {
				list = append(list, queue)
			}
		}
		return list
	}
	await := func(count int) {
		t.Helper()
		within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		retry.Until(within, 20*time.Millisecond, func() bool { return len(moving()) == count })
		if left := moving(); len(left) != count {
			t.Errorf("moving: %v, want %d", left, count)
		}
	}
	await(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	repeated := make(chan error, 1)
	go func() { repeated <- m.MoveToOwnStream(ctx, moving()[0], edit.QueueStreamSpec{}) }()
	select {
	case err := <-repeated:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the repeated call: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the repeated call does not return")
	}
	close(goOn)
	await(0)
	stop()
	<-ended
}

// storeLate stores a delivery of the workflow "wf" in the shared stream, as an ingress would do
// after reopening the queue there. The delivery ID is "late".
func (f *fixture) storeLate(ctx context.Context, queue string) {
	f.t.Helper()
	late, err := stream.StartMessage(execution.Start{
		ID:         execution.IDForDelivery("wf", "node", "late"),
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "a",
		Queue:      queue,
		DeliveryID: "late",
		Payload:    execution.Payload{Kind: execution.BodyText},
	})
	if err == nil {
		_, err = f.JetStream.PublishMsg(ctx, late)
	}
	if err != nil {
		f.t.Error(err)
	}
}

// Just before the last step of a queue's move is stored, an ingress reopens the queue in the old
// stream and stores a delivery there. The executor must still copy that delivery's ID to the new
// stream, even if its consumer on the old stream has been deleted, or the context of
// MoveToOwnStream has been canceled. If the new stream is too full for the ID, MoveToOwnStream
// returns an error.
func TestAQueueThatOpensLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(f *fixture, endCall func()) // called before the delivery is stored
		fails  bool
	}{
		"nothing else": {before: func(*fixture, func()) {}},
		"reader lost": {before: func(f *fixture, _ func()) {
			if err := f.JetStream.DeleteConsumer(f.t.Context(), stream.ExecutionsName,
				stream.DeliveryIDCopyConsumerName); err != nil {
				f.t.Error(err)
			}
		}},
		"call ends": {before: func(_ *fixture, endCall func()) { endCall() }},
		"stream full": {fails: true, before: func(f *fixture, _ func()) {
			marker := stream.Layout{Own: true}.DedupMarkerMessage("q", "wf", "0")
			for n := 1; ; n++ {
				_, err := f.JetStream.PublishMsg(f.t.Context(), marker)
				if stream.ErrorCode(err) == stream.CodeStoreFailed {
					return
				}
				if err != nil {
					f.t.Error(err)
					return
				}
				marker.Header.Set(jetstream.MsgIDHeader, fmt.Sprint(n))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, natstest.Start(t).Connect(t))
			f.workflow("wf", "q")
			ctx, endCall := context.WithCancel(t.Context())
			defer endCall()
			m := f.mover(stream.DefaultSettings, func(step string) {
				if step != "open" {
					return
				}
				c.before(f, endCall)
				f.storeLate(t.Context(), "q")
				q, _ := f.RegistryIndex.Queue("q")
				if _, err := f.SetStreamPhase(t.Context(), "q", q.Revision,
					registry.QueuePhaseOwnStream); err != nil {
					t.Error(err)
				}
			})
			err := m.MoveToOwnStream(ctx, "q", edit.QueueStreamSpec{MaxBytes: 20 << 10})
			if errors.Is(err, context.Canceled) {
				err = nil // the move is complete
			}
			if (err != nil) != c.fails {
				t.Fatal(err)
			}
			if full, ok := errors.AsType[*queuestreams.StreamFullError](err); ok {
				t.Errorf("a repeated call would not copy the ID, but the error is %v", full)
			}
			if c.fails {
				return
			}
			if duplicate, err := f.send(0, "wf", "late"); err != nil || !duplicate {
				t.Errorf("sent again: duplicate: %t, %v", duplicate, err)
			}
		})
	}
}

// An ingress accepts a delivery for the old stream just before the last step of the queue's move is
// stored, but stores the delivery only afterwards. The executor must wait until the delivery is
// stored, and copy its delivery ID to the new stream, too.
func TestAQueueThatOpensLateWhileAnIngressStores(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "q")
	copies, err := f.nc.SubscribeSync(stream.Layout{}.DedupMarkerSubject("q", "-"))
	if err != nil {
		t.Fatal(err)
	}
	var ingress sync.WaitGroup
	m := f.mover(stream.DefaultSettings, func(step string) {
		if step != "open" {
			return
		}
		for {
			if _, err := copies.NextMsg(0); err != nil {
				break // all copies so far have been received
			}
		}
		view, _ := f.ingresses[0].Lookup("wf")
		permit := view.Workflow.AcquirePermit()
		q, _ := f.RegistryIndex.Queue("q")
		ingress.Go(func() {
			_, err := f.SetStreamPhase(t.Context(), "q", q.Revision, registry.QueuePhaseOwnStream)
			if err != nil {
				t.Error(err)
			}
		})
		ingress.Go(func() {
			// The ingress has not stored the delivery yet, so the executor must not start to copy
			// the remaining IDs: it would miss this delivery's ID.
			if _, err := copies.NextMsg(200 * time.Millisecond); err == nil {
				t.Error("the IDs are copied while an ingress still uses the old stream")
			}
			f.storeLate(t.Context(), "q")
			permit.Release()
		})
		retry.Until(t.Context(), time.Millisecond, func() bool {
			q, _ := f.RegistryIndex.Queue("q")
			return q.Record.Stream.Phase == registry.QueuePhaseOwnStream
		})
	})
	if err := m.MoveToOwnStream(t.Context(), "q", edit.QueueStreamSpec{}); err != nil {
		t.Error(err)
	}
	ingress.Wait()
	if duplicate, err := f.send(0, "wf", "late"); err != nil || !duplicate {
		t.Errorf("sent again: duplicate: %t, %v", duplicate, err)
	}
}

// A workflow moves to a queue in another stream. Just before the workflow's new queue is stored, an
// ingress reopens the workflow and stores a delivery in the old stream; and the call that stores
// the queue returns an error although it has succeeded. The executor must still copy that
// delivery's ID to the new stream.
func TestAWorkflowThatOpensLate(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "shared")
	f.workflow("of-p", "p")
	m := f.mover(stream.DefaultSettings, nil)
	if err := m.MoveToOwnStream(t.Context(), "p", edit.QueueStreamSpec{}); err != nil {
		t.Fatal(err)
	}
	change, ok := errors.AsType[*edit.CrossStreamQueueChangeError](f.put(t.Context(), "wf", "p"))
	if !ok {
		t.Fatal("the queues are in the same stream")
	}
	lost := errors.New("the acknowledgment is lost")
	if err := f.moveWorkflow(m, change, func(ctx context.Context) error {
		f.storeLate(ctx, "shared")
		return errors.Join(f.put(ctx, "wf", "p"), lost)
	}); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	if duplicate, err := f.send(0, "wf", "late"); err != nil || !duplicate {
		t.Errorf("sent again: duplicate: %t, %v", duplicate, err)
	}
}

// lossyJetStream is a JetStream that sends the current time to the channel created when it is asked
// to create a stream. It does not block if the channel is full.
type lossyJetStream struct {
	jetstream.JetStream

	created chan time.Time
}

func (l lossyJetStream) CreateStream(
	ctx context.Context, config jetstream.StreamConfig,
) (jetstream.Stream, error) {
	select {
	case l.created <- time.Now():
	default:
	}
	return l.JetStream.CreateStream(ctx, config)
}

// If NATS loses a queue's own stream, Run recreates the stream. It waits a moment before it does
// so, because a server may still be deleting the stream.
func TestALostOwnStreamIsCreatedAgain(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "q")
	if err := f.mover(stream.DefaultSettings, nil).MoveToOwnStream(t.Context(), "q",
		edit.QueueStreamSpec{}); err != nil {
		t.Fatal(err)
	}
	if err := f.JetStream.DeleteStream(t.Context(), stream.OwnStreamName("q")); err != nil {
		t.Fatal(err)
	}
	lost := time.Now()
	created := make(chan time.Time, 1)
	f.JetStream = lossyJetStream{f.JetStream, created}
	running, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	defer done.Wait()
	defer stop()
	done.Go(func() { f.mover(stream.DefaultSettings, nil).Run(running) })
	select {
	case at := <-created:
		if after := at.Sub(lost); after < time.Second || after > 10*time.Second {
			t.Errorf("it is created after %s", after)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it is not created")
	}
}

// If the executor that has closed a queue for a move crashes, the ingresses reopen the queue in its
// old stream by themselves.
func TestAClosedQueueReopensByItself(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "q")
	ctx, kill := context.WithCancel(t.Context())
	first := f.mover(stream.DefaultSettings, func(at string) {
		if at == "closedIn" {
			kill()
		}
	})
	l := f.load("wf")
	l.await(20)
	if err := first.MoveToOwnStream(ctx, "q", edit.QueueStreamSpec{}); err == nil {
		t.Fatal("it was not interrupted")
	}
	q, _ := f.RegistryIndex.Queue("q")
	if q.Record.Stream.Phase != registry.QueuePhaseClosedMovingToOwn {
		t.Fatalf("the queue is %s", q.Record.Stream.Phase)
	}
	l.await(60)
	if err := f.mover(stream.DefaultSettings, nil).MoveToOwnStream(t.Context(), "q",
		edit.QueueStreamSpec{}); err != nil {
		t.Fatal(err)
	}
	l.await(20)
	l.end()
	if l.refused == 0 || l.longest > 15*time.Second { // usually 4.5 s; more on a busy machine
		t.Errorf("%d were refused, for %s at most", l.refused, l.longest)
	}
}

// When a workflow changes its queue, duplicates of earlier deliveries are still recognized, even if
// the queues use different streams.
func TestAWorkflowChangesItsQueue(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "p")
	f.workflow("other", "q")
	m := f.mover(stream.DefaultSettings, nil)
	for _, queue := range []string{"p", "q"} {
		f.workflow("of-"+queue, queue)
		if err := m.MoveToOwnStream(t.Context(), queue, edit.QueueStreamSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	l := f.load("wf", "other")
	for _, queue := range []string{"q", "shared", "p"} {
		l.await(30)
		err := f.put(t.Context(), "wf", queue)
		change, ok := errors.AsType[*edit.CrossStreamQueueChangeError](err)
		if !ok {
			t.Fatalf("to %s: %v", queue, err)
		}
		if err := f.moveWorkflow(m, change, func(ctx context.Context) error {
			return f.put(ctx, "wf", queue)
		}); err != nil {
			t.Fatalf("to %s: %v", queue, err)
		}
		w, _ := f.RegistryIndex.Workflow("wf")
		if w.Record.Queue != queue || w.Record.IntakeClosed {
			t.Errorf("the workflow is %+v", w.Record)
		}
	}
	l.await(30)
	l.end()
}

// MoveWorkflow closes a workflow while it copies the delivery IDs. Until it opens the workflow
// again, only the store function that was passed to MoveWorkflow may change the workflow's queue.
// Other changes of the queue are refused, because they would not copy the delivery IDs. If somebody
// opens and closes the workflow in the meantime, even the store function's change is refused,
// because the IDs of the deliveries that were accepted in between have not been copied.
func TestAClosedWorkflowDoesNotChangeItsQueue(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "shared")
	m := f.mover(stream.DefaultSettings, nil)
	for _, queue := range []string{"p", "q"} {
		f.workflow("of-"+queue, queue)
		if err := m.MoveToOwnStream(t.Context(), queue, edit.QueueStreamSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	if duplicate, err := f.send(0, "wf", "1"); err != nil || duplicate {
		t.Fatal(duplicate, err)
	}
	setClosed := func(closed bool) {
		t.Helper()
		if _, err := f.SetWorkflowIntakeClosed(t.Context(), "wf", closed); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(ctx context.Context, queue string) *edit.CrossStreamQueueChangeError {
		t.Helper()
		err := f.put(ctx, "wf", queue)
		change, ok := errors.AsType[*edit.CrossStreamQueueChangeError](err)
		if !ok {
			t.Fatalf("to %s: %v", queue, err)
		}
		return change
	}
	setClosed(true)      // by a move that was abandoned before it had copied everything
	other := t.Context() // context of a change outside MoveWorkflow
	change := refused(other, "p")
	err := f.moveWorkflow(m, change, func(ctx context.Context) error {
		// Extend the deadline of MoveWorkflow. On a slow machine, the changes below could otherwise
		// fail because of the deadline, and not because they are refused.
		ctx = edit.WithStoreDeadline(ctx, time.Now().Add(time.Minute))
		_ = refused(other, "q")
		_ = refused(ctx, "q")
		// Simulate another move that opens and closes the workflow. Deliveries may have been stored
		// in between, and their IDs are not copied.
		setClosed(false)
		setClosed(true)
		return f.put(ctx, "wf", "p")
	})
	if _, ok := errors.AsType[*edit.CrossStreamQueueChangeError](err); !ok {
		t.Errorf("without the IDs of the latest deliveries: %v", err)
	}
	if w, _ := f.RegistryIndex.Workflow("wf"); w.Record.Queue != "shared" {
		t.Errorf("the workflow is %+v", w.Record)
	}
	if err := f.moveWorkflow(m, change, func(ctx context.Context) error {
		return f.put(ctx, "wf", "p")
	}); err != nil {
		t.Fatal(err)
	}
	if w, _ := f.RegistryIndex.Workflow("wf"); w.Record.Queue != "p" || w.Record.IntakeClosed {
		t.Errorf("the workflow is %+v", w.Record)
	}
	if duplicate, err := f.send(0, "wf", "1"); err != nil || !duplicate {
		t.Errorf("after the move: duplicate %t, %v", duplicate, err)
	}
}

// If the executor that has closed a workflow for a move dies, the ingresses reopen the workflow by
// themselves. A repeated move closes the workflow again.
func TestARepeatedMoveClosesTheWorkflowAgain(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "shared")
	f.workflow("of-p", "p")
	m := f.mover(stream.DefaultSettings, nil)
	if err := m.MoveToOwnStream(t.Context(), "p", edit.QueueStreamSpec{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.SetWorkflowIntakeClosed(t.Context(), "wf", true); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; <-time.After(20 * time.Millisecond) {
		if _, err := f.send(0, "wf", "1"); err == nil {
			break
		} else if !errors.Is(err, errClosed) || time.Since(begin) > 20*time.Second {
			t.Fatal(err)
		}
	}
	change, ok := errors.AsType[*edit.CrossStreamQueueChangeError](f.put(t.Context(), "wf", "p"))
	if !ok {
		t.Fatal("the workflow changes its queue without its delivery IDs")
	}
	sendLate := func() error {
		_, err := f.send(0, "wf", "2")
		return err
	}
	if err := f.moveWorkflow(m, change, func(ctx context.Context) error {
		late := sendLate()
		err := f.put(ctx, "wf", "p")
		if err == nil && !errors.Is(late, errClosed) {
			t.Errorf("after the IDs were copied, the old stream takes a delivery: %v", late)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if duplicate, err := f.send(0, "wf", "1"); err != nil || !duplicate {
		t.Errorf("after the move: duplicate %t, %v", duplicate, err)
	}
}

// If a copy cannot begin because the stream does not respond, MoveWorkflow does not return
// ErrCopyUnfinished, because a repeated call would have nothing to continue.
func TestACopyThatCannotBeginIsNotUnfinished(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "shared")
	f.workflow("of-p", "p")
	if err := f.mover(stream.DefaultSettings, nil).MoveToOwnStream(t.Context(), "p",
		edit.QueueStreamSpec{}); err != nil {
		t.Fatal(err)
	}
	change, ok := errors.AsType[*edit.CrossStreamQueueChangeError](f.put(t.Context(), "wf", "p"))
	if !ok {
		t.Fatal("the queues are in the same stream")
	}
	// Simulate a stream without a leader, which does not respond to requests.
	silent, err := f.nc.SubscribeSync("silent.>")
	if err != nil {
		t.Fatal(err)
	}
	f.JetStream, err = jetstream.NewWithAPIPrefix(f.nc, "silent")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = f.mover(stream.DefaultSettings, nil).MoveWorkflow(ctx, change,
		func(ctx context.Context) error { return f.put(ctx, "wf", "p") })
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, queuestreams.ErrCopyUnfinished) {
		t.Errorf("the move: %v", err)
	}
	if n, _, err := silent.Pending(); n == 0 || err != nil {
		t.Errorf("%d requests were not answered, %v", n, err)
	}
}

// If a call ends before all delivery IDs of a workflow are copied, the workflow keeps its queue.
// The next call continues the copying instead of starting again. There are 20,000 deliveries, and
// progress is stored after each 1,000 copies.
func TestAWorkflowsCopyGoesOn(t *testing.T) {
	t.Parallel()
	const deliveries, beforeProgress = 20_000, 1000
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "p")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range deliveries {
		msg, err := stream.Layout{}.StartMessage(execution.Start{
			ID: execution.IDForDelivery("wf", "node", fmt.Sprint(n)), WorkflowID: "wf",
			NodeID: "node", AccountID: "a", Queue: "p", DeliveryID: fmt.Sprint(n),
			Payload: execution.Payload{Kind: execution.BodyText},
		})
		check(err)
		_, err = f.JetStream.PublishMsgAsync(msg, jetstream.WithStallWait(10*time.Second))
		check(err)
	}
	<-f.JetStream.PublishAsyncComplete()

	// read is the number of messages that the second call had read when it closed the workflow.
	var read uint64
	m := f.mover(stream.DefaultSettings, func(step string) {
		if step == "close workflow" && read == 0 {
			reader, err := f.JetStream.Consumer(t.Context(), stream.ExecutionsName,
				stream.DeliveryIDCopyConsumerName)
			check(err)
			read = reader.CachedInfo().Delivered.Consumer
		}
	})
	own := stream.Layout{Own: true}
	check(m.MoveToOwnStream(t.Context(), "q", edit.QueueStreamSpec{}))
	change, ok := errors.AsType[*edit.CrossStreamQueueChangeError](f.put(t.Context(), "wf", "q"))
	if !ok {
		t.Fatal("the queues are in the same stream")
	}
	store := func(ctx context.Context) error { return f.put(ctx, "wf", "q") }
	first, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	progress, err := f.nc.Subscribe(own.DedupMarkerSubject("q", "copied-wf"),
		func(*nats.Msg) { interrupt() })
	check(err)
	if err := m.MoveWorkflow(first, change, store); !errors.Is(err, context.Canceled) {
		t.Fatalf("it was not interrupted: %v", err)
	}
	check(progress.Unsubscribe())
	if w, _ := f.RegistryIndex.Workflow("wf"); w.Record.Queue != "p" || w.Record.IntakeClosed {
		t.Errorf("after an interrupted call, the workflow is %+v", w.Record)
	}

	began := time.Now()
	check(f.moveWorkflow(m, change, store))
	t.Logf("the second call copied %d messages, %.0f per second", read,
		float64(read)/time.Since(began).Seconds())
	if read > deliveries-beforeProgress+3 { // 3: the markers of both calls
		t.Errorf("the second call has read %d messages", read)
	}
	ids := map[string]bool{}
	check(stream.ForEachMessage(t.Context(), f.JetStream, stream.OwnStreamName("q"),
		jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{own.DedupMarkerSubject("q", "wf")}, HeadersOnly: true,
		}, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
			ids[msg.Headers().Get(jetstream.MsgIDHeader)] = true
			return nil
		}))
	for n := range deliveries {
		if id := execution.IDForDelivery("wf", "node", fmt.Sprint(n)); !ids[id] {
			t.Fatalf("delivery %d was not copied; %d were", n, len(ids))
		}
	}
	for _, n := range []int{0, beforeProgress, deliveries - 1} {
		if duplicate, err := f.send(1, "wf", fmt.Sprint(n)); err != nil || !duplicate {
			t.Errorf("a repeat of delivery %d: duplicate %t, %v", n, duplicate, err)
		}
	}
}

// The new stream holds the stored progress of an earlier copy, but the old stream has lost the last
// message that this copy had read. MoveWorkflow then copies from the beginning, so duplicates are
// still recognized after the move.
func TestACopyBeginsAnew(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "p")
	if _, err := f.send(0, "wf", "1"); err != nil {
		t.Fatal(err)
	}
	m := f.mover(stream.DefaultSettings, nil)
	if err := m.MoveToOwnStream(t.Context(), "q", edit.QueueStreamSpec{}); err != nil {
		t.Fatal(err)
	}
	// Simulate a power failure: the stored progress has the time of a lost message, whose sequence
	// now belongs to another message.
	msg := nats.NewMsg(stream.Layout{Own: true}.DedupMarkerSubject("q", "copied-wf"))
	msg.Header.Set("Hookstart-Copied-Up-To", fmt.Sprintf("%s 1 %d", stream.ExecutionsName,
		time.Now().Add(-time.Second).UnixNano()))
	if _, err := f.JetStream.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
	change, ok := errors.AsType[*edit.CrossStreamQueueChangeError](f.put(t.Context(), "wf", "q"))
	if !ok {
		t.Fatal("the queues are in the same stream")
	}
	expired, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	store := func(ctx context.Context) error { return f.put(ctx, "wf", "q") }
	if err := m.MoveWorkflow(expired, change, store); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without any time left: %v", err)
	}
	if err := f.moveWorkflow(m, change, store); err != nil {
		t.Fatal(err)
	}
	if duplicate, err := f.send(1, "wf", "1"); err != nil || !duplicate {
		t.Errorf("a repeat after the move: duplicate %t, %v", duplicate, err)
	}
}

// A workflow changes its queue within the shared stream, and then the new queue moves to its own
// stream. Duplicates of the deliveries in the earlier queue are still recognized.
func TestIDsOfAnEarlierQueueMoveAlong(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "before")
	if duplicate, err := f.send(0, "wf", "1"); err != nil || duplicate {
		t.Fatal(duplicate, err)
	}
	if err := f.put(t.Context(), "wf", "q"); err != nil {
		t.Fatal(err)
	}
	if err := f.mover(stream.DefaultSettings, nil).MoveToOwnStream(t.Context(), "q",
		edit.QueueStreamSpec{}); err != nil {
		t.Fatal(err)
	}
	if duplicate, err := f.send(1, "wf", "1"); err != nil || !duplicate {
		t.Errorf("a repeat of a delivery from the earlier queue: duplicate %t, %v", duplicate, err)
	}
}

func TestThreeServers(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, 3)
	nc := cluster.Connect(t)
	f := start(t, nc)
	f.workflow("wf", "q")
	m := f.mover(stream.DefaultSettings, nil)
	l := f.load("wf")
	l.await(30)
	if err := m.MoveToOwnStream(t.Context(), "q", edit.QueueStreamSpec{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	own, err := f.JetStream.Stream(t.Context(), stream.OwnStreamName("q"))
	if err != nil || own.CachedInfo().Config.Replicas != 3 {
		t.Errorf("the own stream: %v", err)
	}
	l.await(30)
	if err := m.MoveToShared(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	l.await(30)
	l.end()
	var invalid *edit.InvalidFieldError
	if err := m.MoveToOwnStream(t.Context(), "q",
		edit.QueueStreamSpec{Replicas: 5}); !errors.As(err,
		&invalid) || invalid.Field != "replicas" {
		t.Errorf("more replicas than servers: %v", err)
	}
}

// An ingress in a cluster is killed. The executor cannot know whether the ingress is dead, or only
// unreachable and still accepting requests under its lease. Closing a queue therefore waits until
// the lease has expired, and then the move succeeds.
func TestAMoveAfterAnIngressWasKilled(t *testing.T) {
	t.Parallel()
	server := natstest.StartCluster(t, 3).Node(0)
	f := start(t, server.Connect(t))
	f.workflow("wf", "q")
	link := server.NewProxy(t)
	killed, err := nats.Connect(link.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(killed.Close)
	_, heartbeat := registrytest.StartIngress(t, killed)
	awaitAlive := func(count int) {
		retry.Until(t.Context(), 10*time.Millisecond, func() bool {
			return len(f.Membership.IngressSettings()) == count
		})
	}
	awaitAlive(3)
	link.Silence()
	t.Cleanup(heartbeat.Stop)
	awaitAlive(2)
	m := f.mover(stream.DefaultSettings, nil)
	if err := m.MoveToOwnStream(t.Context(), "q", edit.QueueStreamSpec{}); err != nil {
		t.Error(err)
	}
	if err := m.MoveToShared(t.Context(), "q"); err != nil {
		t.Error(err)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "q")
	m := f.mover(stream.DefaultSettings, nil)
	for _, c := range []struct {
		spec  edit.QueueStreamSpec
		field string
	}{
		{edit.QueueStreamSpec{Replicas: 2}, "replicas"},
		{edit.QueueStreamSpec{Replicas: 3}, "replicas"}, // there is only one server
		{edit.QueueStreamSpec{MaxAge: time.Hour}, "maxAgeSeconds"},
		{edit.QueueStreamSpec{MaxBytes: -1}, "maxBytes"},
		{edit.QueueStreamSpec{PlacementTags: []string{"a b"}}, "placementTags[0]"},
		{edit.QueueStreamSpec{PlacementTags: []string{"ssd"}}, "placementTags"}, // not a cluster
	} {
		var invalid *edit.InvalidFieldError
		if err := m.MoveToOwnStream(t.Context(), "q", c.spec); !errors.As(err, &invalid) ||
			invalid.Field != c.field {
			t.Errorf("%+v: %v", c.spec, err)
		}
	}
	if q, ok := f.RegistryIndex.Queue("q"); ok && q.Record.Stream != nil {
		t.Errorf("a refused setting was stored: %+v", q.Record.Stream)
	}
	for _, bytes := range []int64{1 << 20, 2 << 20} { // the second call only changes the size
		if err := m.MoveToOwnStream(t.Context(), "q",
			edit.QueueStreamSpec{MaxBytes: bytes}); err != nil {
			t.Fatal(err)
		}
		own, err := f.JetStream.Stream(t.Context(), stream.OwnStreamName("q"))
		if err != nil || own.CachedInfo().Config.MaxBytes != bytes {
			t.Errorf("the size is not %d: %v", bytes, err)
		}
	}
	// A change of the stream's settings has a condition, which does not hold. The change is
	// refused, and the stream stays unchanged.
	changed := errors.New("somebody else has changed it")
	ctx := edit.WithQueueCondition(t.Context(), func(q *registry.Queue) error {
		if q.Stream == nil || q.Stream.MaxBytes != 3<<20 {
			return changed
		}
		return nil
	})
	if err := m.MoveToOwnStream(ctx, "q", edit.QueueStreamSpec{MaxBytes: 4 << 20}); !errors.Is(err,
		changed) {
		t.Errorf("a change with a condition that does not hold: %v", err)
	}
	own, err := f.JetStream.Stream(t.Context(), stream.OwnStreamName("q"))
	if err != nil || own.CachedInfo().Config.MaxBytes != 2<<20 {
		t.Errorf("a refused change has changed the stream: %v", err)
	}
	// The condition holds when it is first checked. Then somebody else changes the queue, before
	// the new settings are stored. The change is refused, and the stream keeps its old settings.
	calls := 0
	ctx = edit.WithQueueCondition(t.Context(), func(*registry.Queue) error {
		if calls++; calls == 1 {
			return nil
		}
		return fmt.Errorf("%w: %w", changed, edit.ErrPreconditionFailed)
	})
	if err := m.MoveToOwnStream(ctx, "q", edit.QueueStreamSpec{MaxBytes: 4 << 20}); !errors.Is(err,
		changed) {
		t.Errorf("a change with a condition that holds at first: %v", err)
	}
	own, err = f.JetStream.Stream(t.Context(), stream.OwnStreamName("q"))
	if err != nil || own.CachedInfo().Config.MaxBytes != 2<<20 {
		t.Errorf("a change that was refused late has changed the stream: %v", err)
	}
}

// A queue can leave its own stream even if that stream is full. A full own stream does not affect
// other queues.
func TestAFullOwnStream(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "q")
	f.workflow("neighbour", "other")
	m := f.mover(stream.DefaultSettings, nil)
	if err := m.MoveToOwnStream(t.Context(), "q",
		edit.QueueStreamSpec{MaxBytes: 20 << 10}); err != nil {
		t.Fatal(err)
	}
	var last string
	for i := 0; ; i++ {
		id := fmt.Sprint(i)
		if _, err := f.send(0, "wf", id); err != nil {
			if !strings.Contains(err.Error(), "maximum bytes") || last == "" {
				t.Fatal(err)
			}
			break
		}
		last = id
	}
	if _, err := f.send(0, "neighbour", "1"); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
	if err := m.MoveToShared(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	if duplicate, err := f.send(1, "wf", last); err != nil || !duplicate {
		t.Errorf("a repeat after the move out: duplicate %t, %v", duplicate, err)
	}
	if duplicate, err := f.send(1, "wf", "new"); err != nil || duplicate {
		t.Errorf("a new one after the move out: duplicate %t, %v", duplicate, err)
	}
}

// A queue does not move to a stream in which executions with an order key are still waiting,
// because runners would receive these executions after newer ones.
func TestOrderedExecutionsHoldUpAMove(t *testing.T) {
	t.Parallel()
	f := start(t, natstest.Start(t).Connect(t))
	f.workflow("wf", "q")
	m := f.mover(stream.DefaultSettings, nil)
	own := stream.Layout{Own: true}
	move := func() error { return m.MoveToOwnStream(t.Context(), "q", edit.QueueStreamSpec{}) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(move())
	msg, err := own.StartMessage(execution.Start{
		ID: uuid.NewString(), WorkflowID: "wf", NodeID: "node", AccountID: "a", Queue: "q",
		OrderKey: "k", Payload: execution.Payload{Kind: execution.BodyText},
	})
	check(err)
	_, err = f.JetStream.PublishMsg(t.Context(), msg)
	check(err)
	check(m.MoveToShared(t.Context(), "q")) // nothing waits in the shared stream
	if err := move(); !errors.Is(err, edit.ErrOrderedExecutionsWaiting) {
		t.Fatalf("while an execution waits there: %v", err)
	}

	group := stream.RunnerGroup{Queue: "q", Group: "g"}
	all, err := stream.EnsureRunnerConsumer(t.Context(), f.JetStream, group,
		group.ConsumerConfigForLayout(own, stream.RunnerAckWait))
	check(err)
	lane, err := stream.EnsureRunnerConsumer(t.Context(), f.JetStream, group,
		group.LaneConsumerConfig(execution.LaneOf("wf", "k"), all.CachedInfo()))
	check(err)
	got, err := lane.Next()
	check(err)
	if err := move(); !errors.Is(err, edit.ErrOrderedExecutionsWaiting) {
		t.Fatalf("while a runner has it: %v", err)
	}
	check(got.DoubleAck(t.Context()))
	check(move())
}
