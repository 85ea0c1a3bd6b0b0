package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// accepted publishes the start message of execution id(n), and records the execution. change can
// modify the record.
func (r *rig) accepted(n int, change ...func(*store.Record)) {
	r.t.Helper()
	sequence := r.message(stream.StartMessage(execution.Start{
		ID:         id(n),
		AccountID:  "acme",
		WorkflowID: "wf",
		NodeID:     "node",
		Queue:      execution.DefaultQueue,
		Payload:    execution.Payload{Kind: execution.BodyJSON, Body: []byte("{}")},
	}))
	r.records(store.Batch{
		NewRecords: []store.Record{
			record(id(n), append(change, func(rec *store.Record) {
				rec.StreamSequence = sequence
			})...),
		},
	})
}

// cancellations creates the cancellations bucket, as an executor does when it starts.
func (r *rig) cancellations() {
	r.t.Helper()
	r.check(stream.EnsureCancellationsBucket(r.t.Context(), r.JetStream, stream.DefaultSettings))
}

// If no runner has received an execution, canceling it takes effect immediately, and the execution
// never starts. If a runner has received it, the call only requests cancellation.
func TestCancel(t *testing.T) {
	r := start(t)
	r.cancellations()
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	begun, hold := make(chan string, 10), make(chan struct{})
	defer close(hold)
	r.accepted(1)
	stop := r.group("g", begun, hold)
	<-begun
	r.post("/queues/default/pause", "").is(200)
	r.accepted(2)

	running := decode[api.Execution](r.post("/executions/"+id(1)+"/cancel", "").is(200))
	if running.Status != "queued" || running.CancelRequestedAt.IsZero() {
		t.Errorf("one that runs: %+v", running)
	}
	again := decode[api.Execution](r.post("/executions/"+id(1)+"/cancel", "").is(200))
	if !again.CancelRequestedAt.Equal(running.CancelRequestedAt) {
		t.Errorf("asked again: %+v", again)
	}
	waiting := decode[api.Execution](r.post("/executions/"+id(2)+"/cancel", "").is(200))
	if waiting.Status != "canceled" || waiting.FinishedAt.IsZero() {
		t.Errorf("one that waits: %+v", waiting)
	}
	r.post("/executions/"+id(2)+"/cancel", "").refused(409, api.CodeAlreadyEnded)
	r.post("/executions/"+id(9)+"/cancel", "").refused(404, api.CodeNotFound)
	// A later report about a canceled execution changes nothing.
	r.records(store.Batch{Progress: []execution.Progress{{
		ID: id(2), Queue: "default", WorkflowID: "wf", Status: execution.Succeeded, At: time.Now(),
	}}})
	list := decode[api.List[api.Execution]](r.get("/executions?status=canceled").is(200))
	if len(list.Items) != 1 || list.Items[0].ExecutionID != id(2) {
		t.Errorf("canceled: %+v", list.Items)
	}
	r.post("/queues/default/resume", "").is(200)
	stop()
	r.accepted(3)
	free := make(chan struct{})
	close(free)
	r.group("later", begun, free)
	if got := <-begun; got != "later "+id(3) {
		t.Errorf("%s began", got)
	}
	if n := r.audited("execution.cancel"); n != 2 {
		t.Errorf("%d entries of the audit, want one for each execution", n)
	}
}

func (r *rig) audited(action string) (n int) {
	r.t.Helper()
	entries, err := r.store.ListAudit(r.t.Context(), store.AuditFilter{}, store.AuditPosition{},
		1_000)
	r.check(err)
	for _, e := range entries {
		if e.Action == action {
			n++
		}
	}
	return n
}

