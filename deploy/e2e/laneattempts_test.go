package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// gateSubject is the subject of the request with which a handler asks for permission to return. The
// runners that launchGoKit and launchNodeKit start send it for every execution without an order
// key, and their handlers return when they get a response.
const gateSubject = "test.gate"

// kitOptions are the options of a runner that launchGoKit or launchNodeKit starts. Zero means the
// kit's default. The Node.js kit gets them as JSON, with the durations in milliseconds.
type kitOptions struct {
	Concurrency int `json:"concurrency,omitempty"`
	Attempts    int `json:"attempts,omitempty"`
	AckWaitMS   int `json:"ackWait,omitempty"`
	DrainMS     int `json:"drainTimeout,omitempty"`
}

// gatedRunner is a Node.js runner. If an execution has no order key, the handler sends a request to
// gateSubject and waits for the response.
const gatedRunner = `
import { connect } from "@nats-io/transport-node";
import { run } from "hookstart-runner";
const nc = await connect({ servers: process.env.HOOKSTART_NATS_URL, maxReconnectAttempts: -1 });
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
await run(nc, { queue: "ordered", group: "ordered", log: (e) => console.log(JSON.stringify(e)),
  ...JSON.parse(process.env.OPTIONS) }, async (e) => {
  if (!e.orderKey) {
    await nc.request("test.gate", e.executionId, { timeout: 60_000 });
  }
}, stop.signal);
await nc.close();
`

// forBothKits runs a test twice: with a runner that uses the Go kit, and with one that uses the
// Node.js kit. launch starts the runner, which serves the queue orderedQueue in the group of the
// same name. stop asks the runner to stop, and returns a channel that is closed when the runner has
// exited.
func forBothKits(t *testing.T, test func(
	t *testing.T, launch func(natsURL string, options kitOptions) (stop func() <-chan struct{}),
),
) {
	for name, launch := range map[string]func(
		*testing.T, string, kitOptions,
	) func() <-chan struct{}{"go": launchGoKit, "node": launchNodeKit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(natsURL string, options kitOptions) (stop func() <-chan struct{}) {
				return launch(t, natsURL, options)
			})
		})
	}
}

