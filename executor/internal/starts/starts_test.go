package starts_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/hookstart/hookstart/executor/internal/starts"
	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

var own = stream.Layout{Own: true}

type rig struct {
	*testing.T
	js     jetstream.JetStream
	bucket jetstream.KeyValue
	starts *starts.Streams
}

func start(t *testing.T) *rig {
	t.Helper()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, js: js, starts: starts.New(js)}
	r.check(stream.EnsureReportsStream(t.Context(), js, 1))
	r.check(stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings))
	r.bucket, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "registry"})
	r.check(err)
	return r
}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// phase sets the phase of queue q, which determines the stream of its start messages.
func (r *rig) phase(phase stream.QueueStreamPhase) {
	r.Helper()
	data, err := proto.Marshal(&hookstartv1.QueueSettings{
		Queue: "q", Stream: &hookstartv1.QueueStream{Phase: hookstartv1.QueueStreamPhase(phase)},
	})
	r.check(err)
	_, err = r.bucket.Put(r.Context(), "queue.q", data)
	r.check(err)
}

// message returns the function that Publish needs to build the start message of the execution with
// the given ID. All of these messages have the delivery ID "d".
func message(id string) func(stream.Layout) (*nats.Msg, error) {
	return func(p stream.Layout) (*nats.Msg, error) {
		return p.StartMessage(execution.Start{
			ID:         id,
			WorkflowID: "wf",
			NodeID:     "node",
			AccountID:  "a",
			Queue:      "q",
			DeliveryID: "d",
			AcceptedAt: time.Now(),
			Payload:    execution.Payload{Kind: execution.BodyText, Body: []byte(id)},
		})
	}
}

// Publish stores a start message in the stream that the queue's phase determines. GetStart finds a
// message in either stream, even if the other stream has another message with the same sequence.
func TestStartsOfBothPlaces(t *testing.T) {
	t.Parallel()
	r := start(t)
	ctx := t.Context()
	var ids []string
	for i, phase := range []stream.QueueStreamPhase{
		stream.QueuePhaseSharedStream, stream.QueuePhaseOwnStream, stream.QueuePhaseMovingToShared,
		stream.QueuePhaseDrainingOwnStream,
	} {
		if i > 0 {
			r.check(stream.EnsureOwnStreams(ctx, r.js, stream.DefaultSettings, "q",
				stream.QueueStreamLimits{}))
			r.phase(phase)
		}
		id := uuid.NewString()
		ids = append(ids, id)
		layout, _ := phase.Layout()
		ack, err := r.starts.Publish(ctx, "q", "wf", message(id))
		if err != nil || ack.Stream != layout.StreamName("q") {
			t.Errorf("phase %d: %+v, %v", phase, ack, err)
		}
	}
	sequences := []uint64{1, 1, 2, 2}
	for i, id := range ids {
		msg, err := r.starts.GetStart(ctx, "q", sequences[i], id)
		if err != nil || msg.Header.Get(stream.HeaderExecutionID) != id {
			t.Errorf("%d: %v, %v", i, msg, err)
		}
		if _, err := r.starts.GetStart(ctx, "q", 3, id); !errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Errorf("%d: a message of another sequence: %v", i, err)
		}
	}
	// After the queue's own stream has been deleted, its start messages are gone, but the ones in
	// the shared stream are still there.
	r.check(stream.DeleteOwnStreams(ctx, r.js, "q"))
	if _, err := r.starts.GetStart(ctx, "q", 1, ids[1]); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("of a deleted stream: %v", err)
	}
	if _, err := r.starts.GetStart(ctx, "q", 1, ids[0]); err != nil {
		t.Error(err)
	}
}

