package recorder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/changes"
	"github.com/hookstart/hookstart/executor/internal/record/recorder"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/stream"
)

// faulty is a store that can be made to fail or to be slow.
type faulty struct {
	store.Store
	mu     sync.Mutex
	away   bool // whether the database is unavailable
	full   bool // whether the database records nothing, but applies reports
	tooBig int  // Apply hangs for batches with more records than this; 0 means never
	// slow is the minimum duration of Apply, and applied counts its calls.
	slow    time.Duration
	applied int
	// unanswered makes the next Apply or EndLostExecutions fail after its transaction has been
	// committed.
	unanswered bool
	// listing is called at the beginning of each List whose filter has a status. If it returns an
	// error, List fails with that error. It may be nil.
	listing func(store.RecordFilter) error
	// reconnected is the channel that Reconnected returns.
	reconnected chan struct{}
}

var (
	errAway         = errors.New("the database is away")
	errRegistryAway = errors.New("the registry is away")
)

func (f *faulty) Reconnected() <-chan struct{} { return f.reconnected }

func (f *faulty) setAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

func (f *faulty) setFull(full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = full
}

func (f *faulty) setTooBig(records int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tooBig = records
}

func (f *faulty) setUnanswered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unanswered = true
}

func (f *faulty) Ping(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return errAway
	}
	return f.Store.Ping(ctx)
}

func (f *faulty) List(
	ctx context.Context, filter store.RecordFilter, after store.RecordPosition, limit int,
) ([]store.Record, error) {
	f.mu.Lock()
	listing := f.listing
	f.mu.Unlock()
	if listing != nil && filter.Status != "" {
		if err := listing(filter); err != nil {
			return nil, err
		}
	}
	return f.Store.List(ctx, filter, after, limit)
}

func (f *faulty) AddRefusals(
	ctx context.Context, reportID string, at time.Time, refusals []store.RefusalCount,
) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return errAway
	}
	return f.Store.AddRefusals(ctx, reportID, at, refusals)
}

func (f *faulty) Apply(ctx context.Context, b store.Batch) (store.ApplyResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away || f.full {
		return store.ApplyResult{}, errAway
	}
	if f.tooBig > 0 && len(b.NewRecords) > f.tooBig {
		<-ctx.Done()
		return store.ApplyResult{}, ctx.Err()
	}
	f.applied++
	<-time.After(f.slow)
	applied, err := f.Store.Apply(ctx, b)
	if f.unanswered && err == nil {
		f.unanswered = false
		return store.ApplyResult{}, errAway
	}
	return applied, err
}

func (f *faulty) EndLostExecutions(
	ctx context.Context, lost []store.LostExecution, at time.Time, reason string,
) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended, err := f.Store.EndLostExecutions(ctx, lost, at, reason)
	if f.unanswered && err == nil {
		f.unanswered = false
		return nil, errAway
	}
	return ended, err
}

