package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// rig is an Events with a registry, a database and a stream. The account on-pro has the workflows
// orders and alerts, and its events start the workflow alerts.
type rig struct {
	*registrytest.Registry
	*Events
	t     *testing.T
	store store.Store
	token string // token of the trigger node of the workflow orders
	taken uint64 // the sequence of the last message that the method executions has read
}

func start(t *testing.T, setting registry.EventSubscription) *rig {
	t.Helper()
	nc := natstest.Start(t).Connect(t, nats.ReconnectBufSize(-1))
	r := &rig{t: t, Registry: registrytest.Start(t, nc)}
	records, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "hookstart.db"))
	r.check(err)
	t.Cleanup(func() { _ = records.Close() })
	r.store = records
	waits, err := queues.New(queues.Config{
		Conn:             nc,
		JetStream:        r.JetStream,
		QueueNames:       r.RegistryIndex.QueueNames,
		Settings:         r.RegistryIndex.QueueSettings,
		RecorderConsumer: "executor",
	})
	r.check(err)
	t.Cleanup(waits.Stop)
	r.token = r.CreateWorkflow(t, "orders", "pro", true)
	r.CreateWorkflow(t, "alerts", "pro", false)
	setting.WorkflowID = "alerts"
	_, _, err = r.PutEventSubscription(t.Context(), "on-pro", setting)
	r.check(err)
	r.Events = New(Config{
		Store:                      records,
		RegistryIndex:              r.RegistryIndex,
		JetStream:                  r.JetStream,
		Queues:                     waits,
		ExecutorID:                 "here",
		Log:                        logtest.Discard(),
		RegistryIndexComplete:      func() bool { return true },
		EnsureRegistryIndexCurrent: r.EnsureCurrent,
		AwaitRecorded:              func(context.Context, string) {},
		DedupWindow:                stream.DefaultSettings.DedupWindow,
	})
	records.SetFailureCauseFunc(r.FailureCause)
	return r
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// id returns the n-th execution ID.
func id(n int) string { return fmt.Sprintf("%08x-0000-8000-8000-%012x", n, n) }

// failures records a failed execution of a workflow for each number n with from <= n < to. Its ID
// is id(n).
func (r *rig) failures(workflowID string, from, to int) {
	r.t.Helper()
	now := time.Now()
	var batch store.Batch
	for n := from; n < to; n++ {
		batch.NewRecords = append(batch.NewRecords, store.Record{
			ID:             id(n),
			AccountID:      "on-pro",
			WorkflowID:     workflowID,
			NodeID:         "node",
			Queue:          "default",
			Source:         execution.SourceWebhook,
			Status:         execution.Queued,
			AcceptedAt:     now,
			RecordedAt:     now,
			StreamSequence: uint64(n) + 1,
		})
		batch.Progress = append(batch.Progress, execution.Progress{
			ID:         id(n),
			Queue:      "default",
			WorkflowID: workflowID,
			Status:     execution.Failed,
			At:         now.Add(time.Duration(n) * time.Microsecond),
			Error:      fmt.Sprint("error ", n),
		})
	}
	_, err := r.store.Apply(r.t.Context(), batch)
	r.check(err)
}

// turn does what Run does at each interval: it turns causes into events and publishes the events.
func (r *rig) turn() {
	r.t.Helper()
	r.check(r.turnCausesIntoEvents(r.t.Context()))
	r.check(r.publishEvents(r.t.Context()))
}

// executions returns the start messages published since the last call, with their inputs.
func (r *rig) executions() (starts []*execution.Start, inputs []ExecutionInput) {
	r.t.Helper()
	executions, err := r.JetStream.Stream(r.t.Context(), stream.ExecutionsName)
	r.check(err)
	for {
		msg, err := executions.GetMsg(r.t.Context(), r.taken+1)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return starts, inputs
		}
		r.check(err)
		r.taken = msg.Sequence
		event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
		r.check(err)
		var input ExecutionInput
		r.check(json.Unmarshal(event.Start.Payload.Body, &input))
		starts, inputs = append(starts, event.Start), append(inputs, input)
	}
}

func kindsOf(inputs []ExecutionInput) (kinds []string) {
	for _, i := range inputs {
		kinds = append(kinds, i.Kind)
	}
	slices.Sort(kinds)
	return kinds
}