// OldestSequence returns the lower of the first sequences of a queue's two streams. If the queue
// has no own stream, it returns the first sequence of the shared stream.
func TestOldestSequence(t *testing.T) {
	t.Parallel()
	r := start(t)
	ctx := t.Context()
	wantOldest := func(want uint64) {
		t.Helper()
		if got, err := r.starts.OldestSequence(ctx, "q"); err != nil || got != want {
			t.Errorf("%d, %v; want %d", got, err, want)
		}
	}
	publishAndPurge := func(layout stream.Layout, n int, before uint64) {
		t.Helper()
		for range n {
			msg, err := message(uuid.NewString())(layout)
			r.check(err)
			_, err = r.js.PublishMsg(ctx, msg)
			r.check(err)
		}
		s, err := r.js.Stream(ctx, layout.StreamName("q"))
		r.check(err)
		r.check(s.Purge(ctx, jetstream.WithPurgeSequence(before)))
	}
	publishAndPurge(stream.Layout{}, 6, 5)
	wantOldest(5)
	r.check(stream.EnsureOwnStreams(ctx, r.js, stream.DefaultSettings, "q",
		stream.QueueStreamLimits{}))
	publishAndPurge(own, 4, 4)
	wantOldest(4)
	publishAndPurge(own, 4, 8)
	wantOldest(5)
	r.check(stream.DeleteOwnStreams(ctx, r.js, "q"))
	r.check(r.js.DeleteStream(ctx, stream.ExecutionsName))
	if _, err := r.starts.OldestSequence(ctx, "q"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("without the shared stream: %v", err)
	}
}

// While a queue is closed for a move, Publish waits. When the queue opens, Publish stores the
// message. If the queue stays closed, Publish stores nothing and returns an error.
func TestAStartWaitsForAMove(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.check(stream.EnsureOwnStreams(t.Context(), r.js, stream.DefaultSettings, "q",
		stream.QueueStreamLimits{}))
	r.phase(stream.QueuePhaseClosedMovingToOwn)
	asked, err := r.js.Conn().SubscribeSync("$JS.API.STREAM.MSG.GET.KV_registry")
	r.check(err)
	type result struct {
		ack *jetstream.PubAck
		err error
	}
	done := make(chan result, 1)
	go func() {
		ack, err := r.starts.Publish(t.Context(), "q", "wf", message(uuid.NewString()))
		done <- result{ack, err}
	}()
	for range 2 { // the second request shows that Publish retries
		if _, err := asked.NextMsgWithContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.phase(stream.QueuePhaseOwnStream)
	if got := <-done; got.err != nil || got.ack.Stream != "QUEUE_q" {
		t.Errorf("%+v", got)
	}

	r.phase(stream.QueuePhaseClosedMovingToShared)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := r.starts.Publish(ctx, "q", "wf", message(uuid.NewString())); err == nil {
		t.Error("a start was stored though its queue is closed")
	}
}

// The queue moves to another stream while Publish stores a start message in the old one. Publish
// also stores the message's ID in the new stream, where the same message then counts as a
// duplicate.
func TestAMoveMeanwhile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after stream.QueueStreamPhase
		repeat        stream.Layout
	}{
		"in":         {stream.QueuePhaseMovingToOwn, stream.QueuePhaseOwnStream, own},
		"in, closed": {stream.QueuePhaseMovingToOwn, stream.QueuePhaseClosedMovingToOwn, own},
		"out": {
			stream.QueuePhaseMovingToShared, stream.QueuePhaseDrainingOwnStream,
			stream.Layout{},
		},
		"out, complete": {
			stream.QueuePhaseMovingToShared, stream.QueuePhaseSharedStream,
			stream.Layout{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			r.check(stream.EnsureOwnStreams(t.Context(), r.js, stream.DefaultSettings, "q",
				stream.QueueStreamLimits{}))
			r.phase(c.before)
			id := uuid.NewString()
			_, err := r.starts.Publish(t.Context(), "q", "wf",
				func(p stream.Layout) (*nats.Msg, error) {
					r.phase(c.after)
					return message(id)(p)
				})
			r.check(err)
			again, err := message(id)(c.repeat)
			r.check(err)
			if ack, err := r.js.PublishMsg(t.Context(), again); err != nil || !ack.Duplicate {
				t.Errorf("a repeat in the other stream: %+v, %v", ack, err)
			}
		})
	}
}