func launchGoKit(t *testing.T, natsURL string, o kitOptions) (stop func() <-chan struct{}) {
	t.Helper()
	nc, err := nats.Connect(natsURL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer nc.Close()
		if err := runner.Run(ctx, nc, runner.Options{
			Queue:        orderedQueue,
			Group:        orderedQueue,
			Concurrency:  o.Concurrency,
			Attempts:     o.Attempts,
			AckWait:      time.Duration(o.AckWaitMS) * time.Millisecond,
			DrainTimeout: time.Duration(o.DrainMS) * time.Millisecond,
		}, func(_ context.Context, e runner.Execution) (any, error) {
			if e.OrderKey != "" {
				return nil, nil
			}
			_, err := nc.Request(gateSubject, []byte(e.ID), time.Minute)
			return nil, err
		}); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return func() <-chan struct{} { cancel(); return ended }
}

func launchNodeKit(t *testing.T, natsURL string, o kitOptions) (stop func() <-chan struct{}) {
	t.Helper()
	requireNode(t)
	options, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	command := nodeRunner(gatedRunner, natsURL)
	command.Env = append(command.Env, "OPTIONS="+string(options))
	program := childtest.Launch(t, command)
	return func() <-chan struct{} {
		ended := make(chan struct{})
		go func() { program.Terminate(); close(ended) }()
		return ended
	}
}

// laneOfK returns the name of the consumer of the lane to which the order key "k" belongs. A runner
// runs the executions of a lane one after another.
func laneOfK() string {
	return stream.RunnerGroup{Queue: orderedQueue, Group: orderedQueue}.LaneConsumerName(
		execution.LaneOf("workflow", "k"))
}

// takeFirst creates the consumer of the lane of "k" in the stream with the given layout, and
// returns the first message of the lane. Until this message is acknowledged, the server delivers no
// other message of the lane.
func takeFirst(t *testing.T, js jetstream.JetStream, layout stream.Layout) jetstream.Msg {
	t.Helper()
	number := execution.LaneOf("workflow", "k")
	lane, err := js.CreateConsumer(t.Context(), layout.StreamName(orderedQueue),
		jetstream.ConsumerConfig{
			Durable:       laneOfK(),
			FilterSubject: layout.LaneFilterSubject(orderedQueue, number),
			AckPolicy:     jetstream.AckExplicitPolicy,
			AckWait:       time.Hour,
			MaxAckPending: 1,
		})
	if err != nil {
		t.Fatal(err)
	}
	first, err := lane.Next(jetstream.FetchMaxWait(30 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// laneAnswers receives the runner's answers to messages in the shared stream that belong to the
// lane of "k": heartbeats, acknowledgements, and negative acknowledgements, which hand a message
// back.
type laneAnswers struct {
	t   *testing.T
	sub *nats.Subscription
}

func watchAnswers(t *testing.T, nc *nats.Conn) *laneAnswers {
	t.Helper()
	sub, err := nc.SubscribeSync("$JS.ACK." + stream.ExecutionsName + "." + laneOfK() + ".>")
	if err != nil {
		t.Fatal(err)
	}
	return &laneAnswers{t, sub}
}

// next returns the runner's next answer. The test fails if none arrives within 30 s.
func (a *laneAnswers) next() *nats.Msg {
	a.t.Helper()
	msg, err := a.sub.NextMsg(30 * time.Second)
	if err != nil {
		a.t.Fatalf("the runner answers nothing: %v", err)
	}
	return msg
}

// awaitHeartbeats waits for n heartbeats and returns the last one. The test fails if the runner
// gives another answer, for example hands the message back.
func (a *laneAnswers) awaitHeartbeats(n int) (last *nats.Msg) {
	a.t.Helper()
	for range n {
		if last = a.next(); string(last.Data) != "+WPI" {
			a.t.Errorf("the runner answers %q instead of a heartbeat", last.Data)
			break
		}
	}
	return last
}

// tryUntilTested calls try until it returns true, which means that the situation to be tested has
// occurred. Whether it occurs depends on the timing, so the test fails only after five unsuccessful
// tries.
func tryUntilTested(t *testing.T, try func() (tested bool)) {
	t.Helper()
	for range 5 {
		if try() {
			return
		}
	}
	t.Fatal("the situation to be tested has not come about")
}

// While no concurrency slot is free for the last attempt of an ordered execution, the runner keeps
// its message. The delivery of the message already counts as the attempt: if the runner handed the
// message back, the execution would fail at the next runner without having run.
func TestALastAttemptWaitsForASlot(t *testing.T) {
	t.Parallel()
	forBothKits(t, func(t *testing.T, launch func(string, kitOptions) func() <-chan struct{}) {
		tryUntilTested(t, func() bool { return waitsForASlot(t, launch) })
	})
}

// waitsForASlot delivers the last attempt of an ordered execution to a runner that has no free
// concurrency slot, and checks that the runner keeps the message. It returns false if the message
// was not delivered, because the runner's request for messages of the lane had expired.
func waitsForASlot(
	t *testing.T, launch func(string, kitOptions) func() <-chan struct{},
) (delivered bool) {
	t.Helper()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress, js := runnertest.NewIngress(t, nc), jetStream(t, server.URL())
	gate := subscribe(t, nc, gateSubject)
	ordered := runnertest.Post{Queue: orderedQueue, OrderKey: "k"}
	ingress.Start(t, ordered)
	id := ingress.Start(t, ordered)
	first := takeFirst(t, js, stream.Layout{})
	answers := watchAnswers(t, nc)
	stop := launch(server.URL(), kitOptions{Concurrency: 1, Attempts: 1, AckWaitMS: 2000})
	lane := func() *jetstream.ConsumerInfo {
		t.Helper()
		lane, err := js.Consumer(t.Context(), stream.ExecutionsName, laneOfK())
		if err != nil {
			t.Fatal(err)
		}
		return lane.CachedInfo()
	}
	respond := func(occupied *nats.Msg) {
		t.Helper()
		if err := occupied.Respond(nil); err != nil {
			t.Fatal(err)
		}
	}
	// Retry until a handler occupies the only slot and, at the same time, the runner's pull request
	// for the lane is pending at the server.
	var occupied *nats.Msg
	for tries := 1; ; tries++ {
		ingress.Start(t, runnertest.Post{Queue: orderedQueue})
		occupied = await(t, gate)
		if lane().NumWaiting > 0 {
			break
		}
		if tries == 100 {
			t.Fatal("no request for the lane waits while an execution begins")
		}
		respond(occupied)
	}
	if err := first.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	for info := lane(); info.NumAckPending == 0; info = lane() {
		if info.NumWaiting == 0 {
			break
		}
	}
	if delivered = lane().NumAckPending == 1; delivered {
		for string(answers.next().Data) != "+ACK" { // skip the test's own acknowledgement of first
		}
		answers.awaitHeartbeats(3) // three heartbeats take more than a quarter of the ack wait
	}
	respond(occupied)
	if final := ingress.Await(t, id); final.Status != execution.Succeeded {
		t.Errorf("it ended as %+v", final)
	}
	<-stop()
	return delivered
}

// heldLane is a situation with two executions in one lane. The older one is in the queue's own
// stream: its message has been delivered to the test, which has not acknowledged it. The newer one
// is in the shared stream: a runner has received its message, and holds it until the older
// execution has ended.
type heldLane struct {
	ingress *runnertest.Ingress
	js      jetstream.JetStream
	nc      *nats.Conn
	answers *laneAnswers
	older   jetstream.Msg          // message of the older execution, not acknowledged
	newer   string                 // ID of the execution whose message the runner holds
	held    *nats.Msg              // a heartbeat that the runner has sent for that message
	stop    func() <-chan struct{} // asks the runner to stop
}

func holdNewer(
	t *testing.T, launch func(string, kitOptions) func() <-chan struct{}, attempts int,
) *heldLane {
	t.Helper()
	server := natstest.Start(t)
	nc := server.Connect(t)
	h := &heldLane{nc: nc, ingress: runnertest.NewIngress(t, nc), js: jetStream(t, server.URL())}
	post := runnertest.Post{Queue: orderedQueue, OrderKey: "k"}
	h.ingress.MoveToOwnStream(t, orderedQueue)
	h.ingress.Start(t, post)
	h.ingress.MoveToSharedStream(t, orderedQueue)
	h.newer = h.ingress.Start(t, post)
	h.older = takeFirst(t, h.js, stream.Layout{Own: true})
	// Make the runner receive the newer message first, and then hold it. The test does this by
	// answering the runner's requests with a fake record of the queue. At first, the record says
	// that the queue uses its own stream, so the runner assumes that the messages in the shared
	// stream are the older ones, and fetches those first. Once the runner has the newer message,
	// the record says that the queue drains its own stream: the messages there now count as older,
	// so the runner holds the newer one.
	arrived := false
	answerSettings(t, nc, stream.Layout{}, func(delivered bool) stream.QueueStreamPhase {
		if arrived = arrived || delivered; arrived {
			return stream.QueuePhaseDrainingOwnStream
		}
		return stream.QueuePhaseOwnStream
	})
	h.answers = watchAnswers(t, nc)
	h.stop = launch(server.URL(), kitOptions{Attempts: attempts, AckWaitMS: 2000})
	h.held = h.answers.awaitHeartbeats(1)
	return h
}

// A runner holds the last attempt of an ordered execution until an older execution of the lane has
// ended. If the runner is stopped meanwhile and the older execution then ends in time, the runner
// still runs the one that it holds.
func TestAStoppedRunnerRunsTheLastAttemptThatItHolds(t *testing.T) {
	t.Parallel()
	forBothKits(t, func(t *testing.T, launch func(string, kitOptions) func() <-chan struct{}) {
		h := holdNewer(t, launch, 1)
		ended := h.stop()
		h.answers.awaitHeartbeats(3)
		if err := h.older.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
		if final := h.ingress.Await(t, h.newer); final.Status != execution.Succeeded {
			t.Errorf("it ended as %+v", final)
		}
		<-ended
	})
}

// The Go kit waits 1 s for the next message of a lane. If a message arrives later, its execution
// still runs, as its first attempt. TestNodeRunsAMessageThatArrivesLate tests the same for the
// Node.js kit.
func TestGoRunsAMessageThatArrivesLate(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	id := ingress.Start(t, runnertest.Post{Queue: orderedQueue, OrderKey: "k"})
	delayed := "nats://" + delayLaneAnswers(t, strings.TrimPrefix(server.URL(), "nats://"))
	launchGoKit(t, delayed, kitOptions{AckWaitMS: 600_000})
	final := ingress.Await(t, id)
	if final.Status != execution.Succeeded || final.Attempt != 1 {
		t.Errorf("it ended as %+v", final)
	}
}

// If the consumer of a lane is deleted while a runner uses it, the runner recreates it.
func TestADeletedConsumerOfALaneIsMadeAgain(t *testing.T) {
	t.Parallel()
	forBothKits(t, func(t *testing.T, launch func(string, kitOptions) func() <-chan struct{}) {
		server := natstest.Start(t)
		ingress, js := runnertest.NewIngress(t, server.Connect(t)), jetStream(t, server.URL())
		launch(server.URL(), kitOptions{})
		for range 2 {
			id := ingress.Start(t, runnertest.Post{Queue: orderedQueue, OrderKey: "k"})
			if final := ingress.Await(t, id); final.Status != execution.Succeeded {
				t.Errorf("%s ended as %+v", id, final)
			}
			if err := js.DeleteConsumer(t.Context(), stream.ExecutionsName, laneOfK()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// If a lane's consumer is deleted after the runner has received a message of the lane, but before
// the handler begins, the runner drops the message. The concurrency slot that was reserved for the
// message becomes free.
func TestAMessageOfADeletedConsumerFreesItsSlot(t *testing.T) {
	t.Parallel()
	forBothKits(t, func(t *testing.T, launch func(string, kitOptions) func() <-chan struct{}) {
		server := natstest.Start(t)
		nc := server.Connect(t)
		ingress, js := runnertest.NewIngress(t, nc), jetStream(t, server.URL())
		gate, err := nc.SubscribeSync(gateSubject)
		if err != nil {
			t.Fatal(err)
		}
		ingress.Start(t, runnertest.Post{Queue: orderedQueue, OrderKey: "k"})
		deleted := make(chan struct{})
		var once sync.Once
		answerSettings(t, nc, stream.Layout{}, func(delivered bool) stream.QueueStreamPhase {
			if delivered {
				once.Do(func() {
					defer close(deleted)
					err := js.DeleteConsumer(t.Context(), stream.ExecutionsName, laneOfK())
					if err != nil {
						t.Error(err)
					}
				})
			}
			return stream.QueuePhaseSharedStream
		})
		launch(server.URL(), kitOptions{Concurrency: 1, AckWaitMS: 1000})
		<-deleted
		ingress.Start(t, runnertest.Post{Queue: orderedQueue})
		begun, err := gate.NextMsg(30 * time.Second)
		if err != nil {
			t.Fatalf("the slot is not free: %v", err)
		}
		if err := begun.Respond(nil); err != nil {
			t.Fatal(err)
		}
	})
}

// A runner that is stopped hands back the message that it holds, unless the server has meanwhile
// redelivered this message to another member of the group.
func TestAStoppedRunnerHandsBackWhatItHolds(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("delivered again %t", again), func(t *testing.T) {
			t.Parallel()
			forBothKits(t, func(
				t *testing.T, launch func(string, kitOptions) func() <-chan struct{},
			) {
				h := holdNewer(t, launch, 5)
				want := 1
				if again {
					h.deliverAgain(t)
					want = 0
				}
				<-h.stop()
				if naks := h.answers.countNaks(h.nc); naks != want {
					t.Errorf("handed back %d times, want %d", naks, want)
				}
			})
		})
	}
}

// deliverAgain makes the server redeliver the message that the runner holds, this time to the test.
func (h *heldLane) deliverAgain(t *testing.T) {
	t.Helper()
	if err := h.nc.Publish(h.held.Subject, []byte("-NAK")); err != nil {
		t.Fatal(err)
	}
	for string(h.answers.next().Data) != "-NAK" { // skip heartbeats
	}
	lane, err := h.js.Consumer(t.Context(), stream.ExecutionsName, laneOfK())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lane.Next(jetstream.FetchMaxWait(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
}

// countNaks returns the number of times that the runner has handed the message back, judging by the
// answers that have arrived so far.
func (a *laneAnswers) countNaks(nc *nats.Conn) (naks int) {
	a.t.Helper()
	if err := nc.Flush(); err != nil {
		a.t.Fatal(err)
	}
	for {
		if pending, _, err := a.sub.Pending(); err != nil || pending == 0 {
			return naks
		}
		msg, err := a.sub.NextMsg(time.Second)
		if err != nil {
			a.t.Fatal(err)
		}
		if strings.HasPrefix(string(msg.Data), "-NAK") {
			naks++
		}
	}
}
