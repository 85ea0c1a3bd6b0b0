package recorder_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

var own = stream.Layout{Own: true}

// ownStreams creates the streams that only the queue "q" uses.
func (r *rig) ownStreams() {
	r.t.Helper()
	if err := stream.EnsureOwnStreams(r.t.Context(), r.js, stream.DefaultSettings, "q",
		stream.QueueStreamLimits{}); err != nil {
		r.t.Fatal(err)
	}
}

// beginIn publishes a start message of the queue q, and returns the execution ID. The layout at
// decides whether the message is stored in the queue's own stream or in the shared stream.
func (r *rig) beginIn(at stream.Layout) string {
	r.t.Helper()
	id := uuid.NewString()
	r.publish(at.StartMessage(execution.Start{
		ID:         id,
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "a",
		Queue:      "q",
		Source:     execution.SourceWebhook,
		AcceptedAt: time.Now(),
		Payload:    execution.Payload{Kind: execution.BodyText},
		TokenID:    "t",
	}))
	return id
}

func (r *rig) progressIn(at stream.Layout, id string, status execution.Status) {
	r.t.Helper()
	r.publish(at.ProgressMessage("q", "wf", "node", "", execution.Progress{
		ID:     id,
		Status: status,
		At:     time.Now(),
	}))
}

// takeFromOwnStream receives the next message of the queue q's own stream, as another executor
// would. The caller must acknowledge it.
func (r *rig) takeFromOwnStream() jetstream.Msg {
	r.t.Helper()
	executors, err := r.js.Consumer(r.t.Context(), "QUEUE_q", stream.RecorderConsumerName)
	if err != nil {
		r.t.Fatal(err)
	}
	msg, err := executors.Next()
	if err != nil {
		r.t.Fatal(err)
	}
	return msg
}

// unrecorded returns the number of messages in a stream that the recorder has not acknowledged. If
// the stream or the recorder's consumer does not exist yet, unrecorded returns 1, so that callers
// keep waiting.
func (r *rig) unrecorded(name string) int64 {
	r.t.Helper()
	consumer, err := r.js.Consumer(r.t.Context(), name, stream.RecorderConsumerName)
	if errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrStreamNotFound) {
		return 1 // about to be created
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return stream.Unacknowledged(consumer.CachedInfo())
}

// hasStream reports whether a metric has a value that is labeled with the stream.
func (r *rig) hasStream(metric, name string) bool {
	_, ok := r.counted()[metric+" "+name]
	return ok
}

// A recorder records a queue's own streams completely, in addition to the shared streams. It does
// not matter whether they are created before the recorder starts or while it is running, or whether
// they were deleted and created again. Markers, which consist of only a message ID, are not
// recorded.
func TestAnOwnStreamIsRecorded(t *testing.T) {
	t.Parallel()
	r := start(t)
	before := r.begin("wf")
	r.await("the shared stream is recorded", func() bool { return r.has(before, execution.Queued) })
	for range 2 {
		r.ownStreams()
		first, sharedOne := r.beginIn(own), r.begin("wf")
		for n := range 20 {
			r.publish(own.DedupMarkerMessage("q", "wf", fmt.Sprint("remembered-", n)), nil)
			r.publish(stream.Layout{}.DedupMarkerMessage("q", "wf",
				fmt.Sprint("remembered-", uuid.NewString())), nil)
		}
		r.progressIn(own, first, execution.Succeeded)
		r.progress(sharedOne, execution.Succeeded)
		r.await("both have ended", func() bool {
			return r.has(first, execution.Succeeded) && r.has(sharedOne, execution.Succeeded)
		})
		second := r.beginIn(own)
		r.await("the start is recorded", func() bool { return r.has(second, execution.Queued) })
		r.stop()
		third := r.beginIn(own)
		r.progressIn(own, second, execution.Failed)
		r.progressIn(own, third, execution.Succeeded)
		r.stop = r.again()
		r.await("all have ended", func() bool {
			return r.has(second, execution.Failed) && r.has(third, execution.Succeeded)
		})
		for _, name := range []string{
			"QUEUE_q", "PROGRESS_q", stream.ExecutionsName,
			stream.ProgressName,
		} {
			r.await("everything is acknowledged", func() bool { return r.unrecorded(name) == 0 })
		}
		r.await("the lag is known", func() bool {
			return r.hasStream("hookstart_executor_lag_messages", "QUEUE_q") &&
				r.hasStream("hookstart_executor_progress_lag_messages", "PROGRESS_q") &&
				r.hasStream("hookstart_executor_stream_bytes", "QUEUE_q")
		})
		if letters := r.aside(); len(letters) != 0 {
			t.Errorf("dead letters: %+v", letters)
		}
		if err := stream.DeleteOwnStreams(t.Context(), r.js, "q"); err != nil {
			t.Fatal(err)
		}
		r.await("the deleted stream has no lag", func() bool {
			return !r.hasStream("hookstart_executor_lag_messages", "QUEUE_q") &&
				!r.hasStream("hookstart_executor_stream_replicas", "QUEUE_q")
		})
		if !r.hasStream("hookstart_executor_lag_messages", stream.ExecutionsName) {
			t.Error("the shared stream has no lag")
		}
	}
	all, err := r.store.List(t.Context(), store.RecordFilter{}, store.RecordPosition{}, 100)
	if err != nil || len(all) != 9 {
		t.Errorf("%d records, %v", len(all), err)
	}
	after := r.begin("wf")
	r.await("the shared stream is recorded on", func() bool {
		return r.has(after, execution.Queued)
	})
}

