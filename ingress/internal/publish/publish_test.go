package publish_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/ingress/internal/publish"
	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/stream"
)

// connect connects to the servers at urls, with the options that an ingress uses and those in
// extra.
func connect(t *testing.T, urls string, extra ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := bus.Connect(t.Context(), bus.Options{
		URL:            urls,
		ConnectTimeout: 20 * time.Second,
		Log:            logtest.Discard(),
		Extra:          extra,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func newPublisher(
	t *testing.T, nc *nats.Conn, replicas int, timeout time.Duration,
) *publish.StreamPublisher {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	settings := stream.DefaultSettings
	settings.Replicas = replicas
	if err := stream.EnsureSharedStreams(t.Context(), js, settings); err != nil {
		t.Fatal(err)
	}
	p, err := publish.New(t.Context(), nc, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// message returns a start message for a delivery ID. "" means a message without a delivery ID. All
// messages belong to the same trace but have different spans, by which Publish recognizes them.
func message(t *testing.T, deliveryID string) *nats.Msg {
	t.Helper()
	id := uuid.NewString()
	if deliveryID != "" {
		id = execution.IDForDelivery("wf", "node", deliveryID)
	}
	msg, err := stream.StartMessage(execution.Start{
		ID:         id,
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "a",
		Queue:      "q",
		DeliveryID: deliveryID,
		Payload:    execution.Payload{Kind: execution.BodyText},
		Trace:      fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-%016x-01", rand.Uint64()),
	})
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// counts returns how many messages the stream holds for each execution ID.
func counts(t *testing.T, nc *nats.Conn) map[string]int {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.OrderedConsumer(t.Context(), stream.ExecutionsName,
		jetstream.OrderedConsumerConfig{})
	for tries := 1; tries < 6 && errors.Is(err, context.DeadlineExceeded); tries++ {
		// Retry: no server answers while a cluster elects a leader.
		consumer, err = js.OrderedConsumer(t.Context(), stream.ExecutionsName,
			jetstream.OrderedConsumerConfig{})
	}
	if err != nil {
		t.Fatal(err)
	}
	// Use an iterator, which switches to another server if a node of the cluster has just stopped.
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Stop()
	all := map[string]int{}
	for {
		msg, err := messages.Next(jetstream.NextMaxWait(20 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		all[msg.Headers().Get(stream.HeaderExecutionID)]++
		meta, err := msg.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		if meta.NumPending == 0 {
			return all
		}
	}
}

// In a cluster, the server responds to some concurrent repeats with "in process". Publish never
// returns that response to its callers. Exactly one of the concurrent calls stores the message, and
// the others report a duplicate.
func TestConcurrentRepeatsOnACluster(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, 3)
	publishers := []*publish.StreamPublisher{
		newPublisher(t, connect(t, cluster.URLs()), 3, 30*time.Second),
		newPublisher(t, connect(t, cluster.Node(1).URL()), 3, 30*time.Second),
	}
	for round := range 100 {
		var (
			wg     sync.WaitGroup
			firsts atomic.Int32
		)
		for n := range 16 {
			msg := message(t, fmt.Sprint(round))
			wg.Go(func() {
				ack, err := publishers[n%2].Publish(msg, nil)
				if err != nil {
					t.Error(err)
				}
				if !ack.Duplicate {
					firsts.Add(1)
				}
			})
		}
		wg.Wait()
		if firsts.Load() != 1 {
			t.Fatalf("round %d: %d were the first", round, firsts.Load())
		}
	}
	for id, n := range counts(t, cluster.Connect(t)) {
		if n != 1 {
			t.Errorf("%s is %d times in the stream", id, n)
		}
	}
}

// During leader elections, every message with a delivery ID is stored once and confirmed. The
// caller of Publish sees no errors.
func TestLeadersThatGoAreNotNoticed(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, 3)
	p := newPublisher(t, connect(t, cluster.URLs()), 3, 30*time.Second)
	var (
		wg    sync.WaitGroup
		acked sync.Map
		total atomic.Int32
	)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for sender := range 8 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				msg := message(t, fmt.Sprintf("%d-%d", sender, n))
				ack, err := p.Publish(msg, nil) //nolint:contextcheck // a message is not given up
				if err != nil || ack.Duplicate {
					t.Errorf("%+v, %v", ack, err)
					return
				}
				acked.Store(msg.Header.Get(stream.HeaderExecutionID), true)
				total.Add(1)
			}
		})
	}
	for range 3 {
		leader := cluster.Leader(stream.ExecutionsName)
		cluster.Stop(leader)
		before := total.Load()
		tick := time.NewTicker(5 * time.Millisecond)
		for total.Load() < before+50 && !t.Failed() {
			<-tick.C
		}
		tick.Stop()
		cluster.Restart(leader)
	}
	stop()
	wg.Wait()
	stored := counts(t, cluster.Connect(t))
	acked.Range(func(id, _ any) bool {
		if key, _ := id.(string); stored[key] != 1 {
			t.Errorf("%v is %d times in the stream", id, stored[key])
		}
		return true
	})
	t.Logf("%d acknowledged over three changes of leader", total.Load())
}

// While the server is unavailable, Publish returns an error quickly, and the message is not stored
// later.
func TestNoGhosts(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := connect(t, server.URL())
	p := newPublisher(t, nc, 1, 3*time.Second)
	if _, err := p.Publish(message(t, "before"), nil); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	for n := range 5 {
		deliveryID := ""
		if n%2 == 0 {
			deliveryID = fmt.Sprint(n)
		}
		_, err := p.Publish(message(t, deliveryID), nil)
		if !errors.Is(err, publish.ErrUnavailable) || errors.Is(err, publish.ErrOutcomeUnknown) {
			t.Errorf("while the server is away: %v", err)
		}
	}
	server.Restart()
	for { // the client reconnects by itself
		ack, err := p.Publish(message(t, "after"), nil)
		if err == nil {
			if ack.Duplicate {
				t.Error("the first one after is called a duplicate")
			}
			break
		}
	}
	if ack, err := p.Publish(message(t, "before"), nil); err != nil || !ack.Duplicate ||
		ack.Sequence != 1 {
		t.Errorf("a repeat over the restart: %+v, %v", ack, err)
	}
	if stored := counts(t, server.Connect(t)); len(stored) != 2 {
		t.Errorf("%d messages are stored, want 2", len(stored))
	}
}

// reconnectGrace counts from the time at which the connection is found to be lost, not from the
// first attempt. Here, as when the server's host dies, attempts get no reply for longer than
// reconnectGrace before the connection breaks. Publish still waits for the reconnect and stores the
// message.
func TestAConnectionThatIsLostLate(t *testing.T) {
	t.Parallel()
	network := natstest.Start(t).NewProxy(t)
	nc := connect(t, network.URL(), nats.ReconnectWait(10*time.Millisecond),
		nats.ReconnectJitter(0, 0))
	p := newPublisher(t, nc, 1, 30*time.Second)
	network.Silence()
	before := nc.Stats().OutMsgs
	msg, done := message(t, "1"), make(chan error, 1)
	go func() {
		_, err := p.Publish(msg, nil)
		done <- err
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for nc.Stats().OutMsgs < before+2 { // until the message has been sent twice
		select {
		case <-tick.C:
		case err := <-done:
			t.Fatalf("before the message was sent twice: %v", err)
		}
	}
	network.DropConnections() // the client waits before it connects again
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// If the server hangs, Publish may return an error for a message with a delivery ID although the
// server stores it later. When the message is sent again, it is recognized, so it is stored only
// once.
func TestAServerThatHangs(t *testing.T) {
	t.Parallel()
	server := natstest.StartProcess(t)
	p := newPublisher(t, connect(t, server.URL()), 1, 1500*time.Millisecond)
	server.Pause()
	if _, err := p.Publish(message(t, "1"), nil); !errors.Is(err, publish.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	server.Resume()
	for {
		if _, err := p.Publish(message(t, "1"), nil); err == nil {
			break
		}
	}
	for id, n := range counts(t, server.Connect(t)) {
		if n != 1 {
			t.Errorf("%s is %d times in the stream", id, n)
		}
	}
}

// The server does not reply to the first attempt. Publish sends a message with a delivery ID again,
// and the stream may reply that it knows the ID. Publish reports a repeat, unless the stored
// message has the same traceparent, which shows that this call has stored it. A stored message that
// has no traceparent, or another span of the same trace, is from another request. A message without
// a delivery ID is not sent twice.
func TestNoAnswerAtFirst(t *testing.T) {
	t.Parallel()
	server := natstest.StartProcess(t)
	nc := connect(t, server.URL())
	p := newPublisher(t, nc, 1, 30*time.Second)
	if _, err := p.Publish(message(t, "known"), nil); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	untraced := message(t, "known without a trace")
	untraced.Header.Del(stream.HeaderTrace)
	if _, err := js.PublishMsg(t.Context(), untraced); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	before := nc.Stats().OutMsgs
	var wg sync.WaitGroup
	for deliveryID, duplicate := range map[string]bool{
		"known":                 true,
		"known without a trace": true,
		"new":                   false,
		"":                      false,
	} {
		msg := message(t, deliveryID)
		wg.Go(func() {
			if ack, err := p.Publish(msg, nil); err != nil || ack.Duplicate != duplicate {
				t.Errorf("delivery ID %q: %+v, %v", deliveryID, ack, err)
			}
		})
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for nc.Stats().OutMsgs < before+7 { // three messages have been sent again
		select {
		case <-tick.C:
		case <-done:
			t.Fatal("all have ended before three messages were sent again")
		}
	}
	server.Resume()
	<-done
	stored := counts(t, server.Connect(t))
	for id, n := range stored {
		if n != 1 {
			t.Errorf("%s is %d times in the stream", id, n)
		}
	}
	if len(stored) != 4 {
		t.Errorf("%d messages are stored, want 4", len(stored))
	}
}

// While a stored message cannot be read, it is unknown whether this request or an earlier one
// stored it. Publish then returns an error: a sender must never be told that its first request is a
// repeat.
func TestUnknownIsNoRepeat(t *testing.T) {
	t.Parallel()
	server := natstest.StartProcess(t)
	nc := connect(t, server.URL())
	p := newPublisher(t, nc, 1, 4*time.Second)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	readable := func(direct bool) {
		t.Helper()
		config := stream.DefaultSettings.ExecutionsStreamConfig()
		config.AllowDirect = direct
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	readable(false) // the publisher tries to read the message, and gets no answer
	server.Pause()
	before := nc.Stats().OutMsgs
	msg, refused := message(t, "first"), make(chan error, 1)
	go func() {
		ack, err := p.Publish(msg, nil)
		if err == nil {
			err = fmt.Errorf("accepted: %+v", ack)
		}
		refused <- err
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for nc.Stats().OutMsgs < before+2 { // until the message has been sent twice
		select {
		case <-tick.C:
		case err := <-refused:
			t.Fatalf("before the message was sent twice: %v", err)
		}
	}
	server.Resume()
	if err := <-refused; !errors.Is(err, publish.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	readable(true)
	if ack, err := p.Publish(message(t, "first"), nil); err != nil || !ack.Duplicate {
		t.Errorf("sent again: %+v, %v", ack, err)
	}
	for id, n := range counts(t, server.Connect(t)) {
		if n != 1 {
			t.Errorf("%s is %d times in the stream", id, n)
		}
	}
}

// LastFailure reports that a message was not stored, until another message is stored or
// failureExpiry has passed.
func TestTroubleIsRemembered(t *testing.T) {
	t.Parallel()
	nc := connect(t, natstest.Start(t).URL())
	p := newPublisher(t, nc, 1, 20*time.Second)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	bound := func(bytes int64) {
		t.Helper()
		config := stream.DefaultSettings.ExecutionsStreamConfig()
		config.MaxBytes = bytes
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	_, err = p.Publish(message(t, "first"), nil)
	if err != nil || p.LastFailure(time.Now()) != nil {
		t.Fatalf("%v, %v", err, p.LastFailure(time.Now()))
	}
	bound(1)
	if _, err := p.Publish(message(t, "second"), nil); !errors.Is(err, publish.ErrStorageFull) ||
		!errors.Is(p.LastFailure(time.Now()), publish.ErrStorageFull) {
		t.Errorf("a full stream: %v, %v", err, p.LastFailure(time.Now()))
	}
	if ack, err := p.Publish(message(t, "first"), nil); err != nil || !ack.Duplicate ||
		p.LastFailure(time.Now()) == nil {
		t.Errorf("a repeat, which stores nothing: %+v, %v, %v", ack, err, p.LastFailure(time.Now()))
	}
	if err := p.LastFailure(time.Now().Add(time.Minute)); err != nil {
		t.Errorf("a minute later: %v", err)
	}
	bound(-1)
	_, err = p.Publish(message(t, "second"), nil)
	if err != nil || p.LastFailure(time.Now()) != nil {
		t.Errorf("after there is room: %v, %v", err, p.LastFailure(time.Now()))
	}
}

// When the storage limit of the whole server is reached, Publish returns the same error as for a
// full stream, even if the stream itself has no limit.
func TestAServerWithoutRoom(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, func(o *embednats.Options) { o.MaxStore = 40 << 20 })
	nc := connect(t, server.URL())
	p := newPublisher(t, nc, 1, 20*time.Second)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	other, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(message(t, "known"), nil); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = js.Publish(t.Context(), "OTHER", make([]byte, 1000<<10))
	}
	if stream.ErrorCode(err) != stream.CodeInsufficientResources {
		t.Fatal(err)
	}
	if _, err := p.Publish(message(t, "new"), nil); !errors.Is(err, publish.ErrStorageFull) ||
		!errors.Is(p.LastFailure(time.Now()), publish.ErrStorageFull) {
		t.Errorf("%v, %v", err, p.LastFailure(time.Now()))
	}
	if ack, err := p.LookupDuplicate(message(t, "known")); err != nil || !ack.Duplicate {
		t.Errorf("a repeat: %+v, %v", ack, err)
	}
	if err := other.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(message(t, "new"), nil); err != nil || p.LastFailure(time.Now()) != nil {
		t.Errorf("after there is room: %v, %v", err, p.LastFailure(time.Now()))
	}
}

// If a message exceeds the stream's maximum length, Publish returns ErrTooLong, because retrying
// cannot help.
func TestAMessageTooLongForTheStream(t *testing.T) {
	t.Parallel()
	nc := connect(t, natstest.Start(t).URL())
	p := newPublisher(t, nc, 1, 20*time.Second)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	config := stream.DefaultSettings.ExecutionsStreamConfig()
	config.MaxMsgSize = 10
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(message(t, "long"), nil); !errors.Is(err, publish.ErrTooLong) {
		t.Errorf("%v", err)
	}
}

// LookupDuplicate recognizes a message whose ID is in the deduplication window. For any other
// message, it returns an error. It never stores the message.
func TestRepeat(t *testing.T) {
	t.Parallel()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		repeat(t, connect(t, natstest.Start(t).URL()), 1)
	})
	t.Run("three servers", func(t *testing.T) {
		t.Parallel()
		repeat(t, connect(t, natstest.StartCluster(t, 3).URLs()), 3)
	})
}

func repeat(t *testing.T, nc *nats.Conn, replicas int) {
	p := newPublisher(t, nc, replicas, 20*time.Second)
	if _, err := p.Publish(message(t, "known"), nil); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, rollup := range []bool{false, true} {
		config := stream.DefaultSettings.ExecutionsStreamConfig()
		config.Replicas, config.AllowRollup = replicas, rollup
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		if ack, err := p.LookupDuplicate(message(t, "known")); err != nil || !ack.Duplicate ||
			ack.Sequence != 1 {
			t.Errorf("a repeat: %+v, %v", ack, err)
		}
		for _, deliveryID := range []string{"new", ""} {
			ack, err := p.LookupDuplicate(message(t, deliveryID))
			if !errors.Is(err, publish.ErrStorageFull) || ack != (publish.Ack{}) {
				t.Errorf("delivery ID %q: %+v, %v", deliveryID, ack, err)
			}
		}
	}
	if ack, err := p.Publish(message(t, "new"), nil); err != nil || ack.Duplicate {
		t.Errorf("its first request: %+v, %v", ack, err)
	}
	for id, n := range counts(t, nc) {
		if n != 1 {
			t.Errorf("%s is %d times in the stream", id, n)
		}
	}
}

func TestPublishingAfterTheEnd(t *testing.T) {
	t.Parallel()
	nc := connect(t, natstest.Start(t).URL())
	js, err := jetstream.New(nc)
	if err == nil {
		err = stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := publish.New(t.Context(), nc, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if _, err := p.Publish(message(t, ""), nil); !errors.Is(err, publish.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// countedChoice is a StreamChoice. Its value is the number of further calls to IsCurrent that
// return true.
type countedChoice int

func (c *countedChoice) IsCurrent() bool {
	*c--
	return *c >= 0
}

// A message is not sent again once the choice of its stream is no longer current: the queue may
// have moved to another stream, which would not recognize a repeat of a message that is stored now.
// Here the choice is current for two resends, so the message is sent three times.
func TestNothingIsSentAgainToAStreamNoLongerChosen(t *testing.T) {
	t.Parallel()
	nc := connect(t, natstest.Start(t).URL())
	var sent atomic.Int32
	leaderless, err := nc.Subscribe("executions.start.>", func(msg *nats.Msg) {
		sent.Add(1)
		_ = msg.Respond([]byte(`{"error":{"code":503,"err_code":10008}}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = leaderless.Unsubscribe() })
	p, err := publish.NewForStream(nc, stream.ExecutionsName, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	choice := countedChoice(2)
	if ack, err := p.Publish(message(t, "1"), &choice); !errors.Is(err, publish.ErrUnavailable) {
		t.Errorf("%+v, %v", ack, err)
	}
	if n := sent.Load(); n != 3 {
		t.Errorf("the message was sent %d times, want 3", n)
	}
}
