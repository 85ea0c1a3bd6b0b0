package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/queuestreams"
	"github.com/hookstart/hookstart/executor/internal/store"
	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
)

var own = stream.Layout{Own: true}

// ownStreams creates the default queue's own streams.
func (r *rig) ownStreams() {
	r.t.Helper()
	r.check(stream.EnsureOwnStreams(r.t.Context(), r.JetStream, stream.DefaultSettings,
		execution.DefaultQueue, stream.QueueStreamLimits{}))
}

// phase sets the phase of the default queue's move to its own stream. The phase determines which
// stream stores new start messages.
func (r *rig) phase(phase stream.QueueStreamPhase) {
	r.t.Helper()
	data, err := proto.Marshal(&hookstartv1.QueueSettings{
		Queue:  execution.DefaultQueue,
		Stream: &hookstartv1.QueueStream{Phase: hookstartv1.QueueStreamPhase(phase)},
	})
	r.check(err)
	bucket, err := r.JetStream.KeyValue(r.t.Context(), "registry")
	r.check(err)
	_, err = bucket.Put(r.t.Context(), "queue."+execution.DefaultQueue, data)
	r.check(err)
}

// startAt publishes the start message of execution id(n) to the default queue, and records that the
// execution failed. at selects the stream: the shared stream or the queue's own.
func (r *rig) startAt(at stream.Layout, n int, body string) {
	r.t.Helper()
	sequence := r.message(at.StartMessage(execution.Start{
		ID:         id(n),
		AccountID:  "acme",
		WorkflowID: "wf",
		NodeID:     "node",
		Queue:      execution.DefaultQueue,
		AcceptedAt: epoch,
		Payload: execution.Payload{
			ContentType: "application/json",
			Kind:        execution.BodyJSON,
			Body:        []byte(body),
		},
	}))
	r.records(store.Batch{NewRecords: []store.Record{record(id(n), func(rec *store.Record) {
		rec.StreamSequence, rec.Status = sequence, execution.Failed
	})}})
}

// ofPlace returns the number of start messages of the default queue in one of two streams: the
// queue's own stream if at.Own is true, or else the shared stream.
func (r *rig) ofPlace(at stream.Layout) (n uint64) {
	r.t.Helper()
	s, err := r.JetStream.Stream(r.t.Context(), at.StreamName(execution.DefaultQueue))
	r.check(err)
	info, err := s.Info(r.t.Context(),
		jetstream.WithSubjectFilter(at.QueueFilterSubject(execution.DefaultQueue)))
	r.check(err)
	for _, of := range info.State.Subjects {
		n += of
	}
	return n
}

// The input of an execution is read from the stream that holds its start message, even if the queue
// has since moved to another stream. Replays are stored in the stream that the queue uses now. A
// repeated replay is recognized even if the queue has moved since the first one.
func TestExecutionsOfBothPlaces(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	r.startAt(stream.Layout{}, 1, `{"in":"shared"}`)
	r.ownStreams()
	r.startAt(own, 2, `{"in":"own"}`) // has the same sequence as the message in the shared stream
	for n, want := range map[int]string{1: "shared", 2: "own"} {
		if got := r.get("/executions/" + id(n)).is(200); !strings.Contains(string(got.body),
			`"in":"`+want+`"`) {
			t.Errorf("%d: %s", n, got.body)
		}
	}
	replay := func(n int) string {
		t.Helper()
		return decode[api.Started](r.call("POST", "/executions/"+id(n)+"/replay", "",
			withKey("k")).is(200)).ExecutionID
	}
	first := replay(2)
	if shared, own := r.ofPlace(stream.Layout{}), r.ofPlace(own); shared != 2 || own != 1 {
		t.Errorf("before the move: %d and %d starts", shared, own)
	}
	r.message(own.DedupMarkerMessage(execution.DefaultQueue, "wf", first), nil)
	r.phase(stream.QueuePhaseOwnStream)
	if again := replay(2); again != first || r.ofPlace(own) != 1 {
		t.Errorf("the replay was repeated as %s, and %d starts are in the own stream", again,
			r.ofPlace(own))
	}
	replay(1)
	if shared, own := r.ofPlace(stream.Layout{}), r.ofPlace(own); shared != 2 || own != 2 {
		t.Errorf("after the move: %d and %d starts", shared, own)
	}
}

