package recorder_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// beginMany publishes the given number of start messages without waiting for each acknowledgement,
// and returns the execution IDs.
func (r *rig) beginMany(count int) (ids []string) {
	r.t.Helper()
	for range count {
		id := uuid.NewString()
		ids = append(ids, id)
		msg, err := stream.StartMessage(execution.Start{
			ID:         id,
			WorkflowID: "wf",
			NodeID:     "node",
			AccountID:  "a",
			Queue:      "q",
			Source:     execution.SourceWebhook,
			AcceptedAt: time.Now(),
			Payload:    execution.Payload{Kind: execution.BodyText, Body: []byte("x")},
		})
		if err == nil {
			_, err = r.js.PublishMsgAsync(msg, jetstream.WithStallWait(time.Minute))
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	<-r.js.PublishAsyncComplete()
	return ids
}

// allRecorded waits until executions are recorded and acknowledged, and checks that the server has
// delivered each message once.
func (r *rig) allRecorded(ids []string) {
	r.t.Helper()
	// Wait for the records first: the consumer may not have counted the last messages yet, and
	// pending would then return 0 too early.
	r.await("all are recorded", func() bool {
		for some := range slices.Chunk(ids, store.MaxGetMany) {
			records, err := r.store.GetMany(r.t.Context(), some)
			if err != nil {
				r.t.Fatal(err)
			}
			if len(records) != len(some) {
				return false
			}
		}
		return true
	})
	r.await("all is acknowledged", func() bool { return r.pending() == 0 })
	consumer, err := r.js.Consumer(r.t.Context(), stream.ExecutionsName,
		stream.RecorderConsumerName)
	if err != nil {
		r.t.Fatal(err)
	}
	if given := consumer.CachedInfo().Delivered; given.Consumer != given.Stream {
		r.t.Errorf("the server gave %d messages for %d", given.Consumer, given.Stream)
	}
}

// Many messages arrive in a burst. The recorder records them in few transactions, and the server
// delivers each of them only once. A single message after the burst is recorded, too.
func TestBursts(t *testing.T) {
	r := start(t)
	r.stop()
	r.deliverAgain = 5 * time.Second // the default; if it is set, transactions may take longer, too
	r.stop = r.again()
	const count = 3_000
	r.allRecorded(r.beginMany(count))
	r.store.mu.Lock()
	applied := r.store.applied
	r.store.mu.Unlock()
	if applied > count/20 {
		t.Errorf("%d transactions for %d messages", applied, count)
	}
	r.allRecorded([]string{r.begin("wf")})
}

// While the database is slow, the server redelivers neither the messages that are being recorded
// nor those that are waiting.
func TestASlowDatabase(t *testing.T) {
	r := start(t)
	r.stop()
	r.deliverAgain = 3 * time.Second
	r.store.mu.Lock()
	r.store.slow = 6600 * time.Millisecond
	r.store.mu.Unlock()
	r.stop = r.again()
	ids := r.beginMany(3)
	r.await("the first is being recorded", func() bool {
		r.store.mu.Lock() // held while the first one is being recorded
		defer r.store.mu.Unlock()
		return r.store.applied > 0
	})
	r.allRecorded(append(ids, r.beginMany(500)...))
}