func (r *rig) wantKinds(kinds ...string) []ExecutionInput {
	r.t.Helper()
	_, inputs := r.executions()
	if got := kindsOf(inputs); !slices.Equal(got, kinds) {
		r.t.Errorf("events %q, want %q", got, kinds)
	}
	return inputs
}

func TestAFailureStartsOneExecution(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{})
	r.failures("orders", 0, 1)
	r.turn()
	r.turn()
	starts, inputs := r.executions()
	if len(starts) != 1 {
		t.Fatalf("%+v", inputs)
	}
	s, i := starts[0], inputs[0]
	if s.WorkflowID != "alerts" || s.NodeID != "node" || s.AccountID != "on-pro" ||
		s.Queue != "default" || s.Source != execution.SourceEvent ||
		s.DeliveryID != "execution.failed:"+id(0) ||
		s.ID != execution.IDForDelivery("alerts", "node", execution.MarkEventID(s.DeliveryID)) {
		t.Errorf("%+v", s)
	}
	if i.Kind != registry.EventExecutionFailed || i.AccountID != "on-pro" ||
		i.WorkflowID != "orders" ||
		i.ExecutionID != id(0) || i.Count != 1 ||
		i.Text != "Execution "+id(0)+" of workflow orders failed: error 0" ||
		i.At.IsZero() {
		t.Errorf("%+v", i)
	}
	// The ID of the event's execution is computed from its delivery ID, which is the event's ID.
	// The execution can therefore be found by the event's ID.
	record := store.Record{
		ID:         s.ID,
		AccountID:  s.AccountID,
		WorkflowID: s.WorkflowID,
		NodeID:     s.NodeID,
		Queue:      s.Queue,
		Source:     s.Source,
		Status:     execution.Queued,
		DeliveryID: s.DeliveryID,
		AcceptedAt: s.AcceptedAt,
		RecordedAt: s.AcceptedAt,
	}
	if !record.HasIDFromDelivery() {
		t.Error("the record's ID is not computed from the delivery ID")
	}
}

// If a process crashes after any step, the next process completes the remaining steps, and each
// event starts only one execution.
func TestAnEventSurvivesAProcess(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{})
	r.failures("orders", 0, 3)
	r.check(r.turnCausesIntoEvents(t.Context())) // then the process crashes
	next := New(r.config)
	waiting, err := r.store.UnpublishedEvents(t.Context(), nil, 10)
	r.check(err)
	if len(waiting) != 3 {
		t.Fatalf("%+v", waiting)
	}
	// The next process publishes the events, but crashes before marking them as published.
	published, _, err := next.publishBatch(t.Context(), waiting, map[string]bool{})
	r.check(err)
	if len(published) != 3 {
		t.Fatalf("%q", published)
	}
	r.turn()
	if _, inputs := r.executions(); len(inputs) != 3 {
		t.Errorf("%+v", inputs)
	}
	// If an event has waited longer than the deduplication window, publishBatch first looks up the
	// event's execution. Here, the execution is already recorded, so the event is not published
	// again.
	old := waiting[0]
	old.DecidedAt = time.Now().Add(-2 * r.config.DedupWindow)
	caughtUp := false
	r.config.AwaitRecorded = func(ctx context.Context, _ string) {
		caughtUp = true
		_, err := r.store.Apply(ctx, store.Batch{NewRecords: []store.Record{{
			ID:         executionID(old),
			AccountID:  "on-pro",
			WorkflowID: "alerts",
			NodeID:     "node",
			Queue:      "default",
			Source:     execution.SourceEvent,
			Status:     execution.Queued,
			DeliveryID: old.ID,
			AcceptedAt: old.DecidedAt,
			RecordedAt: old.DecidedAt,
		}}})
		r.check(err)
	}
	executions, err := r.JetStream.Stream(t.Context(), stream.ExecutionsName)
	r.check(err)
	r.check(executions.Purge(t.Context()))
	r.taken = executions.CachedInfo().State.LastSeq
	published, _, err = r.publishBatch(t.Context(), []store.Event{old}, map[string]bool{})
	if err != nil || len(published) != 1 || !caughtUp {
		t.Errorf("%q, %v, caught up: %v", published, err, caughtUp)
	}
	if _, inputs := r.executions(); len(inputs) != 0 {
		t.Errorf("an old event was published again: %+v", inputs)
	}
}

