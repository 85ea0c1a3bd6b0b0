package recorder_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// keep stores a record of an execution with the given status, and returns the execution's ID. age
// is the time since the execution was accepted. No stream has its start message.
func (r *rig) keep(age time.Duration, status execution.Status) (id string) {
	r.t.Helper()
	return r.keepIn("q", age, status)
}

// keepIn is like keep, for an execution of the given queue.
func (r *rig) keepIn(queue string, age time.Duration, status execution.Status) (id string) {
	r.t.Helper()
	at := store.StoredTime(time.Now().Add(-age))
	record := store.Record{
		ID:             uuid.NewString(),
		WorkflowID:     "wf",
		NodeID:         "node",
		AccountID:      "a",
		Queue:          queue,
		Source:         execution.SourceWebhook,
		Status:         status,
		AcceptedAt:     at,
		RecordedAt:     at,
		StreamSequence: 1,
	}
	_, err := r.store.Apply(r.t.Context(), store.Batch{NewRecords: []store.Record{record}})
	if err != nil {
		r.t.Fatal(err)
	}
	return record.ID
}

var errTooSlow = errors.New("canceling statement due to statement timeout")

// The database rejects queries that would read too many executions, so the search reads windows of
// at most a day. After a failed query, it continues where it stopped. Later searches do not go back
// to the oldest execution.
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
		windows []store.RecordFilter // the windows in which queued executions were listed
		failed  int                  // the number of windows read before the query that failed
	)
	r.store.listing = func(filter store.RecordFilter) error {
		mu.Lock()
		defer mu.Unlock()
		if filter.Since.IsZero() || filter.Until.Sub(filter.Since) > day+time.Second {
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
	// passes returns, for each completed search, how far back it went. A search reads windows from
	// the newest to the oldest, so this is the beginning of its last window.
	passes := func() (oldest []time.Time) {
		mu.Lock()
		defer mu.Unlock()
		for i, w := range windows[1:] {
			if !w.Until.Before(windows[i].Until) { // the next search began here
				oldest = append(oldest, windows[i].Since)
			}
		}
		return oldest
	}
	r.await("it has searched again", func() bool { return len(passes()) > 2 })
	oldest := passes()
	if time.Since(oldest[0]) < 300*day {
		t.Errorf("the first search ended at %v", oldest[0])
	}
	if time.Since(oldest[2]) > 20*day {
		t.Errorf("a later search ended at %v", oldest[2])
	}
	mu.Lock()
	defer mu.Unlock()
	if failed == 0 || windows[failed].Until.After(windows[failed-1].Since) {
		t.Errorf("after a failure, it began anew: %v", windows)
	}
	if !strings.Contains(r.logs.String(), errTooSlow.Error()) {
		t.Error("the failure was not logged")
	}
}

// Executions that were lost in a power failure are among the newest. They are ended before the
// search has read the older executions, and even if the older ones cannot be read.
func TestTheNewestLostExecutionsAreEndedFirst(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.stop()
	const day = 24 * time.Hour
	for age := 300 * day; age > 0; age -= 20 * day {
		r.keep(age, execution.Rejected)
	}
	lost := r.keep(10*time.Minute, execution.Queued)
	r.store.listing = func(filter store.RecordFilter) error {
		if time.Since(filter.Since) > 10*day {
			return errTooSlow
		}
		return nil
	}
	r.stop = r.again()
	r.await("it has failed", func() bool { return r.has(lost, execution.Failed) })
}

// An execution is recorded late: searches for lost executions have already passed its acceptance
// time, so later searches do not find it. After NoteRecordedLate has been called with that time,
// the next search finds it and ends it as failed.
func TestALostExecutionThatWasRecordedLate(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.stop()
	var searched atomic.Int64
	r.store.listing = func(filter store.RecordFilter) error {
		if filter.Status == execution.Running {
			searched.Add(1)
		}
		return nil
	}
	r.keep(10*time.Minute, execution.Rejected)
	r.searchEvery = 20 * time.Millisecond
	r.stop = r.again()
	r.await("it has searched", func() bool { return searched.Load() > 1 })
	const age = 3 * 24 * time.Hour
	late := r.keep(age, execution.Queued)
	// Wait for at least one complete search, which must not find the late execution. A search calls
	// List for running executions at most twice, even if it reads all executions: once for the
	// newest execution and once for the late one. So a complete search has ended after four more
	// calls.
	since := searched.Load()
	r.await("it has searched again", func() bool { return searched.Load() > since+3 })
	if !r.has(late, execution.Queued) {
		t.Error("each search reads all executions")
	}
	r.recorder.NoteRecordedLate(time.Now().Add(-age - time.Minute))
	r.await("it has failed", func() bool { return r.has(late, execution.Failed) })
}

// If a start message is stored and recorded long after its execution was accepted, and is then
// lost, the next search for lost executions still finds the execution, although earlier searches
// have passed its acceptance time.
func TestALostExecutionWhoseStartWasStoredLate(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.stop()
	var searched atomic.Int64
	r.store.listing = func(filter store.RecordFilter) error {
		if filter.Status == execution.Running {
			searched.Add(1)
		}
		return nil
	}
	r.keep(10*time.Minute, execution.Rejected)
	r.searchEvery = 20 * time.Millisecond
	r.stop = r.again()
	// Wait until the first search, which reads all executions, has ended. It calls List for running
	// executions at most twice, so the fourth call belongs to a later search.
	r.await("it has searched", func() bool { return searched.Load() > 3 })
	late := uuid.NewString()
	r.publish(stream.StartMessage(execution.Start{
		ID: late, WorkflowID: "wf", NodeID: "node", AccountID: "a", Queue: "q",
		Source: execution.SourceEvent, AcceptedAt: time.Now().Add(-5 * time.Hour),
		Payload: execution.Payload{Kind: execution.BodyText, Body: []byte("x")},
	}))
	r.await("it is recorded", func() bool { return r.has(late, execution.Queued) })
	record, err := r.store.Get(t.Context(), late)
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.js.Stream(t.Context(), stream.ExecutionsName)
	if err == nil {
		err = s.DeleteMsg(t.Context(), record.StreamSequence)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.await("it has failed", func() bool { return r.has(late, execution.Failed) })
}

// One of two groups of runners has acknowledged the start message of an execution without a report,
// and the other group is offline. While the recorder searches for executions that no runner will
// end, the other group comes online and receives the start message. The search does not end the
// execution.
func TestAGroupThatComesOnlineDuringTheSearch(t *testing.T) {
	t.Parallel()
	r := start(t)
	group := func(name string) jetstream.Consumer {
		t.Helper()
		consumer, err := r.js.CreateConsumer(t.Context(), stream.ExecutionsName,
			stream.RunnerGroup{Queue: "q", Group: name}.ConsumerConfig(15*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return consumer
	}
	away, present := group("away"), group("present")
	id := r.begin("wf")
	r.await("it is recorded", func() bool { return r.has(id, execution.Queued) })
	msg, err := present.Next(jetstream.FetchMaxWait(5 * time.Second))
	if err == nil {
		err = msg.DoubleAck(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	var searched atomic.Int64
	var received atomic.Bool
	r.store.listing = func(filter store.RecordFilter) error {
		if filter.Status == execution.Queued && searched.Add(1) == 1 {
			_, err := away.Next(jetstream.FetchMaxWait(30 * time.Second))
			received.Store(err == nil)
			return err
		}
		return nil
	}
	r.searchEvery = 20 * time.Millisecond
	r.stop = r.again()
	r.await("it has searched again", func() bool { return searched.Load() > 1 })
	if !received.Load() {
		t.Fatal("the group received nothing during the search")
	}
	if !r.has(id, execution.Queued) {
		t.Error("it was ended, though a group handles it")
	}
}

// A runner that does not use the kits, with a consumer of another name and filter, acknowledges a
// start message without a report: the execution is ended as failed. Another one is not ended as
// long as a group of the kits, which is offline, has not received it.
func TestAnUnreportedExecutionOfAForeignRunner(t *testing.T) {
	t.Parallel()
	r := start(t)
	foreign := jetstream.ConsumerConfig{
		Durable:        "mine",
		FilterSubjects: []string{"executions.start.*.*.*"},
		AckPolicy:      jetstream.AckExplicitPolicy,
	}
	take := func(consumer jetstream.Consumer) {
		t.Helper()
		msg, err := consumer.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err == nil {
			err = msg.DoubleAck(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	mine, err := r.js.CreateConsumer(t.Context(), stream.ExecutionsName, foreign)
	if err != nil {
		t.Fatal(err)
	}
	unreported := r.begin("wf")
	take(mine)
	offline := stream.RunnerGroup{Queue: "q", Group: "offline"}.ConsumerConfig(15 * time.Second)
	offline.DeliverPolicy = jetstream.DeliverNewPolicy
	if _, err := r.js.CreateConsumer(t.Context(), stream.ExecutionsName, offline); err != nil {
		t.Fatal(err)
	}
	waiting := r.begin("wf")
	take(mine)
	r.await("both are recorded", func() bool {
		return r.has(unreported, execution.Queued) && r.has(waiting, execution.Queued)
	})
	r.stop()
	r.stop = r.again()
	r.await("it has failed", func() bool { return r.has(unreported, execution.Failed) })
	if !r.has(waiting, execution.Queued) {
		t.Error("an execution was ended that a group has not received")
	}
}

// The group "tap" receives only messages that are stored after it was created. It acknowledges a
// start message without a report, so the execution is ended as failed. Three earlier executions
// still wait for the group "away", which is offline. They are not ended, although "tap" has
// acknowledged a later message.
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