// A queue with start messages in both the shared stream and its own stream is still one queue. Its
// count of waiting executions includes both streams, and a pause and a group's limit apply to the
// group's consumers in both streams.
func TestAQueueInBothPlaces(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	r.ownStreams()
	group := stream.RunnerGroup{Queue: execution.DefaultQueue, Group: "g"}
	infoIn := func(at stream.Layout) *jetstream.ConsumerInfo {
		t.Helper()
		consumer, err := r.JetStream.Consumer(t.Context(), at.StreamName(execution.DefaultQueue),
			group.ConsumerName())
		r.check(err)
		return consumer.CachedInfo()
	}
	_, err := stream.EnsureRunnerConsumer(t.Context(), r.JetStream, group,
		group.ConsumerConfig(stream.RunnerAckWait))
	r.check(err)
	r.startAt(stream.Layout{}, 1, "1")
	r.startAt(own, 2, "2")
	r.startAt(own, 3, "3")
	// The group has no consumer in the queue's own stream yet, so all start messages in that stream
	// are waiting for it.
	var queue api.Queue
	wait := func(want uint64) {
		t.Helper()
		eventually(t, func() bool {
			list := decode[api.List[api.Queue]](r.get("/queues").is(200))
			queue = list.Items[0]
			return queue.Waiting == want && len(queue.Groups) == 1 &&
				queue.Groups[0].Waiting == want
		})
	}
	wait(3)
	if !queue.Groups[0].MembersUnknown {
		t.Errorf("no runner could be heard yet, and the API says %+v", queue.Groups[0])
	}
	_, err = stream.EnsureRunnerConsumer(t.Context(), r.JetStream, group,
		group.ConsumerConfigForLayout(own, stream.RunnerAckWait))
	r.check(err)
	r.startAt(own, 4, "4")
	wait(4)
	if !queue.OldestAcceptedAt.Equal(epoch) {
		t.Errorf("the oldest: %v", queue.OldestAcceptedAt)
	}
	r.post("/queues/default/pause", "").is(200)
	r.put("/queues/default/groups/g", `{"maxInFlight":7}`).is(200)
	for _, at := range []stream.Layout{{}, own} {
		if !infoIn(at).Paused {
			t.Errorf("%s is not paused", at.StreamName("default"))
		}
	}
	// The limit of 7 is divided between the group's two consumers, as 4 and 3, because start
	// messages are waiting in both streams.
	eventually(t, func() bool {
		return infoIn(stream.Layout{}).Config.MaxAckPending == 4 &&
			infoIn(own).Config.MaxAckPending == 3
	})
	r.post("/queues/default/resume", "").is(200)
	for _, at := range []stream.Layout{{}, own} {
		if infoIn(at).Paused {
			t.Errorf("%s is still paused", at.StreamName("default"))
		}
	}
}

// A report that an execution was canceled is stored in the progress stream that belongs to the
// stream of the start message, because an ingress whose response waits for the result listens
// there. The report has the same trace as the start message.
func TestTheReportOfACanceledExecutionIsInTheOwnStream(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.cancellations()
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	r.ownStreams()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for n, at := range []stream.Layout{{}, own} {
		sequence := r.message(at.StartMessage(execution.Start{
			ID: id(n), AccountID: "acme", WorkflowID: "wf", NodeID: "node",
			Queue: execution.DefaultQueue, Trace: trace,
			Payload: execution.Payload{Kind: execution.BodyJSON, Body: []byte("{}")},
		}))
		r.records(store.Batch{NewRecords: []store.Record{record(id(n), func(rec *store.Record) {
			rec.StreamSequence = sequence
		})}})
		reports, err := r.nc.SubscribeSync(at.ProgressSubject(execution.DefaultQueue, "wf", id(n)))
		r.check(err)
		r.check(r.nc.Flush())
		r.post("/executions/"+id(n)+"/cancel", "").is(200)
		report, err := reports.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatalf("no report in %s: %v", at.ProgressStreamName(execution.DefaultQueue), err)
		}
		if got := report.Header.Get(stream.HeaderTrace); got != trace {
			t.Errorf("the trace of the report: %q", got)
		}
	}
}

