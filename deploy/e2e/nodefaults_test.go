package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// orderedGroup is the runner group that gatedRunner joins. It serves the queue orderedQueue.
var orderedGroup = stream.RunnerGroup{Queue: orderedQueue, Group: orderedQueue}

// blockedRunner is a Node.js runner whose handler never returns, and which asks for an ack wait of
// ten minutes.
const blockedRunner = `
import { connect } from "@nats-io/transport-node";
import { run } from "hookstart-runner";
const nc = await connect({ servers: process.env.HOOKSTART_NATS_URL });
await run(nc, { queue: "ordered", group: "ordered", ackWait: 600_000 },
  () => new Promise(() => {}), new AbortController().signal);
`

// If a consumer already exists, the Node.js kit uses the ack wait of that consumer instead of the
// one that the program asks for. This applies to the consumers of both streams and of a lane.
func TestNodeUsesTheAckWaitOfItsConsumer(t *testing.T) {
	t.Parallel()
	requireNode(t)
	for name, test := range map[string]struct {
		own      bool
		orderKey string
	}{"shared stream": {}, "own stream": {own: true}, "lane": {orderKey: "k"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := natstest.Start(t)
			nc := server.Connect(t)
			ingress, js := runnertest.NewIngress(t, nc), jetStream(t, server.URL())
			if test.own {
				ingress.MoveToOwnStream(t, orderedQueue)
			}
			ingress.Start(t, runnertest.Post{Queue: orderedQueue, OrderKey: test.orderKey})
			layout := stream.Layout{Own: test.own}
			config := orderedGroup.ConsumerConfigForLayout(layout, 12*time.Second)
			if test.orderKey != "" {
				lane := execution.LaneOf("workflow", test.orderKey)
				config.Durable, config.MaxAckPending = orderedGroup.LaneConsumerName(lane), 1
				config.FilterSubject = layout.LaneFilterSubject(orderedQueue, lane)
			}
			stored := layout.StreamName(orderedQueue)
			if _, err := js.CreateConsumer(t.Context(), stored, config); err != nil {
				t.Fatal(err)
			}
			answers, err := nc.SubscribeSync("$JS.ACK." + stored + "." + config.Durable + ".>")
			if err != nil {
				t.Fatal(err)
			}
			childtest.Launch(t, nodeRunner(blockedRunner, server.URL()))
			// Wait for four heartbeats. A lane's first two are sent immediately, so only the later
			// ones show that the kit sends them often enough for the consumer's ack wait.
			for n := range 4 {
				heartbeat, err := answers.NextMsg(time.Minute)
				if err != nil {
					t.Fatalf("after %d heartbeats: %v", n, err)
				}
				if deliveries := strings.Split(heartbeat.Subject, ".")[4]; deliveries != "1" {
					t.Fatalf("the execution was delivered again after %d heartbeats", n)
				}
			}
		})
	}
}

// After a reconnect, the Node.js kit repeats its request for messages, and may get more executions
// than it asked for. It never runs more executions at once than its concurrency allows. It hands
// the others back, except for last attempts, which it keeps.
func TestNodeKeepsItsConcurrencyAfterAReconnect(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{5, 1} {
		t.Run(fmt.Sprint(attempts, " attempts"), func(t *testing.T) {
			t.Parallel()
			tryUntilTested(t, func() bool { return keepsItsConcurrency(t, attempts) })
		})
	}
}