type rig struct {
	t     *testing.T
	nats  *natstest.Node
	js    jetstream.JetStream
	store *faulty
	db    *sql.DB // the same database, opened separately
	ops   *ops.Ops
	logs  *logtest.Buffer
	told  <-chan changes.Batch
	stop  func()
	again func() (stop func()) // runs another recorder

	recorder *recorder.Recorder // the recorder that is running

	deliverAgain time.Duration // AckWait of later recorders; 0 means the default
	searchEvery  time.Duration // search interval of later recorders; 0 means the default
	// searchInterval returns the search interval of recorders that are started later. nil means the
	// default.
	searchInterval func(maxAge time.Duration) time.Duration
	compareEvery   time.Duration // comparison interval of later recorders; 0 means the default
	noSearch       bool          // later recorders do not search for lost executions
	retention      time.Duration // retention of later recorders; 0 means unlimited
	path           string        // path of the database file

	workflowsAway atomic.Bool  // whether Config.WorkflowInAccountSince fails
	sendersAway   atomic.Bool  // whether Config.SenderPreset fails
	asked         atomic.Int64 // number of calls that failed because of these two fields

	captured atomic.Int64 // number of calls of Config.SaveCapturedSecret
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, nats: natstest.Start(t), ops: ops.New(), logs: &logtest.Buffer{}}
	nc := r.nats.Connect(t)
	var err error
	if r.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.EnsureSharedStreams(t.Context(), r.js, stream.DefaultSettings),
		stream.EnsureReportsStream(t.Context(), r.js, 1)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "executions.db")
	r.path = path
	records, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if r.db, err = sql.Open("sqlite", path); err != nil {
		t.Fatal(err)
	}
	// Reconnected returns a channel, so the recorder assumes that a lagging standby may replace the
	// database.
	r.store = &faulty{Store: records, reconnected: make(chan struct{}, 1)}
	changed, err := changes.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	watching := changed.Watch(time.Time{})
	r.told = watching.Batches
	log := logtest.Discard()
	log.SetOutput(r.logs)
	r.again = func() (stop func()) {
		r.ops = ops.New()
		rec := recorder.New(recorder.Config{
			JetStream: r.js,
			Store:     r.store,
			Changes:   changed,
			Ops:       r.ops,
			Log:       log,
			Retention: r.retention,
			SenderPreset: func(context.Context, string, string) (string, error) {
				if r.sendersAway.Load() {
					r.asked.Add(1)
					return "", errRegistryAway
				}
				return "slack", nil
			},
			SaveCapturedSecret: func(context.Context, string, string, []byte) error {
				r.captured.Add(1)
				return nil
			},
			WorkflowInAccountSince: func(_ context.Context, id string) (time.Time, bool, error) {
				if r.workflowsAway.Load() {
					r.asked.Add(1)
					return time.Time{}, false, errRegistryAway
				}
				switch id {
				case deletedWorkflow:
					return time.Time{}, false, nil
				case recreatedWorkflow:
					return recreatedAt, true, nil
				default:
					return time.Time{}, true, nil
				}
			},
		})
		rec.Hurry()
		r.recorder = rec
		if r.deliverAgain != 0 {
			rec.DeliverAgain(r.deliverAgain)
		}
		if every := r.searchEvery; every != 0 {
			rec.SearchIntervals(func(time.Duration) time.Duration { return every })
		}
		if r.searchInterval != nil {
			rec.SearchIntervals(r.searchInterval)
		}
		if r.compareEvery != 0 {
			rec.CompareEvery(r.compareEvery)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { rec.Run(ctx) })
		running.Go(func() { rec.ApplyIngressReports(ctx) })
		if !r.noSearch {
			running.Go(func() { rec.EndLostExecutions(ctx) })
		}
		return func() { cancel(); running.Wait() }
	}
	r.stop = r.again()
	t.Cleanup(func() {
		r.stop()
		watching.Cancel()
		changed.Stop()
		_ = r.db.Close()
		_ = r.store.Close()
	})
	return r
}

func (r *rig) publish(msg *nats.Msg, err error) {
	r.t.Helper()
	if err == nil {
		_, err = r.js.PublishMsg(r.t.Context(), msg)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// begin publishes a start message and returns the execution's ID.
func (r *rig) begin(workflowID string) string {
	r.t.Helper()
	id := uuid.NewString()
	r.publish(stream.StartMessage(execution.Start{
		ID:         id,
		WorkflowID: workflowID,
		NodeID:     "node",
		AccountID:  "a",
		Queue:      "q",
		Source:     execution.SourceWebhook,
		AcceptedAt: time.Now(),
		Payload:    execution.Payload{Kind: execution.BodyText, Body: []byte("x")},
		TokenID:    "t",
	}))
	return id
}

// tryBegin is like begin, but returns an error if the server does not respond.
func (r *rig) tryBegin() (id string, err error) {
	id = uuid.NewString()
	msg, err := stream.StartMessage(execution.Start{
		ID:         id,
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "a",
		Queue:      "q",
		Source:     execution.SourceWebhook,
		AcceptedAt: time.Now(),
		Payload:    execution.Payload{Kind: execution.BodyText},
	})
	if err == nil {
		_, err = r.js.PublishMsg(r.t.Context(), msg)
	}
	return id, err
}

func (r *rig) progress(id string, status execution.Status) {
	r.t.Helper()
	r.publish(stream.ProgressMessage("q", "wf", "node", "", execution.Progress{
		ID:     id,
		Status: status,
		At:     time.Now(),
	}))
}

// await waits, for at most a minute, until holds() is true. what describes the condition in the
// error.
func (r *rig) await(what string, holds func() bool) {
	r.t.Helper()
	timeout := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-timeout:
			r.t.Fatalf("this did not come true: %s", what)
		}
	}
}

func (r *rig) has(id string, status execution.Status) bool {
	record, err := r.store.Get(r.t.Context(), id)
	return err == nil && record.Status == status
}

// pending returns the number of messages in the shared streams that the recorder has not
// acknowledged.
func (r *rig) pending() (n int64) {
	for _, name := range []string{stream.ExecutionsName, stream.ProgressName} {
		consumer, err := r.js.Consumer(r.t.Context(), name, stream.RecorderConsumerName)
		if err != nil {
			r.t.Fatal(err)
		}
		n += stream.Unacknowledged(consumer.CachedInfo())
	}
	return n
}