// A workflow is assigned to a queue with its own stream. This copies the workflow's delivery IDs to
// that stream, and the copying is interrupted. The response then says that the workflow has not
// changed its queue yet. A repeated call completes the change.
func TestAWorkflowThatStillMoves(t *testing.T) {
	t.Parallel()
	interrupted := false
	r := start(t, func(c *config, _ *http.Server) {
		c.StreamMover = queuestreams.New(queuestreams.Config{
			JetStream: c.JetStream, Editor: c.Editor, RegistryIndex: c.RegistryIndex,
			Settings: stream.DefaultSettings, Log: logtest.Discard(), OnStep: func(step string) {
				if step == "workflow closed" && !interrupted {
					interrupted = true
					if err := c.JetStream.DeleteConsumer(t.Context(), stream.ExecutionsName,
						stream.DeliveryIDCopyConsumerName); err != nil {
						t.Error(err)
					}
				}
			},
		})
	})
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	r.put("/workflows/other", `{"accountId":"acme","name":"Other","queue":"own",
		"triggers":[{"nodeId":"node"}]}`).is(201)
	r.put("/queues/own/stream", "{}").is(200)
	p := r.patch("/workflows/wf", `{"queue":"own"}`).refused(503, api.CodeNotConfirmed)
	if !strings.Contains(p.Detail, "has not changed its queue yet") {
		t.Errorf("the answer: %s", p.Detail)
	}
	if w := decode[api.Workflow](r.get("/workflows/wf").is(200)); w.Queue == "own" {
		t.Error("the workflow has changed its queue")
	}
	var repeated answer
	for range 20 { // on a busy machine, the workflow may be closed for too long again
		repeated = r.patch("/workflows/wf", `{"queue":"own"}`)
		if repeated.status != http.StatusServiceUnavailable {
			break
		}
	}
	w := decode[api.Workflow](repeated.is(200))
	if !interrupted || w.Queue != "own" {
		t.Errorf("after a repeat, the workflow is in the queue %s", w.Queue)
	}
}

// A workflow moves to another queue, and another call changes the workflow during the last step of
// the move. The response then says that the client should repeat the move.
func TestAWorkflowThatChangesWhileItMoves(t *testing.T) {
	t.Parallel()
	changed, name := false, ""
	r := start(t, func(c *config, _ *http.Server) {
		c.StreamMover = queuestreams.New(queuestreams.Config{
			JetStream: c.JetStream, Editor: c.Editor, RegistryIndex: c.RegistryIndex,
			Settings: stream.DefaultSettings, Log: logtest.Discard(), OnStep: func(step string) {
				if step != "workflow closed" || changed {
					return
				}
				changed = true
				if _, err := c.Editor.ChangeWorkflow(t.Context(), "wf",
					func(w *edit.WorkflowSpec) error {
						w.Name = name
						return nil
					}); err != nil {
					t.Error(err)
				}
			},
		})
	})
	r.account("acme", "pro")
	r.workflow("wf", "acme", "node")
	r.put("/workflows/other", `{"accountId":"acme","name":"Other","queue":"own",
		"triggers":[{"nodeId":"node"}]}`).is(201)
	r.put("/queues/own/stream", "{}").is(200)
	// On a busy machine, the workflow may be closed for too long, which is a 503: repeat the call.
	move := func(prepare func(attempt int)) (a answer) {
		for n := range 20 {
			prepare(n)
			if a = r.patch("/workflows/wf", `{"queue":"own"}`); a.status != 503 {
				break
			}
		}
		return a
	}
	p := move(func(attempt int) {
		changed, name = false, fmt.Sprint("renamed ", attempt)
	}).refused(409, api.CodeQueueMoves)
	if !strings.Contains(p.Detail, "Another call changed the workflow") {
		t.Errorf("the answer: %s", p.Detail)
	}
	w := decode[api.Workflow](move(func(int) {}).is(200))
	if !changed || w.Queue != "own" || w.Name != name {
		t.Errorf("after a repeat, the workflow is %+v", w)
	}
}