// A bulk cancellation, by ID or by workflow, skips finished executions.
func TestCancelMany(t *testing.T) {
	r := start(t)
	r.cancellations()
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	for n := range 6 {
		r.accepted(n)
	}
	r.records(store.Batch{
		Progress: []execution.Progress{
			{ID: id(0), Queue: "default", WorkflowID: "wf", Status: execution.Failed, At: epoch},
		},
	})
	reports, err := r.nc.SubscribeSync(stream.ProgressSubject("default", "wf", id(1)))
	r.check(err)
	r.check(r.nc.Flush())
	if got := decode[api.Canceled](r.post("/executions/cancel",
		fmt.Sprintf(`{"ids":[%q,%q,%q]}`, id(0), id(1), id(99))).is(200)); got != (api.Canceled{
		Canceled: 1,
	}) {
		t.Errorf("by IDs: %+v", got)
	}
	report, err := reports.NextMsg(30 * time.Second)
	r.check(err)
	if trace := report.Header.Get(stream.HeaderTrace); len(trace) != 55 {
		t.Errorf("the trace of the report is %q", trace)
	}
	if got := decode[api.Canceled](r.post("/executions/cancel",
		`{"workflowId":"wf","status":"running"}`).is(200)); got != (api.Canceled{}) {
		t.Errorf("of the workflow, those that run: %+v", got)
	}
	if got := decode[api.Canceled](r.post("/executions/cancel",
		`{"workflowId":"wf","status":"queued"}`).is(200)); got != (api.Canceled{Canceled: 4}) {
		t.Errorf("of the workflow: %+v", got)
	}
	if got := decode[api.Canceled](r.post("/executions/cancel",
		`{"workflowId":"wf"}`).is(200)); got != (api.Canceled{}) {
		t.Errorf("again: %+v", got)
	}
	for _, body := range []string{
		`{}`, `{"ids":[],"workflowId":"wf"}`, `{"since":"2026-01-01T00:00:00Z"}`,
		`{"ids":[],"status":"queued"}`, `{"workflowId":"wf","status":"failed"}`,
	} {
		r.post("/executions/cancel", body).refused(422, api.CodeInvalid)
	}
	if got := r.post("/executions/"+id(1)+"/replay", "").is(200); got.status != 200 {
		t.Error("a canceled execution cannot be replayed")
	}
	r.post("/executions/"+id(2)+"/requeue", "").is(200)
}

// besideCancel is a store that runs code before and after RequestCancel, to simulate another call
// that cancels the same executions at the same time.
type besideCancel struct {
	store.Store
	before, after func(ids []string) // called around RequestCancel; may be nil
}

func (s *besideCancel) RequestCancel(
	ctx context.Context, ids []string, at time.Time, entry func(id string) store.AuditEntry,
) ([]string, error) {
	if s.before != nil {
		s.before(ids)
	}
	requested, err := s.Store.RequestCancel(ctx, ids, at, entry)
	if s.after != nil {
		s.after(ids)
	}
	return requested, err
}

// During a bulk cancellation of three executions, another call cancels two of them. A call first
// requests the cancellation of an execution, and then ends the execution. The bulk cancellation
// counts the executions whose cancellation it was the first to request, even if the other call then
// ended them.
func TestTheCountsOfACancellationBesideAnother(t *testing.T) {
	t.Parallel()
	var beside *besideCancel
	r := start(t, func(c *config, _ *http.Server) {
		beside = &besideCancel{Store: c.Store}
		c.Store = beside
	})
	r.cancellations()
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	cancelAll := func(first int) api.Canceled {
		t.Helper()
		for n := range 3 {
			r.accepted(first + n)
		}
		return decode[api.Canceled](r.post("/executions/cancel", `{"workflowId":"wf"}`).is(200))
	}
	beside.after = func(ids []string) {
		ended, err := r.store.Cancel(t.Context(), ids[1:], time.Now())
		if r.check(err); len(ended) != 2 {
			t.Errorf("the other call ended %d", len(ended))
		}
	}
	if got := cancelAll(1); got != (api.Canceled{Canceled: 3}) {
		t.Errorf("another call ended 2 of 3: %+v", got)
	}
	beside.after, beside.before = nil, func(ids []string) {
		_, err := r.store.RequestCancel(t.Context(), ids[1:], time.Now(), nil)
		r.check(err)
	}
	if got := cancelAll(4); got != (api.Canceled{Canceled: 1}) {
		t.Errorf("another call requested 2 of 3 first: %+v", got)
	}
}