func TestALife(t *testing.T) {
	t.Parallel()
	r := start(t)
	id := r.begin("wf")
	r.progress(id, execution.Running)
	r.progress(id, execution.Succeeded)
	r.progress(id, execution.Failed) // late, so it changes nothing
	r.await("it has succeeded", func() bool { return r.has(id, execution.Succeeded) })
	r.await("all is acknowledged", func() bool { return r.pending() == 0 })
	if !r.has(id, execution.Succeeded) {
		t.Error("a final state has changed")
	}
	if batch := <-r.told; !slices.Contains(batch.IDs, id) {
		t.Errorf("watchers were told of %v", batch.IDs)
	}
	record, err := r.store.Get(t.Context(), id)
	if err != nil || record.StreamSequence != 1 || record.BodyBytes != 1 || record.TokenID != "t" ||
		record.StartedAt.IsZero() {
		t.Errorf("%+v, %v", record, err)
	}
}

func TestNothingIsAcknowledgedWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.store.setAway(true)
	var ids []string
	for range 20 {
		ids = append(ids, r.begin("wf"))
	}
	r.await("it says that it is not ready",
		func() bool { return len(r.ops.Readiness.NotReadyReasons()) == 1 })
	// NATS updates the number of pending messages with a slight delay.
	r.await("all are still to be recorded", func() bool { return r.pending() == int64(len(ids)) })
	r.store.setAway(false)
	for _, id := range ids {
		r.await("it is recorded", func() bool { return r.has(id, execution.Queued) })
	}
	r.await("all is acknowledged", func() bool { return r.pending() == 0 })
	if reasons := r.ops.Readiness.NotReadyReasons(); len(reasons) != 0 {
		t.Errorf("not ready: %v", reasons)
	}
}

// alter runs a statement directly on the database, without the recorder. It retries while the
// recorder is writing.
func (r *rig) alter(query string) {
	r.t.Helper()
	r.await(query, func() bool {
		_, err := r.db.ExecContext(r.t.Context(), query)
		return err == nil // fails while the recorder writes
	})
}

func (r *rig) aside() []store.AsideMessage {
	r.t.Helper()
	aside, err := r.store.ListAside(r.t.Context(), store.AsideFilter{},
		store.AsidePosition{}, 10)
	if err != nil {
		r.t.Fatal(err)
	}
	return aside
}

// counted returns the value of each counter under its name, summed over all labels. It also returns
// sums for single label values: the key "NAME VALUE" has the sum of the counters with this name and
// a label of this value. Metrics that are not counters have the value 0.
func (r *rig) counted() map[string]float64 {
	r.t.Helper()
	families, err := r.ops.Metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			counted[family.GetName()] += m.GetCounter().GetValue()
			for _, label := range m.GetLabel() {
				counted[family.GetName()+" "+label.GetValue()] += m.GetCounter().GetValue()
			}
		}
	}
	return counted
}

const refuse = `CREATE TRIGGER refuse BEFORE INSERT ON executions WHEN NEW.workflow = (SELECT workflow FROM workflows WHERE workflow_id = 'refused') BEGIN SELECT RAISE(ABORT, 'no such thing here'); END`

// A message that cannot be decoded is put aside, and so is a message whose data the database
// refuses. Neither blocks other messages.
func TestPoison(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.alter(refuse)
	before := r.begin("wf")
	r.publish(&nats.Msg{Subject: "executions.start.q.wf.node", Data: []byte("\xff")}, nil)
	refused := r.begin("refused")
	r.progress(uuid.NewString(), execution.Running) // of an execution that is not recorded
	after := r.begin("wf")
	r.await("what came before and after is recorded", func() bool {
		return r.has(before, execution.Queued) && r.has(after, execution.Queued)
	})
	r.await("two are put aside", func() bool { return len(r.aside()) == 2 })
	aside := r.aside()
	if aside[0].StreamSequence != 3 || aside[1].StreamSequence != 2 ||
		aside[1].Subject != "executions.start.q.wf.node" || aside[1].Reason == "" {
		t.Errorf("%+v", aside)
	}
	if !aside[0].RefusedByDatabase() || aside[1].RefusedByDatabase() ||
		!strings.Contains(aside[0].Reason, "no such thing here") {
		t.Errorf("%+v", aside)
	}
	if _, err := r.store.Get(t.Context(), refused); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%v", err)
	}
	r.await("all is acknowledged or given up", func() bool { return r.pending() == 0 })
	if counted := r.counted(); counted["hookstart_executor_refused_total"] != 1 ||
		counted["hookstart_executor_unreadable_total"] != 1 {
		t.Errorf("%v", counted)
	}
	if reasons := r.ops.Readiness.NotReadyReasons(); len(reasons) != 0 {
		t.Errorf("not ready: %v", reasons)
	}
}