// One stream has a large backlog. The messages of another stream still wait for only a few batches.
func TestABacklogStarvesNoOtherStream(t *testing.T) {
	t.Parallel()
	for name, places := range map[string][2]stream.Layout{
		"in an own stream": {own, {}}, "in the shared stream": {{}, own},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			r.ownStreams()
			r.stop()
			r.deliverAgain = 10 * time.Second // also lets transactions take longer
			full, quiet := places[0], places[1]
			const backlog = 20_000
			for range backlog {
				msg, err := full.StartMessage(execution.Start{
					ID:         uuid.NewString(),
					WorkflowID: "wf",
					NodeID:     "node",
					AccountID:  "a",
					Queue:      "q",
					Source:     execution.SourceWebhook,
					AcceptedAt: time.Now(),
					Payload:    execution.Payload{Kind: execution.BodyText},
				})
				if err == nil {
					_, err = r.js.PublishMsgAsync(msg, jetstream.WithStallWait(10*time.Second))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			<-r.js.PublishAsyncComplete()
			r.store.mu.Lock()
			r.store.slow = 200 * time.Millisecond // per batch
			r.store.mu.Unlock()
			r.stop = r.again()
			r.await("the backlog is being recorded", func() bool {
				r.store.mu.Lock()
				defer r.store.mu.Unlock()
				return r.store.applied > 0
			})
			id := r.beginIn(quiet)
			r.progressIn(quiet, id, execution.Succeeded)
			r.await("the quiet stream is recorded", func() bool {
				return r.has(id, execution.Succeeded)
			})
			if left := r.unrecorded(full.StreamName("q")); left < backlog/4 {
				t.Errorf("only %d of %d messages of the backlog were left", left, backlog)
			}
		})
	}
}

// The database is replaced with an older copy. The recorder records the acknowledged messages of a
// queue's own streams again.
func TestADatabaseThatLacksAnOwnStream(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ownStreams()
	known := r.beginIn(own)
	r.await("it is recorded", func() bool { return r.has(known, execution.Queued) })
	copied := r.copied()
	later, sharedOne := r.beginIn(own), r.begin("wf")
	r.progressIn(own, known, execution.Succeeded)
	r.progressIn(own, later, execution.Failed)
	r.await("all is recorded", func() bool {
		return r.has(known, execution.Succeeded) && r.has(later, execution.Failed) &&
			r.has(sharedOne, execution.Queued) &&
			r.unrecorded("QUEUE_q")+r.unrecorded("PROGRESS_q")+r.pending() == 0
	})
	r.putBack(copied)
	r.await("all is recorded again", func() bool {
		return r.has(known, execution.Succeeded) && r.has(later, execution.Failed) &&
			r.has(sharedOne, execution.Queued)
	})
	r.await("the recovery ends", func() bool {
		return r.counted()["hookstart_executor_rewinds_total database"] > 0 &&
			len(r.ops.Readiness.NotReadyReasons()) == 0
	})
}

// TestAnOwnStreamThatHasToBeComparedAgain starts a recorder with a database that may have been
// replaced, while another executor holds an unacknowledged message of a queue's own stream. Because
// of this message, the recorder cannot yet find out whether the database lacks later messages of
// that stream, and the executor is not ready. The search for lost executions nevertheless covers
// the shared streams, which count as completely recorded.
func TestAnOwnStreamThatHasToBeComparedAgain(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ownStreams()
	sharedOne, first := r.begin("wf"), r.beginIn(own)
	r.await("they are recorded", func() bool {
		return r.has(sharedOne, execution.Queued) && r.has(first, execution.Queued) &&
			r.unrecorded("QUEUE_q")+r.pending() == 0
	})
	r.stop()
	second := r.beginIn(own)
	held := r.takeFromOwnStream()
	r.deliverAgain, r.noSearch = time.Minute, true
	r.stop = r.again()
	r.await("it is not known whether the database lacks something", func() bool {
		return len(r.ops.Readiness.NotReadyReasons()) == 1
	})
	if err := r.recorder.CheckSharedRecorded(t.Context()); err != nil {
		t.Errorf("the shared streams: %v", err)
	}
	if err := held.Nak(); err != nil {
		t.Fatal(err)
	}
	r.await("it is recorded", func() bool { return r.has(second, execution.Queued) })
	r.await("it is ready", func() bool { return len(r.ops.Readiness.NotReadyReasons()) == 0 })
}