// keepsItsConcurrency breaks a runner's connection while the runner's request for messages waits at
// the server, and checks that the runner then never runs more handlers than it has concurrency
// slots. attempts is the maximum number of attempts of an execution. delivered reports whether the
// server delivered more messages than the runner has slots. If it did not, because the request had
// already ended, nothing was tested.
func keepsItsConcurrency(t *testing.T, attempts int) (delivered bool) {
	t.Helper()
	const concurrency, first, then = 4, 3, 10
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	gate := subscribe(t, nc, gateSubject)
	consumer := stream.ExecutionsName + "." + orderedGroup.ConsumerName()
	requests := subscribe(t, nc, "$JS.API.CONSUMER.MSG.NEXT."+consumer)
	answers := subscribe(t, nc, "$JS.ACK."+consumer+".>")
	proxy := server.NewProxy(t)
	stop := launchNodeKit(t, proxy.URL(), kitOptions{Concurrency: concurrency, Attempts: attempts})
	await(t, requests)
	var ids []string
	var running []*nats.Msg
	for range first {
		ids = append(ids, ingress.Start(t, runnertest.Post{Queue: orderedQueue}))
		running = append(running, await(t, gate))
	}
	for pending, _, _ := requests.Pending(); pending > 0; pending-- {
		await(t, requests)
	}
	proxy.DropConnections()
	await(t, requests)
	for range then {
		ids = append(ids, ingress.Start(t, runnertest.Post{Queue: orderedQueue}))
	}
	running = append(running, await(t, gate))
	deadline := time.Now().Add(10 * time.Second)
	for sequence := 0; sequence <= concurrency; {
		answer, err := answers.NextMsg(time.Until(deadline))
		if err != nil {
			openGate(t, nc)
			for _, one := range running {
				if err := one.Respond(nil); err != nil {
					t.Fatal(err)
				}
			}
			<-stop()
			return false
		}
		sequence, _ = strconv.Atoi(strings.Split(answer.Subject, ".")[6])
	}
	for done := range ids {
		if extra, _, _ := gate.Pending(); extra > 0 {
			t.Fatalf("%d handlers run", len(running)+extra)
		}
		if err := running[0].Respond(nil); err != nil {
			t.Fatal(err)
		}
		running = running[1:]
		if done+concurrency < len(ids) {
			running = append(running, await(t, gate))
		}
	}
	for _, id := range ids {
		if final := ingress.Await(t, id); final.Status != execution.Succeeded {
			t.Errorf("it ended as %+v", final)
		}
	}
	<-stop()
	return true
}