// decided stores n events that start the given workflow. Their decision time is the given one. The
// store creates events only in place of causes, so decided first records a failed execution of the
// workflow orders, which provides a cause.
func (r *rig) decided(workflowID string, n int, at time.Time) {
	r.failures("orders", 1_000, 1_001)
	r.t.Helper()
	w, ok := r.RegistryIndex.Workflow(workflowID)
	if !ok {
		r.t.Fatalf("no workflow %s", workflowID)
	}
	r.check(r.store.DecideEvents(r.t.Context(), at, at, nil, func(
		causes []store.EventCause, _ []store.Event,
	) (made []store.Event, used []string) {
		for _, c := range causes {
			used = append(used, c.ID)
		}
		for i := range n {
			made = append(made, newEvent(at, []store.EventCause{{
				ID:        fmt.Sprint(workflowID, " ", i),
				AccountID: w.Record.AccountID,
				Kind:      registry.EventExecutionFailed,
				At:        at,
			}}, w.Record))
		}
		return made, used
	}))
}

// moveToOwnStream moves a queue to a stream of its own, which has the given maximum size.
func (r *rig) moveToOwnStream(queue string, maxBytes int64) {
	r.t.Helper()
	runnertest.NewIngress(r.t, r.JetStream.Conn()).MoveToOwnStream(r.t, queue)
	r.resizeOwnStream(queue, maxBytes)
}

func (r *rig) resizeOwnStream(queue string, maxBytes int64) {
	r.t.Helper()
	own, err := r.JetStream.Stream(r.t.Context(), stream.OwnStreamName(queue))
	r.check(err)
	config := own.CachedInfo().Config
	config.MaxBytes = maxBytes
	_, err = r.JetStream.UpdateStream(r.t.Context(), config)
	r.check(err)
}

// A queue whose stream is full does not delay the events of other queues, even if the full queue
// has many older events. A queue whose events must wait until its streams are recorded does not
// delay other queues either.
func TestAFullQueueStopsNoOther(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{})
	r.CreateWorkflow(t, "stuck", "free", false)
	_, _, err := r.PutWorkflow(t.Context(), edit.WorkflowSpec{
		ID: "stuck", AccountID: "on-free", Name: "stuck", Queue: "full",
		Triggers: []edit.TriggerSpec{{NodeID: "node"}},
	})
	r.check(err)
	r.moveToOwnStream("full", 1)
	r.decided("stuck", maxPublishBatch+1, time.Now().Add(-time.Minute))
	r.failures("orders", 0, 1)
	r.check(r.turnCausesIntoEvents(t.Context()))
	if err := r.publishEvents(t.Context()); stream.ErrorCode(err) != stream.CodeStoreFailed {
		t.Errorf("publish: %v", err)
	}
	r.wantKinds(registry.EventExecutionFailed)

	// Mark a batch of older events as published, so that all waiting events fit into one batch from
	// now on.
	older, err := r.store.UnpublishedEvents(t.Context(), nil, maxPublishBatch)
	r.check(err)
	for _, event := range older {
		r.check(r.store.MarkEventsPublished(t.Context(), []string{event.ID}, time.Now()))
	}
	r.resizeOwnStream("full", -1)
	r.config.DedupWindow = time.Minute // so short that publish calls AwaitRecorded for these events
	r.config.AwaitRecorded = func(ctx context.Context, queue string) {
		if queue == "full" {
			<-ctx.Done()
		}
	}
	r.failures("orders", 1, 2)
	r.check(r.turnCausesIntoEvents(t.Context()))
	brief, cancel := context.WithTimeout(t.Context(), loopPassTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.publishEvents(brief) }()
	executions, err := r.JetStream.Stream(t.Context(), stream.ExecutionsName)
	r.check(err)
	retry.Until(brief, 10*time.Millisecond, func() bool {
		_, err := executions.GetMsg(brief, r.taken+1)
		return err == nil
	})
	cancel()
	if err := <-done; err == nil {
		t.Error("publish does not wait")
	}
	r.wantKinds(registry.EventExecutionFailed)

	r.config.AwaitRecorded = func(context.Context, string) {}
	r.check(r.publishEvents(t.Context()))
	if left, err := r.store.UnpublishedEvents(t.Context(), nil, 1); err != nil || len(left) > 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
}