// The database refuses to mark an execution as failed after its runner has sent an unreadable
// report. The report is put aside anyway.
func TestAnUnreadableReportThatIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.alter(`CREATE TRIGGER refuse_report BEFORE INSERT ON early_progress BEGIN SELECT RAISE(ABORT, 'no such thing here'); END`)
	subject := "executions.progress.q.wf." + uuid.NewString()
	r.publish(&nats.Msg{Subject: subject, Data: []byte("\xff")}, nil)
	r.await("it is put aside", func() bool { return len(r.aside()) == 1 })
	if aside := r.aside()[0]; aside.Subject != subject || aside.RefusedByDatabase() {
		t.Errorf("%+v", aside)
	}
	r.await("it is given up", func() bool { return r.pending() == 0 })
}

// If the database refuses a message and also refuses to put it aside, the recorder retries
// indefinitely.
func TestNothingIsGivenUpThatCannotBePutAside(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.alter(refuse)
	r.alter(
		`CREATE TRIGGER refuse_aside BEFORE INSERT ON unreadable BEGIN SELECT RAISE(ABORT, 'nor here'); END`,
	)
	refused, other := r.begin("refused"), r.begin("wf")
	r.await("the other is recorded", func() bool { return r.has(other, execution.Queued) })
	r.await("to put it aside has failed", func() bool {
		return strings.Contains(r.logs.String(), "could not put aside a message")
	})
	r.alter(`DROP TRIGGER refuse`)
	r.await("it is recorded", func() bool { return r.has(refused, execution.Queued) })
	if aside := r.aside(); len(aside) != 0 {
		t.Errorf("put aside: %+v", aside)
	}
}

// The database responds but cannot write records, whatever the messages contain. No message is put
// aside or acknowledged, although the database could still write dead letters.
func TestTheDatabasesFaultPutsNothingAside(t *testing.T) {
	t.Parallel()
	r := start(t)
	// Without the table minutes, the database cannot record a start, but it can still store a dead
	// letter.
	r.alter(`ALTER TABLE minutes RENAME TO elsewhere`)
	var ids []string
	for range 5 {
		ids = append(ids, r.begin("wf"))
	}
	r.await("it has failed often", func() bool {
		return r.counted()["hookstart_executor_transaction_failures_total"] >= 4
	})
	if n := r.pending(); n != int64(len(ids)) {
		t.Errorf("%d are still to be recorded", n)
	}
	if reasons := r.ops.Readiness.NotReadyReasons(); len(reasons) != 1 {
		t.Errorf("not ready: %v", reasons)
	}
	r.alter(`ALTER TABLE elsewhere RENAME TO minutes`)
	for _, id := range ids {
		r.await("it is recorded", func() bool { return r.has(id, execution.Queued) })
	}
	if aside := r.aside(); len(aside) != 0 {
		t.Errorf("put aside: %+v", aside)
	}
	r.await("it is ready", func() bool { return len(r.ops.Readiness.NotReadyReasons()) == 0 })
}

// A transaction that takes too long is canceled, and its batch is split until the parts succeed.
// Until then, the recorder is not ready.
func TestABatchThatTakesTooLongIsDivided(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.stop() // all messages must be waiting when it begins
	r.store.setTooBig(2)
	ids := make([]string, 6)
	for i := range ids {
		ids[i] = r.begin("wf")
	}
	r.stop = r.again()
	r.await("it says that it is not ready",
		func() bool { return len(r.ops.Readiness.NotReadyReasons()) == 1 })
	for _, id := range ids {
		r.await("it is recorded", func() bool { return r.has(id, execution.Queued) })
	}
	r.await("it is ready", func() bool { return len(r.ops.Readiness.NotReadyReasons()) == 0 })
}

// A transaction is committed, but the database's response is lost. The retry changes nothing, yet
// watchers are notified of the changes. This also holds if the transaction ends a lost execution as
// failed.
func TestChangesOfAnUnansweredCommitAreAnnounced(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.store.setUnanswered()
	r.wantTold(r.begin("wf"))

	r.stop()
	lost := r.keep(10*time.Minute, execution.Queued)
	r.store.setUnanswered()
	r.stop = r.again()
	r.await("it has failed", func() bool { return r.has(lost, execution.Failed) })
	r.wantTold(lost)
}

// wantTold checks that the next message sent to watchers announces a change to the execution with
// the given ID.
func (r *rig) wantTold(id string) {
	r.t.Helper()
	select {
	case batch := <-r.told:
		if !slices.Contains(batch.IDs, id) {
			r.t.Errorf("watchers were told of %v", batch.IDs)
		}
	case <-time.After(10 * time.Second):
		r.t.Error("watchers were told of nothing")
	}
}

