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
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/executor/internal/store/sqlite"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// taken creates a consumer of the shared stream, fetches the given number of messages with it, and
// acknowledges them.
func (r *rig) taken(config jetstream.ConsumerConfig, messages int) jetstream.Consumer {
	r.t.Helper()
	return r.takenOf(stream.ExecutionsName, config, messages)
}

// takenOf is like taken, but for the stream with the given name.
func (r *rig) takenOf(
	name string, config jetstream.ConsumerConfig, messages int,
) jetstream.Consumer {
	r.t.Helper()
	consumer, err := r.js.CreateOrUpdateConsumer(r.t.Context(), name, config)
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
	if info, err := consumer.Info(r.t.Context()); err != nil ||
		info.AckFloor.Stream != uint64(messages) {
		r.t.Fatalf("acknowledged up to %d, %v", info.AckFloor.Stream, err)
	}
	return consumer
}

var (
	recordersConsumer = jetstream.ConsumerConfig{
		Durable:       stream.RecorderConsumerName,
		Description:   "hookstart: the executors record every message",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       5 * time.Second,
		MaxAckPending: 10_000,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	}
	runnersConsumer = stream.RunnerGroup{Queue: "q", Group: "g"}.ConsumerConfig(15 * time.Second)
)

// A power failure rolls the stream back, and the stream grows again past the sequences that its
// consumers had acknowledged. The executions that were accepted afterwards are recorded and run
// once. The executions whose start messages were lost are ended as failed, unless they had ended
// before.
func TestAStreamThatWasTakenBack(t *testing.T) {
	t.Parallel()
	r := start(t)
	var lost []string
	for range 5 {
		lost = append(lost, r.begin("wf"))
	}
	r.progress(lost[0], execution.Succeeded)
	r.await("all are recorded", func() bool {
		return r.has(lost[0], execution.Succeeded) && r.has(lost[4], execution.Queued)
	})
	r.stop()

	if err := errors.Join(r.js.DeleteStream(t.Context(), stream.ExecutionsName),
		stream.EnsureSharedStreams(t.Context(), r.js, stream.DefaultSettings)); err != nil {
		t.Fatal(err)
	}
	var since []string
	for range 8 {
		since = append(since, r.begin("wf"))
	}
	r.taken(recordersConsumer, 5)
	runners := r.taken(runnersConsumer, 5)
	r.stop = r.again()
	// The group's consumer has acknowledged the sequences 1 to 5, as if its state had survived the
	// power failure, so the group receives the messages 6 to 8 now. Copies of the skipped messages
	// follow later.
	handled, err := runners.Fetch(3, jetstream.FetchMaxWait(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for msg := range handled.Messages() {
		id := msg.Headers().Get(stream.HeaderExecutionID)
		got[id]++
		r.progress(id, execution.Succeeded)
		if err := msg.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	for _, id := range since {
		r.await("what was accepted since is recorded", func() bool {
			return r.has(id, execution.Queued) || r.has(id, execution.Succeeded)
		})
	}
	for _, id := range lost[1:] {
		r.await("what was lost has failed", func() bool { return r.has(id, execution.Failed) })
		if record, err := r.store.Get(t.Context(), id); err != nil ||
			!strings.Contains(record.Error, "its start was lost") {
			t.Errorf("%q, %v", record.Error, err)
		}
	}
	if !r.has(lost[0], execution.Succeeded) {
		t.Error("an end that was reported has changed")
	}
	batch, err := runners.Fetch(6, jetstream.FetchMaxWait(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for msg := range batch.Messages() {
		got[msg.Headers().Get(stream.HeaderExecutionID)]++
	}
	for _, id := range since {
		if got[id] != 1 {
			t.Errorf("the runners were given %s %d times", id, got[id])
		}
	}
	if n := r.counted()["hookstart_executor_rewinds_total runners"]; n != 5 {
		t.Errorf("%v copies", n)
	}
}

// A stream is rolled back to a sequence before the one at which a group of runners began, so the
// server refuses to rewind the group's consumer. Recording continues, and the group receives copies
// of the new messages that it would otherwise skip.
func TestAStreamThatWasTakenBackBehindAGroupsStart(t *testing.T) {
	t.Parallel()
	r := start(t)
	var lost []string
	for range 5 {
		lost = append(lost, r.begin("wf"))
	}
	r.await("all are recorded", func() bool { return r.has(lost[4], execution.Queued) })
	r.stop()

	if err := errors.Join(r.js.DeleteStream(t.Context(), stream.ExecutionsName),
		stream.EnsureSharedStreams(t.Context(), r.js, stream.DefaultSettings)); err != nil {
		t.Fatal(err)
	}
	var since []string
	for range 8 {
		since = append(since, r.begin("wf"))
	}
	r.taken(recordersConsumer, 5)
	later := runnersConsumer
	later.DeliverPolicy, later.OptStartSeq = jetstream.DeliverByStartSequencePolicy, 12
	runners, err := r.js.CreateConsumer(t.Context(), stream.ExecutionsName, later)
	if err != nil {
		t.Fatal(err)
	}
	r.stop = r.again()
	for _, id := range since {
		r.await("what was accepted since is recorded", func() bool {
			return r.has(id, execution.Queued)
		})
	}
	batch, err := runners.Fetch(len(since), jetstream.FetchMaxWait(5*time.Second))
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
	if logs := r.logs.String(); !strings.Contains(logs, "cannot rewind their consumer") {
		t.Errorf("the log does not say so:\n%s", logs)
	}
}

// The database is lost, but the streams are not. Everything is recorded again, and no execution
// runs again.
func TestADatabaseThatWasLost(t *testing.T) {
	t.Parallel()
	r := start(t)
	empty := r.copied()
	var ids []string
	for range 5 {
		ids = append(ids, r.begin("wf"))
		r.progress(ids[len(ids)-1], execution.Succeeded)
	}
	runners := r.taken(runnersConsumer, 5)
	r.await("all is recorded", func() bool {
		return r.has(ids[4], execution.Succeeded) && r.pending() == 0
	})
	r.putBack(empty)
	for _, id := range ids {
		r.await("it is recorded again, with its end", func() bool {
			return r.has(id, execution.Succeeded)
		})
	}
	if info, err := runners.Info(t.Context()); err != nil || info.AckFloor.Stream != 5 {
		t.Errorf("the runners' consumer: %+v, %v", info, err)
	}
}

// copied copies the database to a new file and returns its path.
func (r *rig) copied() string {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "copy.db")
	r.alter("VACUUM INTO '" + path + "'")
	return path
}

// putBack stops the recorder, replaces the database with the copy at path, and starts a new
// recorder.
func (r *rig) putBack(path string) {
	r.t.Helper()
	r.stop()
	if err := errors.Join(r.db.Close(), r.store.Close()); err != nil {
		r.t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		_ = os.Remove(r.path + suffix)
	}
	if err := os.WriteFile(r.path, data, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if r.db, err = sql.Open("sqlite", r.path); err != nil {
		r.t.Fatal(err)
	}
	if r.store.Store, err = sqlite.Open(r.t.Context(), r.path); err != nil {
		r.t.Fatal(err)
	}
	r.stop = r.again()
}

// A database loses its last transactions, as it does when a lagging standby is promoted. Starts,
// final states and messages put aside are recorded again, and runners receive no message again.
// Until everything is recorded again, /readyz reports the recovery.
func TestADatabaseThatIsBehind(t *testing.T) {
	t.Parallel()
	for name, incomplete := range map[string]bool{
		"with its ranges": false,
		"without ranges, and a record in the middle is missing": true,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			var kept, lost []string
			for range 4 {
				kept = append(kept, r.begin("wf"))
			}
			r.progress(kept[0], execution.Succeeded)
			r.await("all is recorded", func() bool {
				return r.has(kept[0], execution.Succeeded) && r.has(kept[3], execution.Queued) &&
					r.pending() == 0
			})
			before := r.copied()

			for range 4 {
				lost = append(lost, r.begin("wf"))
			}
			r.publish(&nats.Msg{Subject: "executions.start.q.wf.node", Data: []byte("\xff")}, nil)
			for _, id := range append(slices.Clone(kept[1:]), lost...) {
				r.progress(id, execution.Succeeded)
			}
			runners := r.taken(runnersConsumer, 9)
			r.await("all is recorded", func() bool {
				return r.has(lost[3], execution.Succeeded) && r.pending() == 0 &&
					len(r.aside()) == 1
			})
			if incomplete {
				r.stop()
				r.stop = func() {}
				db, err := sql.Open("sqlite", before)
				if err == nil {
					_, err = db.ExecContext(t.Context(), `DELETE FROM decided;
						DELETE FROM executions WHERE stream_sequence = 3`)
				}
				if err := errors.Join(err, db.Close()); err != nil {
					t.Fatal(err)
				}
			}
			r.putBack(before)
			for _, id := range append(slices.Clone(kept), lost...) {
				r.await("it has its end", func() bool { return r.has(id, execution.Succeeded) })
			}
			r.await("what was put aside is there", func() bool { return len(r.aside()) == 1 })
			r.await("it is ready",
				func() bool { return len(r.ops.Readiness.NotReadyReasons()) == 0 })
			if counted := r.counted(); counted["hookstart_executor_rewinds_total database"] < 1 ||
				counted["hookstart_executor_rewinds_total runners"] != 0 ||
				counted["hookstart_executor_ended_total"] != 0 {
				t.Errorf("%v", counted)
			}
			for _, line := range []string{
				"the database is behind what was acknowledged", "the database has again",
			} {
				r.await("the log says: "+line, func() bool {
					return strings.Contains(r.logs.String(), line)
				})
			}
			if info, err := runners.Info(t.Context()); err != nil || info.AckFloor.Stream != 9 ||
				info.Delivered.Consumer != 9 {
				t.Errorf("the runners' consumer: %+v, %v", info, err)
			}
		})
	}
}

// While the recorder is running, the database loses transactions, for example because another
// server has taken over its address. The recorder notices that and records the messages again. The
// lost messages are not the newest, because several executors commit their transactions in any
// order.
func TestADatabaseThatLosesTransactionsMeanwhile(t *testing.T) {
	t.Parallel()
	r := start(t)
	var ids []string
	for range 6 {
		id := r.begin("wf")
		r.await("it is recorded", func() bool {
			return r.has(id, execution.Queued) && r.pending() == 0
		})
		ids = append(ids, id)
	}
	r.alter(`DELETE FROM executions WHERE stream_sequence IN (3, 4)`)
	r.alter(`DELETE FROM decided WHERE stream = 'EXECUTIONS' AND first_sequence IN (3, 4)`)
	for n, id := range ids {
		r.await(fmt.Sprint("message ", n+1, " is recorded; ", r.logs), func() bool {
			return r.has(id, execution.Queued)
		})
	}
	// The recorder counts a rewind after it has made it; the messages can be recorded before that.
	r.await("the rewind is counted", func() bool {
		return r.counted()["hookstart_executor_rewinds_total database"] >= 1
	})
}

// A runner acknowledges an execution without a report. The execution becomes a dead letter. The
// recorder does not rewind any consumer because of it, so no other execution runs again.
func TestAMissingReportRunsNothingAgain(t *testing.T) {
	t.Parallel()
	r := start(t)
	victim := r.begin("wf")
	var others []string
	for range 5 {
		others = append(others, r.begin("wf"))
		r.progress(others[len(others)-1], execution.Succeeded)
	}
	runners := r.taken(runnersConsumer, 6)
	waiting := r.begin("wf") // no runner has received it
	r.await("all is recorded", func() bool {
		return r.has(others[4], execution.Succeeded) && r.has(waiting, execution.Queued)
	})
	for range 3 {
		r.stop()
		r.stop = r.again()
		r.await("it is a dead letter", func() bool { return r.has(victim, execution.Failed) })
	}
	record, err := r.store.Get(t.Context(), victim)
	if err != nil || !strings.Contains(record.Error, "without a report that can be read") {
		t.Errorf("%q, %v", record.Error, err)
	}
	if info, err := runners.Info(t.Context()); err != nil || info.AckFloor.Stream != 6 ||
		info.Delivered.Consumer != 6 {
		t.Errorf("the runners' consumer: %+v, %v", info, err)
	}
	if !r.has(waiting, execution.Queued) {
		t.Error("what nobody has taken was ended, too")
	}
}

// Under steady load, some messages are always waiting to be recorded. The recorder still finds an
// execution that a runner has acknowledged without a report.
func TestAMissingReportIsFoundUnderLoad(t *testing.T) {
	t.Parallel()
	r := start(t)
	victim := r.begin("wf")
	r.await("it is recorded", func() bool { return r.has(victim, execution.Queued) })
	r.taken(runnersConsumer, 1)
	r.stop()
	r.store.mu.Lock()
	r.store.slow = 50 * time.Millisecond
	r.store.mu.Unlock()
	loading, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() {
		for n := 0; loading.Err() == nil && n < 50_000; n++ {
			_, _ = r.tryBegin() //nolint:contextcheck // it has the test's context
		}
	})
	r.stop = r.again()
	r.await("it is a dead letter", func() bool { return r.has(victim, execution.Failed) })
	stop()
	load.Wait()
}

// An execution with an order key waits in its lane, while the group acknowledges a later execution
// without an order key. The waiting execution is not ended because of that. It is ended as failed
// only after the group has acknowledged it without a report.
func TestAnOrderedExecutionThatWaits(t *testing.T) {
	t.Parallel()
	r := start(t)
	ordered := uuid.NewString()
	r.publish(stream.StartMessage(execution.Start{
		ID:         ordered,
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "a",
		Queue:      "q",
		Source:     execution.SourceWebhook,
		OrderKey:   "key",
		AcceptedAt: time.Now(),
		Payload:    execution.Payload{Kind: execution.BodyText, Body: []byte("x")},
	}))
	acknowledged := r.begin("wf")
	consumerOf := func(config jetstream.ConsumerConfig) jetstream.Consumer {
		consumer, err := r.js.CreateConsumer(t.Context(), stream.ExecutionsName, config)
		if err != nil {
			t.Fatal(err)
		}
		return consumer
	}
	acknowledge := func(consumer jetstream.Consumer) {
		msg, err := consumer.Next(jetstream.FetchMaxWait(5 * time.Second))
		if err == nil {
			err = msg.DoubleAck(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	group := consumerOf(runnersConsumer)
	info, err := group.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lane := consumerOf(stream.RunnerGroup{
		Queue: "q",
		Group: "g",
	}.LaneConsumerConfig(execution.LaneOf("wf", "key"), info))
	acknowledge(group)
	r.await("all is recorded", func() bool {
		return r.has(ordered, execution.Queued) && r.has(acknowledged, execution.Queued)
	})
	r.stop()
	r.stop = r.again()
	r.await("the other one has failed", func() bool {
		return r.has(acknowledged, execution.Failed)
	})
	if !r.has(ordered, execution.Queued) {
		t.Error("it was ended while it waited")
	}
	acknowledge(lane)
	r.stop()
	r.stop = r.again()
	r.await("it has failed", func() bool { return r.has(ordered, execution.Failed) })
}

// A report that cannot be decoded marks the execution named in its subject as failed, provided that
// the subject has the execution's queue and workflow and the execution has not ended. No other
// execution changes.
func TestAnUnreadableReportEndsItsExecution(t *testing.T) {
	t.Parallel()
	r := start(t)
	victim, other, ended := r.begin("wf"), r.begin("wf"), r.begin("wf")
	r.progress(ended, execution.Succeeded)
	r.await("all is recorded", func() bool {
		return r.has(other, execution.Queued) && r.has(ended, execution.Succeeded)
	})
	for _, subject := range []string{
		stream.ProgressSubject("q", "wf", victim), stream.ProgressSubject("q", "wf", ended),
		stream.ProgressSubject("gpu", "wf", other), stream.ProgressSubject("q", "mine", other),
		stream.ProgressSubject("q", "wf", "no-id"),
	} {
		r.publish(&nats.Msg{Subject: subject, Data: []byte("\xff")}, nil)
	}
	r.await("it has failed", func() bool { return r.has(victim, execution.Failed) })
	r.await("all are put aside", func() bool { return len(r.aside()) == 5 && r.pending() == 0 })
	if record, err := r.store.Get(t.Context(), victim); err != nil ||
		!strings.Contains(record.Error, "cannot be read") {
		t.Errorf("%q, %v", record.Error, err)
	}
	if !r.has(other, execution.Queued) || !r.has(ended, execution.Succeeded) {
		t.Error("another one has changed")
	}
}

// A start message expires before a runner has received it, while all processes keep running. Its
// execution becomes a dead letter, but an execution that is already running does not.
func TestAStartThatExpired(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.stop()
	r.searchEvery = 50 * time.Millisecond
	r.stop = r.again()
	expired, works := r.begin("wf"), r.begin("wf")
	r.progress(works, execution.Running)
	r.await("they are recorded", func() bool {
		return r.has(expired, execution.Queued) && r.has(works, execution.Running)
	})
	settings := stream.DefaultSettings
	settings.MaxAge, settings.DedupWindow = 2*time.Second, time.Second
	if err := stream.ChangeSettings(t.Context(), r.js, settings); err == nil {
		t.Fatal("so short an age is allowed")
	}
	s, err := r.js.Stream(t.Context(), stream.ExecutionsName)
	if err == nil {
		config := s.CachedInfo().Config
		config.MaxAge, config.Duplicates = settings.MaxAge, settings.DedupWindow
		_, err = r.js.UpdateStream(t.Context(), config)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.await("it has failed", func() bool { return r.has(expired, execution.Failed) })
	if record, err := r.store.Get(t.Context(), expired); err != nil ||
		!strings.Contains(record.Error, "within the age of the stream") {
		t.Errorf("%q, %v", record.Error, err)
	}
	r.await("it is counted", func() bool {
		return r.counted()["hookstart_executor_ended_total expired"] == 1
	})
	if !r.has(works, execution.Running) {
		t.Error("one that a runner works on was ended")
	}
}

// The recorder's consumers are lost, so all messages are delivered again. Executions that were
// deleted because of the retention are not recorded again.
func TestWhatWasDeletedIsNotRecordedAgain(t *testing.T) {
	t.Parallel()
	r := start(t)
	id := r.begin("wf")
	r.progress(id, execution.Succeeded)
	r.await("it has succeeded", func() bool { return r.has(id, execution.Succeeded) })
	r.await("all is acknowledged", func() bool { return r.pending() == 0 })
	r.stop()
	names := []string{stream.ExecutionsName, stream.ProgressName}
	for _, name := range names {
		if err := r.js.DeleteConsumer(t.Context(), name, stream.RecorderConsumerName); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := r.store.Prune(t.Context(), time.Now(), 10); n != 1 || err != nil {
		t.Fatalf("%d records deleted, %v", n, err)
	}
	r.retention = time.Millisecond // both messages are older
	r.stop = r.again()
	for _, name := range names {
		r.await("all is acknowledged", func() bool { return r.unrecorded(name) == 0 })
	}
	if record, err := r.store.Get(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("it is recorded again: %+v, %v", record, err)
	}
	var kept int
	if err := r.db.QueryRowContext(t.Context(),
		"SELECT count(*) FROM early_progress").Scan(&kept); err != nil || kept != 0 {
		t.Errorf("%d reports are kept for it, %v", kept, err)
	}
}

// An executor dies before it has acknowledged a message, so the ack floor stays below that message.
// Then the database loses transactions of later messages. The recorder finds these messages and
// records them again as soon as the ack floor has passed them, before the next periodic comparison.
// Until it has compared the database with the stream, it is not ready.
func TestADatabaseThatIsBehindAboveTheAckFloor(t *testing.T) {
	t.Parallel()
	for name, reportsBehind := range map[string]bool{"nothing else": false, "reports": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			first := r.begin("wf")
			r.await("it is recorded", func() bool {
				return r.has(first, execution.Queued) && r.pending() == 0
			})
			r.stop()
			kept := r.begin("wf")
			executors, err := r.js.Consumer(t.Context(), stream.ExecutionsName,
				stream.RecorderConsumerName)
			if err != nil {
				t.Fatal(err)
			}
			held, err := executors.Next() // the executor that dies has received this message
			if err != nil {
				t.Fatal(err)
			}
			if held.Headers().Get(stream.HeaderExecutionID) != kept {
				t.Fatal("another message was fetched")
			}
			r.deliverAgain, r.compareEvery = time.Minute, time.Hour
			r.noSearch = true // a search would also compare the database with the streams
			r.stop = r.again()
			var lost []string
			for range 4 {
				lost = append(lost, r.begin("wf"))
			}
			r.progress(first, execution.Succeeded)
			for _, id := range lost {
				r.await("it is recorded", func() bool { return r.has(id, execution.Queued) })
			}
			r.await("the end is recorded", func() bool {
				return r.has(first, execution.Succeeded)
			})
			r.await("only the message that is held is not acknowledged", func() bool {
				info, err := executors.Info(t.Context())
				return err == nil && info.AckFloor.Stream == 1 && info.NumAckPending == 1
			})
			r.stop()

			r.alter(`DELETE FROM executions WHERE stream_sequence > 2`)
			r.alter(`DELETE FROM decided WHERE stream = 'EXECUTIONS' AND last_sequence > 2`)
			if reportsBehind {
				r.alter(`DELETE FROM decided WHERE stream = 'PROGRESS'`)
			}
			r.stop = r.again()
			r.await("it is not ready before it has looked", func() bool {
				return len(r.ops.Readiness.NotReadyReasons()) == 1
			})
			if !reportsBehind && (r.has(lost[0], execution.Queued) ||
				!strings.Contains(r.ops.Readiness.NotReadyReasons()[0], "it is not known")) {
				t.Errorf("it is not ready: %q", r.ops.Readiness.NotReadyReasons())
			}
			if err := held.Nak(); err != nil { // instead of waiting until it is delivered again
				t.Fatal(err)
			}
			for _, id := range append(slices.Clone(lost), kept) {
				r.await("it is recorded", func() bool { return r.has(id, execution.Queued) })
			}
			r.await("it is ready",
				func() bool { return len(r.ops.Readiness.NotReadyReasons()) == 0 })
		})
	}
}