func subscribe(t *testing.T, nc *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func await(t *testing.T, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	msg, err := sub.NextMsg(30 * time.Second)
	if err != nil {
		t.Fatalf("%s: %v", sub.Subject, err)
	}
	return msg
}

// openGate answers all requests to gateSubject, so that handlers that ask for permission return
// immediately.
func openGate(t *testing.T, nc *nats.Conn) {
	t.Helper()
	if _, err := nc.Subscribe(gateSubject, func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
}

// The Node.js kit recreates its consumer after NATS has lost its storage.
func TestNodeGoesOnAfterNATSLostItsStore(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	startAndAwait := func() {
		t.Helper()
		nc := server.Connect(t)
		openGate(t, nc)
		ingress := runnertest.NewIngress(t, nc)
		id := ingress.Start(t, runnertest.Post{Queue: orderedQueue})
		if final := ingress.Await(t, id); final.Status != execution.Succeeded {
			t.Fatalf("it ended as %+v", final)
		}
	}
	runnertest.NewIngress(t, server.Connect(t))
	launchNodeKit(t, server.URL(), kitOptions{})
	startAndAwait()
	server.Stop()
	if err := os.RemoveAll(server.StoreDir()); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	startAndAwait()
}

// A Node.js runner may start before the executor, which creates the stream.
func TestNodeWaitsForTheStream(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	asked := subscribe(t, nc, "$JS.API.CONSUMER.INFO."+stream.ExecutionsName+".>")
	openGate(t, nc)
	launchNodeKit(t, server.URL(), kitOptions{})
	for range 2 { // the second time, it has found no stream, and goes on
		await(t, asked)
	}
	ingress := runnertest.NewIngress(t, nc)
	id := ingress.Start(t, runnertest.Post{Queue: orderedQueue})
	if final := ingress.Await(t, id); final.Status != execution.Succeeded {
		t.Errorf("it ended as %+v", final)
	}
}

// The Node.js kit refuses options that are not valid, before it asks NATS for anything. An option
// that is undefined has its default.
func TestNodeChecksItsOptions(t *testing.T) {
	t.Parallel()
	requireNode(t)
	program := childtest.Launch(t, nodeRunner(`
import { run } from "hookstart-runner";
for (const bad of [
  {}, { group: "a.b" }, { queue: "*" }, { attempts: 0 }, { attempts: 2.5 }, { concurrency: 1.5 },
  { concurrency: Infinity }, { timeout: "60000" }, { timeout: 2 ** 31 }, { drainTimeout: Infinity },
  { ackWait: NaN }, { attempts: undefined, concurrency: undefined, timeout: undefined },
]) {
  const options = Object.keys(bad).length === 0 ? bad : { group: "g", ...bad };
  await run(undefined, options, async () => {}, new AbortController().signal)
    .catch((err) => console.log(err.message));
}
console.log("done");
`, ""))
	program.Await("(done)")
	var got []string
	for line := range strings.Lines(program.Output()) {
		if name, ok := strings.CutPrefix(line, "the option "); ok {
			got = append(got, strings.Fields(name)[0])
		}
	}
	want := []string{
		"group", "group", "queue", "attempts", "attempts", "concurrency", "concurrency", "timeout",
		"timeout", "drainTimeout", "ackWait", // and none for the last
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nrefused %v, want %v", program.Output(), got, want)
	}
}

// The delay before the next attempt is a whole number of nanoseconds, whatever the runner's backoff
// returns. The server takes a delay that it cannot read for none.
func TestNodeRoundsTheBackoff(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	answers := subscribe(t, nc, "$JS.ACK.>")
	childtest.Launch(t, nodeRunner(`
import { connect } from "@nats-io/transport-node";
import { run } from "hookstart-runner";
const nc = await connect({ servers: process.env.HOOKSTART_NATS_URL });
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
await run(nc, { group: "rounds", backoff: () => 10.123456789, log: () => {} }, async (e) => {
  if (e.attempt === 1) {
    throw new Error("the first attempt fails");
  }
}, stop.signal);
await nc.close();
`, server.URL()))
	id := ingress.Start(t, runnertest.Post{})
	for {
		text, isNak := strings.CutPrefix(string(await(t, answers).Data), "-NAK ")
		if !isNak {
			continue
		}
		var nak struct{ Delay int64 }
		if err := json.Unmarshal([]byte(text), &nak); err != nil || nak.Delay != 10_000_000 {
			t.Errorf("%s: %v", text, err)
		}
		break
	}
	if final := ingress.Await(t, id); final.Status != execution.Succeeded || final.Attempt != 2 {
		t.Errorf("it ended as %+v", final)
	}
}

// The Node.js kit exits with an error when its consumer is deleted. It must not recreate the
// consumer, because a new consumer would deliver executions that have already ended.
func TestNodeEndsWhenItsConsumerIsDeleted(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	nc := server.Connect(t)
	runnertest.NewIngress(t, nc)
	requests := subscribe(t, nc, "$JS.API.CONSUMER.MSG.NEXT."+stream.ExecutionsName+"."+
		orderedGroup.ConsumerName())
	command := nodeRunner(gatedRunner, server.URL())
	command.Env = append(command.Env, "OPTIONS={}")
	program := childtest.Launch(t, command)
	await(t, requests)
	js := jetStream(t, server.URL())
	err := js.DeleteConsumer(t.Context(), stream.ExecutionsName, orderedGroup.ConsumerName())
	if err != nil {
		t.Fatal(err)
	}
	program.Await("(" + orderedGroup.ConsumerName() + " of " + stream.ExecutionsName +
		" was deleted)")
	select {
	case <-program.Exited():
	case <-time.After(30 * time.Second):
		t.Fatal("the runner goes on")
	}
	_, err = js.Consumer(t.Context(), stream.ExecutionsName, orderedGroup.ConsumerName())
	if err == nil {
		t.Error("the consumer was created anew")
	}
}

// If a Node.js runner is stopped while NATS cannot be reached, it exits. If executions have only
// one attempt, the runner first waits, for a limited time, for messages that the server may still
// send in response to its last request.
func TestNodeStopsWhileNATSIsAway(t *testing.T) {
	t.Parallel()
	requireNode(t)
	for _, attempts := range []int{5, 1} {
		t.Run(fmt.Sprint(attempts, " attempts"), func(t *testing.T) {
			t.Parallel()
			server := natstest.Start(t)
			nc := server.Connect(t)
			runnertest.NewIngress(t, nc)
			requests := subscribe(t, nc, "$JS.API.CONSUMER.MSG.NEXT."+stream.ExecutionsName+"."+
				orderedGroup.ConsumerName())
			proxy := server.NewProxy(t)
			command := nodeRunner(gatedRunner, proxy.URL())
			command.Env = append(command.Env, fmt.Sprintf(`OPTIONS={"attempts":%d}`, attempts))
			program := childtest.Launch(t, command)
			await(t, requests)
			proxy.Cut()
			if err := command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			select {
			case <-program.Exited():
			case <-time.After(60 * time.Second):
				t.Error("the runner does not end")
			}
		})
	}
}

// If a Node.js runner whose queue has lanes is stopped while NATS is silent, it exits. Silent means
// that the connection stays open, but that no request is answered.
func TestNodeStopsWhileNATSIsSilent(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	request := []byte("$JS.API.CONSUMER.MSG.NEXT." + stream.ExecutionsName + "." + laneOfK())
	var silent atomic.Bool
	asked := make(chan struct{})
	proxy := forwardNATS(t, strings.TrimPrefix(server.URL(), "nats://"), func(sent []byte) {
		if bytes.Contains(sent, request) && silent.CompareAndSwap(true, false) {
			close(asked)
			<-t.Context().Done()
		}
	}, func() {})
	command := nodeRunner(gatedRunner, "nats://"+proxy)
	command.Env = append(command.Env, "OPTIONS={}")
	program := childtest.Launch(t, command)
	ingress.Await(t, ingress.Start(t, runnertest.Post{Queue: orderedQueue, OrderKey: "k"}))
	silent.Store(true)
	select {
	case <-asked:
	case <-time.After(30 * time.Second):
		t.Fatal("the runner does not ask for the next execution of the lane")
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-program.Exited():
	case <-time.After(60 * time.Second):
		t.Error("the runner does not end")
	}
}

// While the Node.js kit waits for the list of cancellations before a handler begins, it sends
// heartbeats, so that the execution is not redelivered.
func TestNodeKeepsAnExecutionWhileItReadsCancellations(t *testing.T) {
	t.Parallel()
	for _, orderKey := range []string{"", "k"} {
		t.Run("order key "+orderKey, func(t *testing.T) {
			t.Parallel()
			server := natstest.Start(t)
			nc := server.Connect(t)
			ingress := runnertest.NewIngress(t, nc)
			openGate(t, nc)
			name := orderedGroup.ConsumerName()
			if orderKey != "" {
				name = laneOfK()
			}
			answers := subscribe(t, nc, "$JS.ACK."+stream.ExecutionsName+"."+name+".>")
			subscribe(t, nc, "$NO.>") // receives the redirected requests, and does not answer
			var withhold atomic.Bool
			proxy := forwardNATS(t, strings.TrimPrefix(server.URL(), "nats://"), func(sent []byte) {
				const asked = "$JS.API.STREAM.MSG.GET.KV_cancellations"
				if at := bytes.Index(sent, []byte(asked)); at >= 0 && withhold.Load() {
					copy(sent[at:], "$NO")
				}
			}, func() {})
			launchNodeKit(t, "nats://"+proxy, kitOptions{AckWaitMS: 6000})
			post := runnertest.Post{Queue: orderedQueue, OrderKey: orderKey}
			ingress.Await(t, ingress.Start(t, post)) // now the kit has read the cancellations
			for string(await(t, answers).Data) != "+ACK" {
			}
			withhold.Store(true)
			id := ingress.Start(t, post)
			for n := range 5 { // observe the runner for longer than the ack wait
				answer := await(t, answers)
				deliveries := strings.Split(answer.Subject, ".")[4]
				if string(answer.Data) != "+WPI" || deliveries != "1" {
					t.Fatalf("after %d heartbeats, %q of delivery %s", n, answer.Data, deliveries)
				}
			}
			withhold.Store(false)
			if final := ingress.Await(t, id); final.Status != execution.Succeeded {
				t.Errorf("it ended as %+v", final)
			}
		})
	}
}

// If a Node.js runner that is stopping cannot find out in time whether an execution is canceled, it
// hands the execution back without calling the handler.
func TestNodeHandsBackWhatMayBeCanceled(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	gate := subscribe(t, nc, gateSubject)
	answers := subscribe(t, nc,
		"$JS.ACK."+stream.ExecutionsName+"."+orderedGroup.ConsumerName()+".>")
	subscribe(t, nc, "$NO.>") // receives the redirected requests, and does not answer
	var withhold atomic.Bool
	proxy := forwardNATS(t, strings.TrimPrefix(server.URL(), "nats://"), func(sent []byte) {
		const asked = "$JS.API.STREAM.MSG.GET.KV_cancellations"
		if at := bytes.Index(sent, []byte(asked)); at >= 0 && withhold.Load() {
			copy(sent[at:], "$NO")
		}
	}, func() {})
	stop := launchNodeKit(t, "nats://"+proxy, kitOptions{AckWaitMS: 6000, DrainMS: 500})
	ingress.Start(t, runnertest.Post{Queue: orderedQueue})
	if err := await(t, gate).Respond(nil); err != nil { // now the kit has read the cancellations
		t.Fatal(err)
	}
	for string(await(t, answers).Data) != "+ACK" {
	}
	withhold.Store(true)
	ingress.Start(t, runnertest.Post{Queue: orderedQueue})
	await(t, answers) // a heartbeat: the runner has received the message
	ended := stop()
	for string(await(t, answers).Data) != "-NAK" {
		if begun, _, _ := gate.Pending(); begun > 0 {
			t.Fatal("the handler has begun")
		}
	}
	<-ended
	if begun, _, _ := gate.Pending(); begun > 0 {
		t.Error("the handler has begun")
	}
}

// After a bulk cancel, the Node.js kit does not need to read all cancellations before it begins the
// next handler.
func TestNodeDoesNotDelayHandlersByManyCancellations(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	for n := range 600 { // the kit would need a minute to read them all
		ingress.Cancel(t, fmt.Sprint("other", n))
	}
	openGate(t, nc)
	post := runnertest.Post{Queue: orderedQueue, DeliveryID: "delivery"}
	ingress.Cancel(t, execution.IDForDelivery("workflow", "webhook", post.DeliveryID))
	canceled := ingress.Start(t, post)
	runs := ingress.Start(t, runnertest.Post{Queue: orderedQueue})
	slow := forwardNATS(t, strings.TrimPrefix(server.URL(), "nats://"), func(sent []byte) {
		if bytes.Contains(sent, []byte("KV_cancellations")) {
			<-time.After(100 * time.Millisecond)
		}
	}, func() {})
	launchNodeKit(t, "nats://"+slow, kitOptions{})
	for id, want := range map[string]execution.Status{
		canceled: execution.Canceled, runs: execution.Succeeded,
	} {
		if final := ingress.Await(t, id); final.Status != want {
			t.Errorf("it ended as %+v, want %s", final, want)
		}
	}
}

// The Node.js kit can read all cancellations even if the oldest ones expire while it reads.
func TestNodeReadsCancellationsWhileTheyExpire(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	for n := range 100 {
		ingress.Cancel(t, fmt.Sprint("other", n))
	}
	slow := forwardNATS(t, strings.TrimPrefix(server.URL(), "nats://"), func(sent []byte) {
		if bytes.Contains(sent, []byte("KV_cancellations")) {
			<-time.After(20 * time.Millisecond)
		}
	}, func() {})
	program := childtest.Launch(t, nodeRunner(canceledRunner, "nats://"+slow))
	id := ingress.Start(t, runnertest.Post{Queue: "canceled"})
	program.Await("begin (" + id + ") ")
	ingress.Cancel(t, id)
	js := jetStream(t, server.URL())
	expire := time.NewTicker(500 * time.Millisecond)
	defer expire.Stop()
	for range 60 { // reading all keys takes 2 s
		<-expire.C
		if strings.Contains(program.Output(), "aborted "+id+" ") {
			return
		}
		bucket, err := js.Stream(t.Context(), stream.CancellationsStream)
		if err == nil {
			oldest := bucket.CachedInfo().State.FirstSeq
			err = bucket.Purge(t.Context(), jetstream.WithPurgeSequence(oldest+1))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("the handler was not told that it is canceled")
}

// After a reconnect, the Node.js kit reads all cancellations again. The bucket may have been
// deleted and recreated meanwhile, and the revisions of the new bucket start at 1.
func TestNodeReadsCancellationsOfANewBucket(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	proxy := server.NewProxy(t)
	for n := range 3 {
		ingress.Cancel(t, fmt.Sprint("other", n))
	}
	program := childtest.Launch(t, nodeRunner(canceledRunner, proxy.URL()))
	id := ingress.Start(t, runnertest.Post{Queue: "canceled"})
	program.Await("begin (" + id + ") ")
	proxy.Cut()
	deleteCancellations(t, server)
	ingress = runnertest.NewIngress(t, server.Connect(t)) // creates the bucket again
	ingress.Cancel(t, id)
	proxy.Heal()
	program.Await("aborted (" + id + ") ")
}

// The Node.js kit finds a cancellation in a bucket that was deleted and recreated while the kit was
// connected.
func TestNodeReadsANewBucketWithoutAReconnect(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	for n := range 3 {
		ingress.Cancel(t, fmt.Sprint("other", n))
	}
	program := childtest.Launch(t, nodeRunner(canceledRunner, server.URL()))
	id := ingress.Start(t, runnertest.Post{Queue: "canceled"})
	program.Await("begin (" + id + ") ")
	deleteCancellations(t, server)
	ingress = runnertest.NewIngress(t, server.Connect(t)) // creates the bucket again
	ingress.Cancel(t, id)
	program.Await("aborted (" + id + ") ")
}

// The Node.js kit finds the cancellations in a bucket that was deleted and recreated while the kit
// was idle and connected. This works even if the new bucket has reached higher revisions than the
// kit has read from the old one.
func TestNodeReadsANewBucketThatHasMoreKeys(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	openGate(t, nc)
	ingress := runnertest.NewIngress(t, nc)
	for n := range 3 {
		ingress.Cancel(t, fmt.Sprint("other", n))
	}
	launchNodeKit(t, server.URL(), kitOptions{})
	post := runnertest.Post{Queue: orderedQueue, DeliveryID: "delivery"}
	canceled := execution.IDForDelivery("workflow", "webhook", post.DeliveryID)
	ingress.Await(t, ingress.Start(t, runnertest.Post{Queue: orderedQueue}))
	deleteCancellations(t, server)
	ingress = runnertest.NewIngress(t, nc) // creates the bucket again
	ingress.Cancel(t, canceled)
	for n := range 3 {
		ingress.Cancel(t, fmt.Sprint("later", n))
	}
	ingress.Start(t, post)
	if final := ingress.Await(t, canceled); final.Status != execution.Canceled {
		t.Errorf("it ended as %+v", final)
	}
}

// The bucket of cancellations is deleted and later recreated. The Node.js kit reads cancellations
// again as soon as the new bucket exists.
func TestNodeReadsABucketThatWasMissing(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	openGate(t, nc)
	ingress := runnertest.NewIngress(t, nc)
	launchNodeKit(t, server.URL(), kitOptions{})
	ingress.Await(t, ingress.Start(t, runnertest.Post{Queue: orderedQueue}))
	deleteCancellations(t, server)
	ingress.Await(t, ingress.Start(t, runnertest.Post{Queue: orderedQueue}))
	ingress = runnertest.NewIngress(t, nc) // creates the bucket again
	post := runnertest.Post{Queue: orderedQueue, DeliveryID: "delivery"}
	canceled := execution.IDForDelivery("workflow", "webhook", post.DeliveryID)
	ingress.Cancel(t, canceled)
	ingress.Start(t, post)
	if final := ingress.Await(t, canceled); final.Status != execution.Canceled {
		t.Errorf("it ended as %+v", final)
	}
}

// Once the Node.js kit knows 1,000 cancellations, it forgets those whose keys have expired.
func TestNodeForgetsExpiredCancellations(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	post := runnertest.Post{Queue: "canceled", DeliveryID: "delivery"}
	expired := execution.IDForDelivery("workflow", "webhook", post.DeliveryID)
	program := childtest.Launch(t, nodeRunner(canceledRunner, server.URL()))
	// readKeys makes sure that the kit has read all keys in the bucket: it cancels an execution and
	// waits until the signal of the handler is aborted.
	readKeys := func() {
		t.Helper()
		id := ingress.Start(t, runnertest.Post{Queue: "canceled"})
		program.Await("begin (" + id + ") ")
		ingress.Cancel(t, id)
		program.Await("aborted (" + id + ") ")
	}
	cancelMany := func(name string, count int) {
		t.Helper()
		for n := range count {
			ingress.Cancel(t, name+strconv.Itoa(n))
		}
	}
	ingress.Cancel(t, expired)
	cancelMany("old", 900)
	readKeys()
	bucket, err := jetStream(t, server.URL()).Stream(t.Context(), stream.CancellationsStream)
	if err == nil {
		err = bucket.Purge(t.Context()) // as if all were older than the bucket's age
	}
	if err != nil {
		t.Fatal(err)
	}
	cancelMany("new", 200)
	// Make the kit read the bucket twice. The kit may have read it while it was empty, between the
	// purge and the new cancellations. The next read then starts over at the first key, but does
	// not drop the purged cancellations; only the read after that does.
	readKeys()
	readKeys()
	ingress.Start(t, post)
	program.Await("begin (" + expired + ") ")
}

// deleteCancellations deletes the bucket of cancellations, as if its server had lost its storage.
func deleteCancellations(t *testing.T, server *natstest.Node) {
	t.Helper()
	js := jetStream(t, server.URL())
	if err := js.DeleteKeyValue(t.Context(), stream.CancellationsBucket); err != nil {
		t.Fatal(err)
	}
}