// During an outage of the database, the number of attempts and of log lines does not depend on how
// many messages are waiting. The log says once that the outage has begun, and once that it has
// ended.
func TestTheDatabaseAwayIsSaidOnce(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.store.setAway(true)
	minute := time.Now().UTC().Truncate(time.Minute)
	for i := range 200 {
		r.publish(stream.RefusalsMessage(fmt.Sprint("report ", i), time.Now(),
			[]stream.RefusalCount{
				{WorkflowID: "wf", Code: "token_invalid", Minute: minute, Count: 1},
			}))
	}
	id := r.begin("wf")
	r.await("it has failed often", func() bool {
		return r.counted()["hookstart_executor_transaction_failures_total"] >= 4
	})
	if n := r.counted()["hookstart_executor_transaction_failures_total"]; n > 20 {
		t.Errorf("%v attempts", n)
	}
	if logs := r.logs.String(); strings.Count(logs, "level=warning") != 1 {
		t.Errorf("not one warning:\n%s", logs)
	}
	r.store.setAway(false)
	r.await("all is applied", func() bool {
		sums, err := r.store.Refusals(t.Context(), "wf", minute)
		return err == nil && len(sums) == 1 && sums[0].Count == 200 && r.has(id, execution.Queued)
	})
	if logs := r.logs.String(); strings.Count(logs, "the database works again") != 1 {
		t.Errorf("the end is not said once:\n%s", logs)
	}
}

// The database cannot record executions, but it can apply a report. The report does not make the
// executor ready again.
func TestAReportDoesNotEndAnOutage(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.store.setFull(true)
	id := r.begin("wf")
	// After the fifth failed attempt, the next one follows only after more than a second. In that
	// time, nothing but the report reaches the database.
	r.await("it has failed often", func() bool {
		return r.counted()["hookstart_executor_transaction_failures_total"] >= 5
	})
	minute := time.Now().UTC().Truncate(time.Minute)
	r.publish(stream.RefusalsMessage("report", time.Now(), []stream.RefusalCount{
		{WorkflowID: "wf", Code: "token_invalid", Minute: minute, Count: 1},
	}))
	r.await("the report is applied and acknowledged", r.reportsAreAcknowledged)
	if reasons := r.ops.Readiness.NotReadyReasons(); len(reasons) != 1 {
		t.Errorf("not ready: %v", reasons)
	}
	r.store.setFull(false)
	r.await("it is recorded", func() bool { return r.has(id, execution.Queued) })
	r.await("it is ready", func() bool { return len(r.ops.Readiness.NotReadyReasons()) == 0 })
}

// reportsAreAcknowledged reports whether there has been a report and all reports are acknowledged.
func (r *rig) reportsAreAcknowledged() bool {
	consumer, err := r.js.Consumer(r.t.Context(), stream.ReportsName, stream.RecorderConsumerName)
	if err != nil {
		return false
	}
	info := consumer.CachedInfo()
	return info.AckFloor.Stream > 0 && stream.Unacknowledged(info) == 0
}

// A secret that a provider has sent is not stored if the node has another sender by now. The
// requests of the new sender are not signed with this secret, so they would be refused if it were
// stored.
func TestTheSecretOfAReplacedSenderIsNotStored(t *testing.T) {
	t.Parallel()
	r := start(t)
	for n, preset := range []string{"asana", "slack", "asana"} {
		r.publish(stream.SendersMessage(fmt.Sprint("report ", n), time.Now(),
			[]stream.SenderActivity{{
				WorkflowID: "wf", NodeID: "node", Preset: preset, HandshakeAt: time.Now(),
				Captured: []byte("sealed"),
			}}))
	}
	r.await("all reports are applied", func() bool {
		consumer, err := r.js.Consumer(t.Context(), stream.ReportsName, stream.RecorderConsumerName)
		return err == nil && consumer.CachedInfo().AckFloor.Stream == 3
	})
	if n := r.captured.Load(); n != 1 {
		t.Errorf("%d secrets were stored, and 1 report is about the node's sender", n)
	}
}