// A call of publish tries a queue whose stream is full only once, even if the queue's events start
// many workflows. Each attempt may take as long as queuePublishTimeout, so several attempts would
// leave no time for other queues.
func TestAFullQueueIsTriedOnceInAPass(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{})
	at := time.Now().Add(-time.Minute)
	var stuck []store.Event
	for i := range 3 * maxPublishBatch {
		spec := edit.WorkflowSpec{
			ID: fmt.Sprint("stuck", i), AccountID: "on-pro", Name: "stuck", Queue: "full",
			Triggers: []edit.TriggerSpec{{NodeID: "node"}},
		}
		w, _, err := r.PutWorkflow(t.Context(), spec)
		r.check(err)
		stuck = append(stuck, newEvent(at, []store.EventCause{{
			ID: spec.ID, AccountID: spec.AccountID, Kind: registry.EventExecutionFailed, At: at,
		}}, w))
	}
	r.failures("orders", 1_000, 1_001)
	r.check(r.store.DecideEvents(t.Context(), at, at, nil, func(
		causes []store.EventCause, _ []store.Event,
	) ([]store.Event, []string) {
		return stuck, []string{causes[0].ID}
	}))
	r.moveToOwnStream("full", 1)
	r.config.DedupWindow = time.Minute // so short that publish calls AwaitRecorded for these events
	var tried atomic.Int32
	r.config.AwaitRecorded = func(context.Context, string) { tried.Add(1) }
	r.failures("orders", 0, 1)
	r.check(r.turnCausesIntoEvents(t.Context()))
	if err := r.publishEvents(t.Context()); stream.ErrorCode(err) != stream.CodeStoreFailed {
		t.Errorf("publish: %v", err)
	}
	r.wantKinds(registry.EventExecutionFailed)
	if n := tried.Load(); n != 1 {
		t.Errorf("tried %d times", n)
	}
}

// An event starts nothing if its workflow has moved to another account since the event was decided.
func TestAnEventDoesNotFollowItsWorkflow(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{})
	r.CreateWorkflow(t, "orders-free", "free", false) // so that the account on-free exists
	r.decided("alerts", 1, time.Now())
	_, _, err := r.PutWorkflow(t.Context(), edit.WorkflowSpec{
		ID: "alerts", AccountID: "on-free", Name: "alerts",
		Triggers: []edit.TriggerSpec{{NodeID: "node"}},
	})
	r.check(err)
	r.check(r.publishEvents(t.Context()))
	r.wantKinds()
	if left, err := r.store.UnpublishedEvents(t.Context(), nil, 1); err != nil || len(left) > 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
}

func TestNoEventAboutItsOwnWorkflow(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{})
	r.failures("alerts", 0, 2)
	r.turn()
	r.wantKinds()
	// A failed execution of the workflow orders causes no event if the account then selects orders
	// as the workflow that its events start.
	r.failures("orders", 2, 3)
	_, _, err := r.PutEventSubscription(t.Context(), "on-pro",
		registry.EventSubscription{WorkflowID: "orders"})
	r.check(err)
	r.turn()
	r.wantKinds()
	if some, err := r.store.HasEventCauses(t.Context()); err != nil || some {
		t.Errorf("a cause is left: %v", err)
	}
}

func TestOnlyWhatIsWanted(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{Kinds: []string{registry.EventStorageLow}})
	r.failures("orders", 0, 1)
	r.turn()
	r.wantKinds()
	// While the registry is being restored, it is unknown which accounts have selected which
	// events, so every failure is kept as a cause.
	r.config.RegistryIndexComplete = func() bool { return false }
	r.failures("orders", 1, 2)
	if some, err := r.store.HasEventCauses(t.Context()); err != nil || !some {
		t.Errorf("no cause is kept: %v", err)
	}
	_, _, err := r.PutEventSubscription(t.Context(), "on-pro",
		registry.EventSubscription{WorkflowID: "alerts"})
	r.check(err)
	r.turn()
	r.wantKinds(registry.EventExecutionFailed)
	r.check(r.RemoveEventSubscription(t.Context(), "on-pro"))
	r.failures("orders", 2, 3)
	r.turn()
	r.wantKinds()
}

