package e2e

import (
	"bytes"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// orderedRunner is a Node.js runner whose handler prints when it begins and ends, and fails the
// first attempt of every third execution.
const orderedRunner = `
import { connect } from "@nats-io/transport-node";
import { run } from "hookstart-runner";
const nc = await connect({ servers: process.env.HOOKSTART_NATS_URL });
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
await run(nc, { queue: "ordered", group: "ordered", concurrency: 4, backoff: () => 1,
	log: () => {} }, async (e) => {
  console.log("begin", e.orderKey, e.executionId, ".");
  await new Promise((resolve) => setTimeout(resolve, 2));
  console.log("end", e.orderKey, e.executionId, ".");
  if (e.attempt === 1 && JSON.parse(e.input).body % 3 === 0) {
    throw new Error("once");
  }
}, stop.signal);
await nc.close();
`

// The Node.js kit runs the executions with the same order key one after another, in the order of
// acceptance, even if some are retried.
func TestNodeKeepsTheOrder(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	program := childtest.Launch(t, nodeRunner(orderedRunner, server.URL()))
	want, all := map[string][]string{}, []string{}
	for n := range 60 {
		key := fmt.Sprint("k", n%12)
		id := ingress.Start(t, runnertest.Post{
			Queue:    "ordered",
			OrderKey: key,
			Body:     fmt.Sprint(n),
		})
		want[key], all = append(want[key], id), append(all, id)
	}
	all = append(all, ingress.Start(t, runnertest.Post{Queue: "ordered", Body: "1"}))
	for _, id := range all {
		if final := ingress.Await(t, id); final.Status != execution.Succeeded {
			t.Errorf("%s ended as %+v", id, final)
		}
	}
	running, begins := map[string]string{}, map[string][]string{}
	for _, line := range regexp.MustCompile(`(begin|end) (\S+) (\S+) \.`).
		FindAllStringSubmatch(program.Output(), -1) {
		what, key, id := line[1], line[2], line[3]
		if what == "end" {
			delete(running, key)
			continue
		}
		if running[key] != "" {
			t.Errorf("%s began while %s ran", id, running[key])
		}
		running[key] = id
		if of := begins[key]; len(of) == 0 || of[len(of)-1] != id {
			begins[key] = append(of, id)
		}
	}
	for key := range want {
		if !slices.Equal(begins[key], want[key]) {
			t.Errorf("%s began as\n%v, started as\n%v", key, begins[key], want[key])
		}
	}
}

// askingRunner is a Node.js runner whose handler sends a request to the subject "ask" and returns
// when it gets the response.
const askingRunner = `
import { connect } from "@nats-io/transport-node";
import { run } from "hookstart-runner";
const nc = await connect({ servers: process.env.HOOKSTART_NATS_URL });
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
await run(nc, { queue: "ordered", group: "ordered", reportRunningAfter: -1, log: () => {} },
  async (e) => { await nc.request("ask", e.executionId, { timeout: 30_000 }); }, stop.signal);
await nc.close();
`

// The Node.js kit runs an ordered execution even if another group has already ended it. It does not
// run an execution that was ended by its own group, or by a runner whose report names no group. The
// kit's report names the other groups that have ended the execution, including one that did so
// during the run.
func TestNodeRunsWhatAnotherGroupHasEnded(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	js := jetStream(t, server.URL())
	report := func(id, group string) {
		msg, err := stream.ProgressMessage("ordered", "workflow", "node", "", execution.Progress{
			ID:     id,
			Status: execution.Succeeded,
			Group:  group,
		})
		if err == nil {
			_, err = js.PublishMsg(t.Context(), msg)
		}
		if err != nil {
			t.Error(err)
		}
	}
	post := runnertest.Post{Queue: "ordered", OrderKey: "k"}
	var ids []string
	for _, group := range []string{"ordered", "", "another"} {
		ids = append(ids, ingress.Start(t, post))
		report(ids[len(ids)-1], group)
	}
	last := ingress.Start(t, post)
	reports, err := nc.SubscribeSync("executions.progress.ordered.workflow." + last)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 10)
	if _, err := nc.Subscribe("ask", func(msg *nats.Msg) {
		id := string(msg.Data)
		asked <- id
		if id == last {
			report(id, "other")
		}
		_ = msg.Respond(nil)
	}); err != nil {
		t.Fatal(err)
	}
	childtest.Launch(t, nodeRunner(askingRunner, server.URL()))
	for _, want := range []string{ids[2], last} {
		select {
		case got := <-asked:
			if got != want {
				t.Errorf("%s began, want %s of %v", got, want, ids)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s did not begin", want)
		}
	}
	for {
		msg, err := reports.NextMsg(20 * time.Second)
		if err != nil {
			t.Fatalf("no report names the other group: %v", err)
		}
		event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		if p := event.Progress; p.Status.Final() && p.Group == "ordered" &&
			slices.Equal(p.EndedGroups, []string{"other"}) {
			return
		}
	}
}

// patientRunner is a Node.js runner whose messages are redelivered only after ten minutes.
const patientRunner = `
import { connect } from "@nats-io/transport-node";
import { run } from "hookstart-runner";
const nc = await connect({ servers: process.env.HOOKSTART_NATS_URL });
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
await run(nc, { queue: "ordered", group: "ordered", ackWait: 600_000, log: () => {} },
  async (e) => console.log("attempt", e.attempt, "."), stop.signal);
await nc.close();
`

// The Node.js kit waits 1 s for the next message of a lane. The execution of a message that arrives
// later still runs at once, as attempt 1. If the kit dropped the message, the execution would be
// delayed until the end of the ack wait.
func TestNodeRunsAMessageThatArrivesLate(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	id := ingress.Start(t, runnertest.Post{Queue: "ordered", OrderKey: "k"})
	delayed := "nats://" + delayLaneAnswers(t, strings.TrimPrefix(server.URL(), "nats://"))
	program := childtest.Launch(t, nodeRunner(patientRunner, delayed))
	if final := ingress.Await(t, id); final.Status != execution.Succeeded {
		t.Errorf("%s ended as %+v", id, final)
	}
	program.Terminate() // its output is complete afterwards
	output := program.Output()
	if !strings.Contains(output, "attempt 1 .") {
		t.Errorf("the execution began with another attempt than its first:\n%s", output)
	}
	if strings.Contains(output, "Warning") {
		t.Errorf("the runner warns:\n%s", output)
	}
}

// delayLaneAnswers starts a proxy for a NATS server, and returns the address of the proxy. When a
// runner first requests a message of the lane that contains the order key "k" (see laneOfK), the
// proxy delays the next bytes from the server by 1.5 s.
func delayLaneAnswers(t *testing.T, server string) string {
	request := []byte("$JS.API.CONSUMER.MSG.NEXT." + stream.ExecutionsName + "." + laneOfK() + " ")
	asked := make(chan struct{})
	var ask, delay sync.Once
	return forwardNATS(t, server, func(sent []byte) {
		if bytes.Contains(sent, request) {
			ask.Do(func() { close(asked) })
		}
	}, func() {
		select {
		case <-asked:
			delay.Do(func() { <-time.After(1500 * time.Millisecond) })
		default:
		}
	})
}

// forwardNATS forwards connections to a NATS server and returns the address on which it listens.
// Before it forwards bytes from a client, it calls toServer with these bytes. Before it forwards
// bytes from the server, it calls toClient.
func forwardNATS(
	t *testing.T, server string, toServer func(sent []byte), toClient func(),
) string {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	forward := func(client net.Conn) {
		defer client.Close()
		upstream, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer upstream.Close()
		go func() {
			defer client.Close()
			buffer := make([]byte, 64<<10)
			for {
				n, err := upstream.Read(buffer)
				if err != nil {
					return
				}
				toClient()
				if _, err := client.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			toServer(buffer[:n])
			if _, err := upstream.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(client)
		}
	}()
	return listener.Addr().String()
}