// If more executions match than a bulk cancellation may cancel, it cancels exactly the maximum
// number. Executions whose cancellation was already requested do not count towards this number.
func TestTheLimitOfABulkCancellation(t *testing.T) {
	t.Parallel()
	const most = 600 // more than a batch
	r := start(t, func(c *config, _ *http.Server) { c.MaxBulkItems = most })
	r.cancellations()
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	var batch store.Batch
	for n := range most + 2 {
		batch.NewRecords = append(batch.NewRecords, record(id(n)))
	}
	r.records(batch)
	_, err := r.store.RequestCancel(t.Context(), []string{id(0)}, time.Now(), nil)
	r.check(err)
	cancel := func() api.Canceled {
		t.Helper()
		return decode[api.Canceled](r.post("/executions/cancel", `{"workflowId":"wf"}`).is(200))
	}
	if got := cancel(); got != (api.Canceled{Canceled: most, More: true}) {
		t.Errorf("the first call: %+v", got)
	}
	if got := cancel(); got != (api.Canceled{Canceled: 1}) {
		t.Errorf("the second call: %+v", got)
	}
}

// Executions end while they are being canceled, replayed and requeued. Each execution has a single
// outcome, which agrees with the response to the cancellation. Each replay or requeue that was
// confirmed starts one execution, and each that was refused starts none.
func TestCancelBesideEndReplayAndRequeue(t *testing.T) {
	r := start(t)
	r.cancellations()
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	const executions = 40
	for n := range executions {
		r.accepted(n)
	}
	var canceled, replayed, requeued [executions]answer
	var calls sync.WaitGroup
	for n := range executions {
		calls.Go(func() { canceled[n] = r.post("/executions/"+id(n)+"/cancel", "") })
		calls.Go(func() { replayed[n] = r.post("/executions/"+id(n)+"/replay", "") })
		calls.Go(func() { requeued[n] = r.post("/executions/"+id(n)+"/requeue", "") })
		if n%2 == 0 {
			calls.Go(func() {
				r.records(store.Batch{Progress: []execution.Progress{{
					ID: id(n), Queue: "default", WorkflowID: "wf", Status: execution.Succeeded,
					At: time.Now(),
				}}})
			})
		}
	}
	calls.Wait()
	for n := range executions {
		want := "succeeded"
		if canceled[n].status == http.StatusOK {
			want = decode[api.Execution](canceled[n]).Status
		} else {
			canceled[n].refused(409, api.CodeAlreadyEnded)
		}
		got := decode[api.ExecutionDetail](r.get("/executions/" + id(n)).is(200))
		if got.Status != want || got.FinishedAt.IsZero() {
			t.Errorf("execution %d is %s; its cancellation said %s: %s", n, got.Status, want,
				canceled[n].body)
		}
		starts := 0
		for _, a := range []answer{replayed[n], requeued[n]} {
			if a.status == http.StatusOK {
				starts++
			}
		}
		if found := r.startsThat(func(s *execution.Start) bool {
			return s.ReplayOf == id(n) || s.RerunOf == id(n)
		}); len(found) != starts {
			t.Errorf("execution %d: %d starts, want %d: replay %d, requeue %d", n, len(found),
				starts, replayed[n].status, requeued[n].status)
		}
	}
}