// When a search for lost executions begins, a queue's own stream is not completely recorded. It is
// completely recorded before the search ends. The search has ignored executions of that queue, so
// the next search begins soon.
func TestASearchThatIgnoredAnOwnStreamIsRepeatedSoon(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ownStreams()
	first := r.beginIn(own)
	r.await("it is recorded", func() bool {
		return r.has(first, execution.Queued) && r.unrecorded("QUEUE_q")+r.pending() == 0
	})
	r.stop()
	lost := r.keepIn("other", 10*time.Minute, execution.Queued)
	r.beginIn(own)
	held := r.takeFromOwnStream()
	var once sync.Once
	begun, mayGoOn, maxAges := make(chan struct{}), make(chan struct{}), make(chan time.Duration, 1)
	r.store.listing = func(store.RecordFilter) error {
		once.Do(func() {
			close(begun)
			<-mayGoOn
		})
		return nil
	}
	r.searchInterval = func(maxAge time.Duration) time.Duration {
		select {
		case maxAges <- maxAge:
		default:
		}
		return time.Hour
	}
	r.deliverAgain = time.Minute
	r.stop = r.again()
	<-begun // the search has ignored the own stream
	if err := held.Nak(); err != nil {
		t.Fatal(err)
	}
	r.await("the own stream is recorded", func() bool {
		return r.unrecorded("QUEUE_q") == 0 && len(r.ops.Readiness.NotReadyReasons()) == 0
	})
	close(mayGoOn)
	if age := <-maxAges; age != 0 {
		t.Errorf("the search says that all streams were read, with a maximum age of %s", age)
	}
	if !r.has(lost, execution.Failed) {
		t.Error("the lost execution of another queue was not ended, so no stream was read again")
	}
}

// A queue's own stream is lost and created again, and new start messages get the same sequences.
// The new messages are recorded. The executions of the lost messages are ended as failed. Runners
// receive copies of the new start messages that their consumer would skip.
func TestAnOwnStreamThatWasTakenBack(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ownStreams()
	var lost []string
	for range 3 {
		lost = append(lost, r.beginIn(own))
	}
	r.await("all are recorded", func() bool { return r.has(lost[2], execution.Queued) })
	r.stop()
	if err := r.js.DeleteStream(t.Context(), "QUEUE_q"); err != nil {
		t.Fatal(err)
	}
	r.ownStreams()
	var since []string
	for range 4 {
		since = append(since, r.beginIn(own))
	}
	r.takenOf("QUEUE_q", recordersConsumer, 3)
	runners := r.takenOf("QUEUE_q",
		stream.RunnerGroup{Queue: "q", Group: "g"}.ConsumerConfigForLayout(own, 15*time.Second), 3)
	r.stop = r.again()
	for _, id := range since {
		r.await("what was accepted since is recorded", func() bool {
			return r.has(id, execution.Queued)
		})
	}
	for _, id := range lost {
		r.await("what was lost has failed", func() bool { return r.has(id, execution.Failed) })
	}
	batch, err := runners.Fetch(4, jetstream.FetchMaxWait(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for msg := range batch.Messages() {
		got[msg.Headers().Get(stream.HeaderExecutionID)]++
	}
	for _, id := range since {
		if got[id] != 1 {
			t.Errorf("the runners were given %s %d times", id, got[id])
		}
	}
}

// The search for executions that no runner will end covers the shared stream and the queue's own
// stream. It does not end executions whose start messages are waiting in either stream. It ends an
// execution whose start message is gone, and one whose start message a runner acknowledged without
// a report.
func TestLostStartsOfBothPlaces(t *testing.T) {
	t.Parallel()
	r := start(t)
	oldPlace := r.begin("wf") // the shared stream's first message
	r.await("it is recorded", func() bool { return r.has(oldPlace, execution.Queued) })
	r.ownStreams()
	// The start messages of unheard and oldPlace have the same sequence, but in different streams.
	// The search must not confuse them.
	unheard := r.beginIn(own)
	waiting, gone := r.beginIn(own), r.beginIn(own)
	r.await("all are recorded", func() bool {
		return r.has(unheard, execution.Queued) && r.has(waiting, execution.Queued) &&
			r.has(gone, execution.Queued)
	})
	r.takenOf("QUEUE_q",
		stream.RunnerGroup{Queue: "q", Group: "g"}.ConsumerConfigForLayout(own, 15*time.Second), 1)
	s, err := r.js.Stream(t.Context(), "QUEUE_q")
	if err == nil {
		err = s.DeleteMsg(t.Context(), 3)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.searchEvery = 50 * time.Millisecond
	r.stop = r.again()
	for id, reason := range map[string]string{
		gone:    "its start was lost",
		unheard: "without a report",
	} {
		r.await("it has failed", func() bool { return r.has(id, execution.Failed) })
		if record, err := r.store.Get(t.Context(), id); err != nil ||
			!strings.Contains(record.Error, reason) {
			t.Errorf("%q, %v", record.Error, err)
		}
	}
	for _, id := range []string{oldPlace, waiting} {
		if !r.has(id, execution.Queued) {
			t.Errorf("%s was ended, though its start waits", id)
		}
	}
}
