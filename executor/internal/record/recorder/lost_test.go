package recorder_test

import (
	"errors"
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

// keep stores the record of an execution whose start message the stream does not have.
func (r *rig) keep(age time.Duration, status execution.Status) (id string) {
	r.t.Helper()
	at := store.StoredTime(time.Now().Add(-age))
	record := store.Record{
		ID:             uuid.NewString(),
		WorkflowID:     "wf",
		NodeID:         "node",
		AccountID:      "a",
		Queue:          "q",
		Source:         execution.SourceWebhook,
		Status:         status,
		AcceptedAt:     at,
		RecordedAt:     at,
		StreamSequence: 1,
	}
	_, err := r.store.Apply(r.t.Context(), store.Batch{New: []store.Record{record}})
	if err != nil {
		r.t.Fatal(err)
	}
	return record.ID
}

var errTooSlow = errors.New("canceling statement due to statement timeout")

// A database with so many executions that a query of all of them takes longer than a query may
// take: the search reads them in windows of time. After a failure, it goes on where it was, and the
// next search does not begin at the oldest execution again.
func TestTheSearchForLostExecutionsOfALargeDatabase(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.stop()
	const day = 24 * time.Hour
	for age := 300 * day; age > 0; age -= 20 * day {
		r.keep(age, execution.Rejected)
	}
	r.keep(10*time.Minute, execution.Rejected)
	lost := r.keep(30*day+time.Hour, execution.Queued)
	var (
		mu      sync.Mutex
		windows []store.RecordFilter // of queued executions, as they were asked for
		failed  int                  // the number of windows before the failure
	)
	r.store.listing = func(filter store.RecordFilter) error {
		mu.Lock()
		defer mu.Unlock()
		if filter.Since.IsZero() || filter.Until.Sub(filter.Since) > day {
			return errTooSlow
		}
		if filter.Status == execution.Queued {
			if len(windows) == 5 && failed == 0 {
				failed = len(windows)
				return errTooSlow
			}
			windows = append(windows, filter)
		}
		return nil
	}
	r.searchEvery = 20 * time.Millisecond
	r.stop = r.again()
	r.await("it has failed", func() bool { return r.has(lost, execution.Failed) })
	pass := func() (oldest time.Time, n int) {
		mu.Lock()
		defer mu.Unlock()
		for i, w := range windows[1:] {
			if !w.Since.After(windows[i].Since) { // the next search
				oldest, n = w.Since, n+1
			}
		}
		return oldest, n
	}
	r.await("it has searched again", func() bool { _, n := pass(); return n > 1 })
	if oldest, _ := pass(); time.Since(oldest) > 20*day {
		t.Errorf("the next search began at %v", oldest)
	}
	mu.Lock()
	defer mu.Unlock()
	if failed == 0 || windows[failed].Since.Before(windows[failed-1].Until) {
		t.Errorf("after a failure, it began anew: %v", windows)
	}
	if !strings.Contains(r.logs.String(), errTooSlow.Error()) {
		t.Error("the failure was not logged")
	}
}

// A group that takes new executions only has acknowledged none of those that waited when it began.
func TestAGroupOfNewExecutionsEndsNoEarlierOnes(t *testing.T) {
	t.Parallel()
	r := start(t)
	group := func(name string, from jetstream.DeliverPolicy) jetstream.Consumer {
		t.Helper()
		config := stream.RunnerGroup{Queue: "q", Group: name}.ConsumerConfig(15 * time.Second)
		config.DeliverPolicy = from
		consumer, err := r.js.CreateConsumer(t.Context(), stream.ExecutionsName, config)
		if err != nil {
			t.Fatal(err)
		}
		return consumer
	}
	group("away", jetstream.DeliverAllPolicy)
	waiting := []string{r.begin("wf"), r.begin("wf"), r.begin("wf")}
	tap := group("tap", jetstream.DeliverNewPolicy)
	unreported := r.begin("wf")
	r.await("it is recorded", func() bool { return r.has(unreported, execution.Queued) })
	msg, err := tap.Next(jetstream.FetchMaxWait(5 * time.Second))
	if err == nil {
		err = msg.DoubleAck(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.stop = r.again()
	r.await("it has failed", func() bool { return r.has(unreported, execution.Failed) })
	for _, id := range waiting {
		if !r.has(id, execution.Queued) {
			t.Errorf("%s was ended, though its group has not received it", id)
		}
	}
}