// If many executions fail at once, only a few events report all of the failures, and each failure
// is counted in exactly one event.
func TestAStormMakesFewEvents(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{})
	r.CreateWorkflow(t, "invoices", "pro", false)
	total, n := 0, 0
	count := func(most int) (inputs []ExecutionInput) {
		t.Helper()
		_, inputs = r.executions()
		if len(inputs) > most {
			t.Errorf("%d events, at most %d", len(inputs), most)
		}
		for _, i := range inputs {
			total += i.Count
		}
		return inputs
	}
	for range 5 {
		r.failures("orders", n, n+1)
		n++
		r.turn()
	}
	count(5)
	for range 20 {
		r.failures("orders", n, n+1_000)
		n += 1_000
		r.failures("invoices", n, n+100)
		n += 100
		r.turn()
	}
	inputs := count(maxEventBurst)
	if last := inputs[len(inputs)-1]; last.Count < 2 || last.WorkflowID != "" ||
		last.ExecutionID != "" {
		t.Errorf("an event about two workflows: %+v", last)
	}
	if total >= n {
		t.Errorf("%d of %d are told: nothing waits", total, n)
	}
	// After eventGroupDelay, a few more events report the remaining failures, at most
	// store.MaxCausesPerDecision failures each.
	later := time.Now().Add(eventGroupDelay + time.Second)
	for range n/store.MaxCausesPerDecision + 1 {
		r.check(r.store.DecideEvents(t.Context(), later, later.Add(-eventBurstWindow), nil, func(
			causes []store.EventCause, decided []store.Event,
		) ([]store.Event, []string) {
			events, used, _ := r.decideEvents(later, causes, decided)
			return events, used
		}))
		later = later.Add(eventGroupDelay)
	}
	r.turn()
	count(n/store.MaxCausesPerDecision + 1)
	if total != n {
		t.Errorf("%d are told, of %d", total, n)
	}
}

// Events that report different sets of causes have different IDs. After a failover of the database,
// a failure that a published event has already reported may be reported again, together with other
// failures. If the new event had the same ID, it would count as already published.
func TestEventsOfOtherCausesHaveOtherIDs(t *testing.T) {
	t.Parallel()
	var causes []store.EventCause
	for n := range 3 {
		causes = append(causes, store.EventCause{
			ID: "execution.failed:" + id(n), Kind: registry.EventExecutionFailed,
		})
	}
	seen := map[string]int{}
	for i, group := range [][]store.EventCause{
		causes[:1], causes[1:2], causes[:2], causes, causes[1:], {causes[0], causes[2]},
	} {
		target := &registry.Workflow{ID: "alerts"}
		event, again := newEvent(time.Now(), group, target), newEvent(time.Now(), group, target)
		if j, known := seen[event.ID]; known {
			t.Errorf("the groups %d and %d have the ID %q", j, i, event.ID)
		}
		seen[event.ID] = i
		if again.ID != event.ID {
			t.Errorf("group %d has the IDs %q and %q", i, event.ID, again.ID)
		}
	}
}

// TestAStormDelaysNoOtherAccount checks that a backlog of event causes in one account does not
// delay the events of another account, however long or old the backlog is.
func TestAStormDelaysNoOtherAccount(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{})
	r.CreateWorkflow(t, "notices", "free", false)
	_, _, err := r.PutEventSubscription(t.Context(), "on-free",
		registry.EventSubscription{WorkflowID: "notices"})
	r.check(err)
	n := 0
	for range maxEventBurst { // afterwards, further causes must wait
		r.failures("orders", n, n+1)
		n++
		r.turn()
	}
	r.wantKinds(slices.Repeat([]string{registry.EventExecutionFailed}, maxEventBurst)...)
	r.failures("orders", n, n+2*store.MaxCausesPerDecision)
	r.turn()
	r.wantKinds()
	r.check(r.store.ChangeOngoingConditions(t.Context(), []store.OngoingConditionChange{{
		OngoingCondition: store.OngoingCondition{
			AccountID: "on-free", Kind: registry.EventStorageLow, Since: time.Now(),
		},
		Cause: &store.EventCause{
			ID: "low", AccountID: "on-free", Kind: registry.EventStorageLow,
			At: time.Now().Add(time.Hour), // later than the failures
		},
	}}))
	r.turn()
	r.wantKinds(registry.EventStorageLow)
}