// A report that cannot be applied because the registry is unavailable does not count as a failure
// of the database.
func TestARegistryThatIsAwayIsNotTheDatabase(t *testing.T) {
	t.Parallel()
	senders := func() (*nats.Msg, error) {
		return stream.SendersMessage("report", time.Now(), []stream.SenderActivity{
			{WorkflowID: "wf", NodeID: "node", Preset: "slack", VerifiedAt: time.Now()},
		})
	}
	for name, c := range map[string]struct {
		away   func(*rig) *atomic.Bool
		report func() (*nats.Msg, error)
	}{
		"a sender's preset":       {func(r *rig) *atomic.Bool { return &r.sendersAway }, senders},
		"the workflow of senders": {func(r *rig) *atomic.Bool { return &r.workflowsAway }, senders},
		"the workflow of refusals": {
			func(r *rig) *atomic.Bool { return &r.workflowsAway },
			func() (*nats.Msg, error) {
				return stream.RefusalsMessage("report", time.Now(), []stream.RefusalCount{{
					WorkflowID: "wf", Code: "unknown_node", Minute: time.Now(), Count: 1,
					Last: stream.RefusedRequest{At: time.Now()},
				}})
			},
		},
		"the workflow of a filter": {
			func(r *rig) *atomic.Bool { return &r.workflowsAway },
			func() (*nats.Msg, error) {
				return stream.FilteredMessage("report", time.Now(), []stream.FilteredCount{
					{WorkflowID: "wf", NodeID: "node", Count: 1},
				})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			c.away(r).Store(true)
			r.publish(c.report())
			r.await("the registry was asked again", func() bool { return r.asked.Load() > 1 })
			if reasons := r.ops.Readiness.NotReadyReasons(); len(reasons) != 0 {
				t.Errorf("not ready: %v", reasons)
			}
			if n := r.counted()["hookstart_executor_transaction_failures_total"]; n != 0 {
				t.Errorf("%v transactions failed", n)
			}
			if logs := r.logs.String(); strings.Count(logs, errRegistryAway.Error()) != 1 {
				t.Errorf("not one warning:\n%s", logs)
			}
			c.away(r).Store(false)
			r.await("the report is applied", r.reportsAreAcknowledged)
		})
	}
}

// NATS restarts without the recorder's consumer, and the server does not report that the consumer
// is gone. After the recorder has reconnected, it notices this and recreates the consumer.
func TestAConsumerThatIsGoneAfterAReconnectIsMadeAnew(t *testing.T) {
	t.Parallel()
	r := start(t)
	first := r.begin("wf")
	r.await("it is recorded and acknowledged", func() bool {
		return r.has(first, execution.Queued) && r.pending() == 0
	})
	r.nats.Stop()
	folder, err := filepath.Glob(
		filepath.Join(r.nats.StoreDir(), "*", "*", "streams", stream.ExecutionsName,
			"obs", stream.RecorderConsumerName),
	)
	if err != nil || len(folder) != 1 {
		t.Fatalf("%v, %v", folder, err)
	}
	if err := os.RemoveAll(folder[0]); err != nil {
		t.Fatal(err)
	}
	r.nats.Restart()
	var second string
	r.await("the server takes messages", func() bool {
		id, err := r.tryBegin()
		second = id
		return err == nil
	})
	r.await("it is recorded", func() bool { return r.has(second, execution.Queued) })
}

