package recorder_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/recorder"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// taken makes a consumer of the stream of starts that has acknowledged so many messages.
func (r *rig) taken(config jetstream.ConsumerConfig, messages int) jetstream.Consumer {
	r.t.Helper()
	consumer, err := r.js.CreateOrUpdateConsumer(r.t.Context(), stream.Name, config)
	if err != nil {
		r.t.Fatal(err)
	}
	batch, err := consumer.Fetch(messages, jetstream.FetchMaxWait(5*time.Second))
	if err != nil {
		r.t.Fatal(err)
	}
	for msg := range batch.Messages() {
		if err := msg.DoubleAck(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
	if info, err := consumer.Info(r.t.Context()); err != nil || info.AckFloor.Stream != uint64(messages) {
		r.t.Fatalf("acknowledged up to %d, %v", info.AckFloor.Stream, err)
	}
	return consumer
}

var (
	recordersConsumer = jetstream.ConsumerConfig{
		Durable: recorder.Durable, Description: "hookstart: the executors record every message",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: 5 * time.Second, MaxAckPending: 10_000, DeliverPolicy: jetstream.DeliverAllPolicy,
	}
	runnersConsumer = stream.RunnerGroup{Queue: "q", Group: "g"}.ConsumerConfig(15 * time.Second)
)

// A power cut took the stream back, and it has grown again past what its consumers had acknowledged: what was
// accepted since is recorded and run, and what was lost has an end.
func TestAStreamThatWasTakenBack(t *testing.T) {
	t.Parallel()
	r := start(t)
	var lost []string
	for range 5 {
		lost = append(lost, r.begin("wf"))
	}
	r.progress(lost[0], execution.Succeeded)
	r.await("all are recorded", func() bool { return r.has(lost[0], execution.Succeeded) && r.has(lost[4], execution.Queued) })
	r.stop()

	if err := errors.Join(r.js.DeleteStream(t.Context(), stream.Name), stream.Ensure(t.Context(), r.js, stream.DefaultSettings)); err != nil {
		t.Fatal(err)
	}
	var since []string
	for range 8 {
		since = append(since, r.begin("wf"))
	}
	r.taken(recordersConsumer, 5)
	runners := r.taken(runnersConsumer, 5)
	r.stop = r.again()

	for _, id := range since {
		r.await("what was accepted since is recorded", func() bool { return r.has(id, execution.Queued) })
	}
	for _, id := range lost[1:] {
		r.await("what was lost has failed", func() bool { return r.has(id, execution.Failed) })
		if record, err := r.store.Get(t.Context(), id); err != nil || !strings.Contains(record.Error, "its start was lost") {
			t.Errorf("%q, %v", record.Error, err)
		}
	}
	if !r.has(lost[0], execution.Succeeded) {
		t.Error("an end that was reported has changed")
	}
	batch, err := runners.Fetch(8, jetstream.FetchMaxWait(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for msg := range batch.Messages() {
		got[msg.Headers().Get(stream.HeaderExecutionID)] = true
	}
	for _, id := range since {
		if !got[id] {
			t.Errorf("the runners were not given %s", id)
		}
	}
}

// The database was lost, not the stream: nothing is run again.
func TestADatabaseThatWasLostRewindsNothing(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.stop()
	if err := r.js.DeleteConsumer(t.Context(), stream.Name, recorder.Durable); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Fatal(err)
	}
	var before []string
	for range 5 {
		before = append(before, r.begin("wf"))
	}
	r.taken(recordersConsumer, 5)
	runners := r.taken(runnersConsumer, 5)
	r.stop = r.again()
	after := r.begin("wf")
	r.await("it goes on", func() bool { return r.has(after, execution.Queued) })
	for _, id := range before {
		if _, err := r.store.Get(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if info, err := runners.Info(t.Context()); err != nil || info.AckFloor.Stream != 5 {
		t.Errorf("the runners' consumer: %+v, %v", info, err)
	}
}