func (r *rig) lookAt(now time.Time) {
	r.t.Helper()
	r.check(r.updateConditions(r.t.Context(), now))
	r.turn()
}

func TestAnUnattendedQueueAndItsEnd(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{
		Kinds: []string{
			registry.EventQueueUnattended,
			registry.EventQueueUnattended + registry.EventRecoveredSuffix,
		},
	})
	msg, err := stream.StartMessage(execution.Start{
		ID:         id(1),
		WorkflowID: "orders",
		NodeID:     "node",
		AccountID:  "on-pro",
		Queue:      "default",
		Source:     execution.SourceWebhook,
		AcceptedAt: time.Now().Add(-unattendedAfter),
		Payload: execution.Payload{
			ContentType: "application/json",
			Kind:        execution.BodyJSON,
			Body:        []byte("{}"),
		},
	})
	r.check(err)
	_, err = r.JetStream.PublishMsg(t.Context(), msg)
	r.check(err)
	_, _ = r.executions()
	r.lookAt(time.Now())
	r.lookAt(time.Now())
	inputs := r.wantKinds(registry.EventQueueUnattended)
	if i := inputs[0]; i.Queue != "default" || i.WorkflowID != "" || i.Text == "" || i.Count != 1 {
		t.Errorf("%+v", i)
	}
	// A runner connects and completes the execution.
	group := stream.RunnerGroup{Queue: "default", Group: "main"}
	consumer, err := stream.EnsureRunnerConsumer(t.Context(), r.JetStream, group,
		group.ConsumerConfig(stream.RunnerAckWait))
	r.check(err)
	batch, err := consumer.Fetch(10)
	r.check(err)
	for msg := range batch.Messages() {
		r.check(msg.DoubleAck(t.Context()))
	}
	// EnforceSettings has the side effect of discarding the result of the last poll, so that the
	// next check polls the queues and notices that nothing waits.
	r.check(r.config.Queues.EnforceSettings(t.Context(), &registry.Queue{Name: "default"}))
	r.lookAt(time.Now())
	r.lookAt(time.Now())
	r.wantKinds(registry.EventQueueUnattended + registry.EventRecoveredSuffix)
}

// It is unknown whether a queue is attended if one of its streams does not respond, or if
// executions wait and the executor may not have heard from all runners yet.
func TestAQueueOfWhichTheStateIsUnknown(t *testing.T) {
	t.Parallel()
	now := time.Now()
	unknown := []queues.Group{{Name: "main", MembersUnknown: true}}
	for _, test := range []struct {
		queue queues.Queue
		want  conditionHealth
	}{
		{queues.Queue{Incomplete: true}, healthUnknown},
		{queues.Queue{Incomplete: true, Waiting: 1}, healthUnknown},
		{queues.Queue{Groups: unknown}, healthGood},
		{queues.Queue{Groups: unknown, Waiting: 1}, healthUnknown},
	} {
		test.queue.Name, test.queue.OldestAcceptedAt = "q", now.Add(-time.Hour)
		states := queueStates(now, []*registry.Workflow{{Queue: "q"}},
			[]queues.Queue{test.queue})
		if state := states["q"]; len(states) != 1 || state.health != test.want {
			t.Errorf("%+v: %+v, want %v", test.queue, states, test.want)
		}
	}
}