// A cancellation takes several steps. If a process stops between two of them, another process
// completes the cancellation. A cancellation that only the database has is restored in the
// cancellations bucket in NATS, and vice versa.
func TestCancelIsSettled(t *testing.T) {
	r := start(t)
	r.cancellations()
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	r.accepted(1)
	r.accepted(2)
	r.accepted(3, func(rec *store.Record) {
		rec.Status, rec.CancelRequestedAt, rec.FinishedAt, rec.AcceptedAt = execution.Canceled,
			time.Now(), time.Now(), time.Now()
	})
	// Execution 1: the process was killed after it had stored the cancellation in the database, but
	// before it stored it in the bucket.
	_, err := r.store.RequestCancel(t.Context(), []string{id(1)}, time.Now(), nil)
	r.check(err)
	bucket, err := r.JetStream.KeyValue(t.Context(), stream.CancellationsBucket)
	r.check(err)
	// Execution 2: the cancellation is in the bucket, but the database has lost it.
	r.check(stream.PutCancellation(t.Context(), bucket, id(2), time.Now()))
	ctx, cancel := context.WithCancel(t.Context())
	settled := make(chan struct{})
	go func() { operate.RunCancellationRecovery(ctx, r.operate, time.Hour); close(settled) }()
	defer func() { cancel(); <-settled }()
	for n := 1; n <= 2; n++ {
		eventually(t, func() bool {
			got, err := r.store.Get(t.Context(), id(n))
			return err == nil && got.Status == execution.Canceled
		})
	}
	for n := 1; n <= 3; n++ {
		if _, err := bucket.Get(t.Context(), id(n)); err != nil {
			t.Errorf("the bucket has no key of %d: %v", n, err)
		}
	}
	hasKey := func() bool {
		_, err := bucket.Get(t.Context(), id(3))
		return err == nil
	}
	// If the NATS server has lost the bucket's newest key in a power failure, the key is restored
	// after the reconnect.
	r.check(bucket.Purge(t.Context(), id(3)))
	r.check(r.nc.ForceReconnect())
	eventually(t, hasKey)
	// If the bucket has been deleted and recreated, its keys are restored.
	r.check(r.JetStream.DeleteKeyValue(t.Context(), stream.CancellationsBucket))
	r.cancellations()
	eventually(t, hasKey)
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

// Cancellations in a queue whose own stream is offline have to wait. Cancellations in other queues
// are completed all the same, even if many older ones are waiting.
func TestCancelIsSettledBesideAnOfflineStream(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *config, _ *http.Server) {
		watch, err := queues.New(queues.Config{
			Conn: c.JetStream.Conn(), RecorderConsumer: "executor",
			JetStream: offlineStream{c.JetStream, stream.OwnStreamName("down")},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(watch.Stop)
		c.Queues = watch
	})
	r.cancellations()
	r.check(stream.EnsureOwnStreams(t.Context(), r.JetStream, stream.DefaultSettings, "down",
		stream.QueueStreamLimits{}))
	const older = 501 // more than a batch
	var batch store.Batch
	ids := []string{id(older)}
	for n := range older {
		batch.NewRecords = append(batch.NewRecords, record(id(n), func(rec *store.Record) {
			rec.Queue, rec.AcceptedAt = "down", epoch.Add(-time.Hour)
		}))
		ids = append(ids, id(n))
	}
	r.records(batch)
	r.accepted(older)
	_, err := r.store.RequestCancel(t.Context(), ids, time.Now(), nil)
	r.check(err)
	ctx, cancel := context.WithCancel(t.Context())
	settled := make(chan struct{})
	go func() { operate.RunCancellationRecovery(ctx, r.operate, time.Hour); close(settled) }()
	defer func() { cancel(); <-settled }()
	eventually(t, func() bool {
		got, err := r.store.Get(t.Context(), id(older))
		return err == nil && got.Status == execution.Canceled
	})
	if got, err := r.store.Get(t.Context(), id(0)); err != nil || got.Status != execution.Queued {
		t.Errorf("an execution whose stream is offline: %+v, %v", got, err)
	}
}