// A runner may report only on executions of its queue and workflow. A report that names another
// queue or workflow changes nothing and is counted. A report whose subject names another execution
// than its body is unreadable. A valid report is applied even if its message ID equals a delivery
// ID.
func TestForgedProgress(t *testing.T) {
	t.Parallel()
	r := start(t)
	id := r.begin("wf")
	forged := func(queue, workflowID string) (*nats.Msg, error) {
		return stream.ProgressMessage(queue, workflowID, "node", "", execution.Progress{
			ID:     id,
			Status: execution.Failed,
			At:     time.Now(),
			Error:  "forged",
		})
	}
	r.publish(forged("gpu", "wf"))
	r.publish(forged("q", "mine"))
	of, err := forged("q", "wf")
	if err != nil {
		t.Fatal(err)
	}
	// This subject names an execution other than the one in the body.
	of.Subject = stream.ProgressSubject("q", "wf", uuid.NewString())
	r.publish(of, nil)
	withID, err := stream.ProgressMessage("q", "wf", "node", "", execution.Progress{
		ID:     id,
		Status: execution.Running,
		At:     time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	withID.Header.Set(jetstream.MsgIDHeader, "a delivery's")
	r.publish(withID, nil)
	r.await("all is recorded or given up", func() bool {
		return r.has(id, execution.Running) && r.pending() == 0
	})
	var counted map[string]float64
	r.await("they are counted, which happens after the acknowledgements", func() bool {
		counted = r.counted()
		return counted["hookstart_executor_unreadable_total"] >= 1 &&
			counted["hookstart_executor_foreign_progress_total"] >= 1
	})
	// Both forged reports concern the same execution. They count once if they are in the same
	// batch, and twice otherwise.
	if n := counted["hookstart_executor_foreign_progress_total"]; n < 1 || n > 2 {
		t.Errorf("%v foreign", n)
	}
	if n := counted["hookstart_executor_unreadable_total"]; n != 1 {
		t.Errorf("%v unreadable", n)
	}
}

// Progress that arrives before its start message is kept until the start message is recorded. That
// can take a long time if another executor has received the start message and is frozen.
func TestProgressWaitsForItsStart(t *testing.T) {
	t.Parallel()
	r := start(t)
	id := uuid.NewString()
	r.progress(id, execution.Running)
	r.progress(id, execution.Succeeded)
	r.await("progress is kept", func() bool {
		return r.counted()["hookstart_executor_early_progress_total"] >= 1 && r.pending() == 0
	})
	r.publish(stream.StartMessage(execution.Start{
		ID:         id,
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "a",
		Queue:      "q",
		Source:     execution.SourceWebhook,
		AcceptedAt: time.Now(),
		Payload:    execution.Payload{Kind: execution.BodyText},
	}))
	r.await("it has succeeded", func() bool { return r.has(id, execution.Succeeded) })
}

// Reports on unknown executions do not hold up other messages. They are stored immediately and
// never redelivered.
func TestUnknownReportsHoldNothingUp(t *testing.T) {
	t.Parallel()
	r := start(t)
	const flood = 300
	for range flood {
		msg, err := stream.ProgressMessage("q", "wf", "node", "", execution.Progress{
			ID:     uuid.NewString(),
			Status: execution.Succeeded,
			At:     time.Now(),
		})
		if err == nil {
			err = r.js.Conn().PublishMsg(msg)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	id := r.begin("wf")
	r.progress(id, execution.Succeeded)
	r.await("the next one is recorded", func() bool { return r.has(id, execution.Succeeded) })
	r.await("all is acknowledged", func() bool { return r.pending() == 0 })
	consumer, err := r.js.Consumer(t.Context(), stream.ProgressName, stream.RecorderConsumerName)
	if err != nil || consumer.CachedInfo().NumRedelivered != 0 ||
		consumer.CachedInfo().Delivered.Consumer < flood {
		t.Errorf("%+v, %v", consumer.CachedInfo(), err)
	}
}

func TestReportsCountOnce(t *testing.T) {
	t.Parallel()
	r := start(t)
	id := r.begin("wf")
	report, err := stream.DuplicatesMessage("report", time.Now(), map[string]int64{id: 2})
	if err != nil {
		t.Fatal(err)
	}
	r.publish(report, nil)
	report.Header.Set(jetstream.MsgIDHeader, "the stream has forgotten the first")
	r.publish(report, nil)
	r.publish(&nats.Msg{Subject: stream.DuplicatesSubject, Data: []byte("\xff")}, nil)
	r.publish(stream.DuplicatesMessage("another", time.Now(), map[string]int64{id: 1}))
	r.await("they are counted", func() bool {
		record, err := r.store.Get(t.Context(), id)
		return err == nil && record.Duplicates == 3
	})
}

// After NATS has lost its storage, the recorder recreates its consumer of the ingresses' reports,
// and continues to apply new reports.
func TestReportsAreAppliedAfterTheStorageWasLost(t *testing.T) {
	t.Parallel()
	r := start(t)
	report := func(id string) (*nats.Msg, error) {
		return stream.RefusalsMessage(id, time.Now(), []stream.RefusalCount{
			{Code: "token_invalid", Minute: time.Now().Truncate(time.Minute), Count: 1},
		})
	}
	r.publish(report("before"))
	r.await("the report is applied", r.reportsAreAcknowledged)
	r.nats.Stop()
	if err := os.RemoveAll(r.nats.StoreDir()); err != nil {
		t.Fatal(err)
	}
	r.nats.Restart()
	r.await("the streams are there", func() bool {
		return stream.EnsureSharedStreams(t.Context(), r.js, stream.DefaultSettings) == nil &&
			stream.EnsureReportsStream(t.Context(), r.js, 1) == nil
	})
	r.publish(report("after"))
	r.await("the report is applied", r.reportsAreAcknowledged)
}

func TestItGoesOnAfterTheServerWasAway(t *testing.T) {
	t.Parallel()
	r := start(t)
	first := r.begin("wf")
	r.await("it is recorded", func() bool { return r.has(first, execution.Queued) })
	r.nats.Restart()
	var second string
	r.await("the server takes messages", func() bool {
		id, err := r.tryBegin()
		second = id
		return err == nil
	})
	r.await("it is recorded", func() bool { return r.has(second, execution.Queued) })
}

func TestReportsOfRefusalsCountOnce(t *testing.T) {
	t.Parallel()
	r := start(t)
	minute := time.Now().UTC().Truncate(time.Minute)
	count := stream.RefusalCount{
		WorkflowID: "wf",
		Code:       "token_invalid",
		Minute:     minute,
		Count:      2,
		Last: stream.RefusedRequest{
			At:        minute.Add(time.Second),
			BodyBytes: 7,
			UserAgent: "curl",
		},
	}
	report, err := stream.RefusalsMessage("report", time.Now(), []stream.RefusalCount{count})
	if err != nil {
		t.Fatal(err)
	}
	r.publish(report, nil)
	report.Header.Set(jetstream.MsgIDHeader, "the stream has forgotten the first")
	r.publish(report, nil)
	r.publish(&nats.Msg{Subject: stream.RefusalsSubject, Data: []byte("\xff")}, nil)
	r.publish(stream.RefusalsMessage("another", time.Now(), []stream.RefusalCount{count}))
	r.await("they are counted", func() bool {
		sums, err := r.store.Refusals(t.Context(), "wf", minute)
		return err == nil && len(sums) == 1 &&
			sums[0] == store.RefusalSum{
				Code:  "token_invalid",
				Count: 4,
				Last: store.RefusedRequest{
					At:        minute.Add(time.Second),
					BodyBytes: 7,
					UserAgent: "curl",
				},
			}
	})
}

// An ingress's observation names a preset that the node's sender no longer has. It is ignored,
// because it concerns an earlier sender.
func TestReportsOfAnEarlierSenderDoNotCount(t *testing.T) {
	t.Parallel()
	r := start(t)
	at := time.Now()
	report := func(id, preset string) {
		t.Helper()
		r.publish(stream.SendersMessage(id, at, []stream.SenderActivity{{
			WorkflowID:  "wf",
			NodeID:      "node",
			Preset:      preset,
			VerifiedAt:  at,
			RefusedAt:   at,
			RefusedCode: "signature_invalid",
			Refused:     1,
			Deliveries:  1,
		}}))
	}
	report("late", "github")
	report("now", "slack")
	r.await("reports", func() bool {
		seen, err := r.store.SenderActivity(t.Context(), "wf", "node")
		if err != nil {
			t.Fatal(err)
		}
		if seen.Deliveries > 1 {
			t.Fatalf("%d deliveries of one", seen.Deliveries)
		}
		return seen.Deliveries == 1 // reports are applied in order, so the first one was skipped
	})
}

// Workflows in the tests of observations. deletedWorkflow does not exist. recreatedWorkflow was
// created at recreatedAt.
const (
	deletedWorkflow   = "deleted"
	recreatedWorkflow = "recreated"
)

var recreatedAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// An observation from before a workflow was created concerns an earlier workflow with the same ID,
// perhaps in another account, so it is ignored. So is an observation of a workflow that no longer
// exists.
func TestReportsOfADeletedWorkflowDoNotCount(t *testing.T) {
	t.Parallel()
	r := start(t)
	before, after := recreatedAt.Add(-time.Second), recreatedAt.Add(time.Second)
	for i, report := range []struct {
		workflow string
		at       time.Time
	}{{deletedWorkflow, after}, {recreatedWorkflow, before}, {recreatedWorkflow, after}} {
		id := fmt.Sprint(i)
		r.publish(stream.RefusalsMessage("refusals "+id, after, []stream.RefusalCount{{
			WorkflowID: report.workflow, Code: "token_invalid",
			Minute: report.at.Truncate(time.Minute), Count: 1,
			Last: stream.RefusedRequest{At: report.at, UserAgent: id},
		}}))
		r.publish(stream.FilteredMessage("filtered "+id, after, []stream.FilteredCount{{
			WorkflowID: report.workflow, NodeID: "node", Count: 1,
			Last: []stream.FilteredRequest{{At: report.at, DeliveryID: id, Place: "ptr:/a"}},
		}}))
		r.publish(stream.SendersMessage("senders "+id, after, []stream.SenderActivity{{
			WorkflowID: report.workflow, NodeID: "node", Preset: "slack",
			RefusedAt: report.at, RefusedReason: id, Refused: 1,
		}}))
	}
	r.await("the last report", func() bool { // reports are applied in order
		seen, err := r.store.SenderActivity(t.Context(), recreatedWorkflow, "node")
		return err == nil && seen.RefusedReason == "2"
	})
	for workflow, want := range map[string]int64{deletedWorkflow: 0, recreatedWorkflow: 1, "": 2} {
		refused := int64(0)
		sums, err := r.store.Refusals(t.Context(), workflow, before.Add(-time.Hour))
		if err != nil {
			t.Error(err)
		}
		for _, sum := range sums {
			refused += sum.Count
		}
		if refused != want {
			t.Errorf("%d refusals of %q, want %d: %+v", refused, workflow, want, sums)
		}
		if workflow == "" {
			continue
		}
		filtered, err := r.store.FilteredSummary(t.Context(), workflow, "node")
		if err != nil || filtered.Count != want || int64(len(filtered.Last)) != want {
			t.Errorf("filtered by %s: %+v, %v", workflow, filtered, err)
		}
		seen, err := r.store.SenderActivity(t.Context(), workflow, "node")
		if err != nil || seen.Refused != want {
			t.Errorf("sender of %s: %+v, %v", workflow, seen, err)
		}
	}
}