func TestARefusedSenderAndItsEnd(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{
		Kinds: []string{
			registry.EventSenderRefused,
			registry.EventSenderRefused + registry.EventRecoveredSuffix,
		},
	})
	_, _, err := r.PutSender(t.Context(), "orders", "node", edit.SenderSpec{Preset: "plain"})
	r.check(err)
	now := time.Now()
	report := 0
	seen := func(s store.SenderActivity) {
		t.Helper()
		report++
		s.WorkflowID, s.NodeID = "orders", "node"
		r.check(r.store.AddSenderActivity(t.Context(), fmt.Sprint("report ", report), now,
			[]store.SenderActivity{s}))
	}
	seen(store.SenderActivity{
		VerifiedAt:    now.Add(-time.Hour),
		RefusedAt:     now.Add(-2 * time.Hour),
		Refused:       1,
		RefusedReason: "old",
	})
	r.lookAt(now)
	r.wantKinds()
	now = now.Add(time.Second)
	seen(
		store.SenderActivity{
			RefusedAt:     now,
			Refused:       3,
			RefusedReason: "the signature is wrong",
		},
	)
	r.lookAt(now)
	seen(store.SenderActivity{VerifiedAt: now.Add(time.Second)})
	r.lookAt(now.Add(2 * time.Second)) // too early after the refusal to count as recovered
	if i := r.wantKinds(registry.EventSenderRefused)[0]; i.WorkflowID != "orders" || i.Text == "" {
		t.Errorf("%+v", i)
	}
	r.lookAt(now.Add(senderRecoveryPeriod))
	r.lookAt(now.Add(senderRecoveryPeriod + time.Second))
	r.wantKinds(registry.EventSenderRefused + registry.EventRecoveredSuffix)
}

func TestLowStorage(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{
		Kinds: []string{
			registry.EventStorageLow,
			registry.EventStorageLow + registry.EventRecoveredSuffix,
		},
	})
	executions, err := r.JetStream.Stream(t.Context(), stream.ExecutionsName)
	r.check(err)
	config := executions.CachedInfo().Config
	for _, size := range []int64{100_000, 1_000_000} {
		config.MaxBytes = size
		_, err := r.JetStream.UpdateStream(t.Context(), config)
		r.check(err)
		r.lookAt(time.Now())
		for range 9 {
			if size == 100_000 {
				msg := &nats.Msg{
					Subject: stream.StartSubject("default", "orders", "node"),
					Data:    make([]byte, 10_000),
				}
				_, err := r.JetStream.PublishMsg(t.Context(), msg)
				r.check(err)
				r.taken++
			}
		}
		r.lookAt(time.Now())
	}
	inputs := r.wantKinds(registry.EventStorageLow,
		registry.EventStorageLow+registry.EventRecoveredSuffix)
	if inputs[0].Text == "" || inputs[0].WorkflowID != "" {
		t.Errorf("%+v", inputs[0])
	}
}

// offlineStream is a JetStream in which one stream is offline, as if all servers that hold the
// stream were down.
type offlineStream struct {
	jetstream.JetStream

	name string
}

func (o offlineStream) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if name == o.name {
		return nil, &jetstream.APIError{
			Code: 500, ErrorCode: stream.CodeStreamOffline, Description: "stream is offline",
		}
	}
	return o.JetStream.Stream(ctx, name)
}

// While a stream is offline, a storage.low condition of this stream does not end. Conditions of
// other streams are still noticed.
func TestConditionsWhileAStreamIsOffline(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{
		Kinds: []string{
			registry.EventStorageLow,
			registry.EventStorageLow + registry.EventRecoveredSuffix,
		},
	})
	_, _, err := r.PutWorkflow(t.Context(), edit.WorkflowSpec{
		ID: "orders", AccountID: "on-pro", Name: "orders", Queue: "apart",
		Triggers: []edit.TriggerSpec{{NodeID: "node"}},
	})
	r.check(err)
	own := stream.Layout{Own: true}
	runnertest.NewIngress(t, r.JetStream.Conn()).MoveToOwnStream(t, "apart")
	fill := func(name, subject string) {
		t.Helper()
		from, err := r.JetStream.Stream(t.Context(), name)
		r.check(err)
		config := from.CachedInfo().Config
		config.MaxBytes = 100_000
		_, err = r.JetStream.UpdateStream(t.Context(), config)
		r.check(err)
		for range 9 {
			_, err := r.JetStream.Publish(t.Context(), subject, make([]byte, 10_000))
			r.check(err)
		}
	}
	fill(own.StreamName("apart"), own.StartSubject("apart", "orders", "node"))
	r.lookAt(time.Now())
	if i := r.wantKinds(registry.EventStorageLow)[0]; i.Queue != "apart" {
		t.Errorf("%+v", i)
	}
	var lines logtest.Buffer
	log := logtest.Discard()
	log.SetOutput(&lines)
	r.config.Log = log
	r.config.JetStream = offlineStream{r.JetStream, own.StreamName("apart")}
	fill(stream.ExecutionsName, stream.StartSubject("default", "orders", "node"))
	r.taken += 9
	r.lookAt(time.Now())
	r.lookAt(time.Now())
	if i := r.wantKinds(registry.EventStorageLow)[0]; i.Queue != "" {
		t.Errorf("%+v", i)
	}
	if open, err := r.store.OngoingConditions(t.Context()); err != nil || len(open) != 2 {
		t.Errorf("%+v, %v", open, err)
	}
	if n := strings.Count(lines.String(), "offline"); n != 1 {
		t.Errorf("%d lines about the stream: %s", n, lines.String())
	}
}

// requests stores, for each of the given times, one queued execution of the workflow "orders" that
// was accepted then.
func (r *rig) requests(at ...time.Time) {
	r.t.Helper()
	var batch store.Batch
	for i, at := range at {
		batch.NewRecords = append(batch.NewRecords, store.Record{
			ID:         id(int(at.UnixMilli()%1_000_000)*1_000 + i),
			AccountID:  "on-pro",
			WorkflowID: "orders",
			NodeID:     "node",
			Queue:      "default",
			Source:     execution.SourceWebhook,
			Status:     execution.Queued,
			TokenID:    registry.HashToken(r.token).ID(),
			AcceptedAt: at,
			RecordedAt: at,
		})
	}
	_, err := r.store.Apply(r.t.Context(), batch)
	r.check(err)
}

func TestASilentSenderByItsPace(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{
		Kinds: []string{
			registry.EventSenderSilent,
			registry.EventSenderSilent + registry.EventRecoveredSuffix,
		},
	})
	now := time.Now()
	r.lookAt(now) // no condition begins: the sender has never sent a request
	var history []time.Time
	for hours := range 30 {
		history = append(history, now.Add(time.Duration(-hours)*time.Hour))
	}
	r.requests(history...)
	r.lookAt(now.Add(90 * time.Minute))
	r.wantKinds()
	r.lookAt(now.Add(131 * time.Minute))
	r.lookAt(now.Add(132 * time.Minute))
	if i := r.wantKinds(registry.EventSenderSilent)[0]; i.WorkflowID != "orders" || i.Text == "" {
		t.Errorf("%+v", i)
	}
	r.requests(now.Add(133 * time.Minute))
	r.lookAt(now.Add(134 * time.Minute))
	r.wantKinds(registry.EventSenderSilent + registry.EventRecoveredSuffix)
	// The longest pause between requests is now more than two hours. The node is silent only after
	// twice this pause, so four hours without a request are not enough.
	r.lookAt(now.Add(133*time.Minute + 4*time.Hour))
	r.wantKinds()
	// A request that starts nothing, here because of the filter, counts as a request, so the node
	// is not silent.
	r.check(r.store.AddFilteredRequests(t.Context(), "filtered", now, []store.FilteredSummary{{
		WorkflowID: "orders",
		NodeID:     "node",
		Count:      1,
		Last:       []store.FilteredRequest{{At: now.Add(10 * time.Hour)}},
	}}))
	r.lookAt(now.Add(10*time.Hour + time.Minute))
	r.wantKinds()
}

func TestASilentSenderByANumber(t *testing.T) {
	t.Parallel()
	r := start(t, registry.EventSubscription{
		Kinds:       []string{registry.EventSenderSilent},
		SilentAfter: time.Minute,
	})
	now := time.Now()
	r.lookAt(now.Add(time.Hour))
	r.requests(now)
	r.lookAt(now.Add(59 * time.Second))
	r.wantKinds()
	r.lookAt(now.Add(time.Minute))
	r.wantKinds(registry.EventSenderSilent)
	r.requests(now.Add(2 * time.Minute))
	r.lookAt(now.Add(2*time.Minute + time.Second)) // recovery events are not selected
	r.lookAt(now.Add(4 * time.Minute))
	r.wantKinds(registry.EventSenderSilent)
	// After the workflow is deactivated, no requests are expected. The sender.silent condition
	// therefore ends.
	_, err := r.Deactivate(t.Context(), "orders")
	r.check(err)
	r.lookAt(now.Add(5 * time.Minute))
	if open, err := r.store.OngoingConditions(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("%+v, %v", open, err)
	}
}
