package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// makeQueue creates and activates a workflow with the given ID and a queue of the same name, and
// returns its webhook URL.
func makeQueue(t *testing.T, l *localProgram, id string) (url string) {
	t.Helper()
	path := makeWorkflow(t, l.client(), id)
	if _, err := l.client().PutWorkflow(t.Context(), id, api.PutWorkflow{
		AccountID: "tests", Name: id, Queue: id, Triggers: []api.PutTrigger{{NodeID: "node"}},
	}); err != nil {
		t.Fatal(err)
	}
	return l.ingress + path
}

// ended posts a delivery, waits until its execution has ended, and returns the execution. It checks
// that the execution has the given status and, unless output is "", the given output, and that its
// error contains reason.
func ended(
	t *testing.T, l *localProgram, url, body string, header map[string]string,
	status, output, reason string,
) api.ExecutionDetail {
	t.Helper()
	a, err := post(t.Context(), url, header, strings.NewReader(body))
	if err != nil || a.Status != 200 {
		t.Fatalf("POST: %+v, %v", a, err)
	}
	e := recorded(t, l.client(), a.ExecutionID, func(e api.ExecutionDetail) bool {
		return !e.FinishedAt.IsZero()
	})
	why := ""
	if e.Error != nil {
		why = *e.Error
	}
	if e.Status != status || (output != "" && string(e.Output) != output) ||
		!strings.Contains(why, reason) || e.StartedAt.IsZero() {
		t.Errorf("%+v, output %s, error %s", e.Execution, e.Output, why)
	}
	return e
}

// A poisonous input makes the handler, for example, panic or never return. Its execution ends as
// documented, becomes a dead letter and blocks no others: a good input after each poisonous one
// succeeds, although there are only two concurrency slots.
func TestPoison(t *testing.T) {
	t.Parallel()
	l := launchLocal(t, t.TempDir())
	url := makeQueue(t, l, "poison")
	nc := connect(t, l.nats)
	var attempts sync.Map // number of attempts (*atomic.Int32), keyed by input
	hung := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- runner.Run(ctx, nc, runner.Options{
			Queue: "poison", Group: "group", Concurrency: 2, Attempts: 3, Timeout: 2 * time.Second,
			Backoff: func(int) time.Duration { return time.Millisecond },
		}, func(ctx context.Context, e runner.Execution) (any, error) {
			n, _ := attempts.LoadOrStore(string(e.Input), new(atomic.Int32))
			count, _ := n.(*atomic.Int32)
			count.Add(1)
			switch string(e.Input) {
			case `"fails"`:
				return nil, errors.New("it never works")
			case `"permanent"`:
				return nil, runner.Permanent(errors.New("it cannot work"))
			case `"panics"`:
				panic("it breaks")
			case `"hangs"`:
				<-hung
			case `"slow"`:
				<-ctx.Done()
				return nil, ctx.Err()
			case `"no JSON"`:
				return math.NaN(), nil
			}
			return "fine", nil
		})
	}()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ack, err := js.Publish(t.Context(), "executions.start.poison.poison.node",
		[]byte("no protobuf"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{fmt.Sprint("message-", ack.Sequence): api.DeadLetterUndecodable}
	asJSON := map[string]string{"Content-Type": "application/json"}
	for _, c := range []struct {
		input, reason string
		attempts      int32
	}{
		{`"fails"`, "it never works", 3},
		{`"permanent"`, "it cannot work", 1},
		{`"panics"`, "panic: it breaks", 3},
		{`"hangs"`, "the handler did not return within 2s", 3},
		{`"slow"`, "deadline exceeded", 3},
		{`"no JSON"`, "the output is not valid JSON", 1},
	} {
		e := ended(t, l, url, c.input, asJSON, "failed", "", c.reason)
		n, _ := attempts.Load(c.input)
		if count, _ := n.(*atomic.Int32); count.Load() != c.attempts {
			t.Errorf("%s: %d attempts, want %d", c.input, count.Load(), c.attempts)
		}
		want[e.ExecutionID] = api.DeadLetterFailed
		ended(t, l, url, `"fine"`, asJSON, "succeeded", `"fine"`, "")
	}
	if got := deadLetters(t, l); !maps.Equal(got, want) {
		t.Errorf("dead letters: %v, want %v", got, want)
	}
	close(hung)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	// In the end, the group must have acknowledged or terminated every message.
	consumer, err := js.Consumer(t.Context(), stream.ExecutionsName, "runner-poison-group")
	if err != nil {
		t.Fatal(err)
	}
	if info := consumer.CachedInfo(); info.NumAckPending != 0 || info.NumPending != 0 {
		t.Errorf("left behind: %d, %d", info.NumAckPending, info.NumPending)
	}
}

// The program in shared/runner/examples/github handles real GitHub events. The execution of an
// event with a valid GitHub signature succeeds. That of any other event fails and becomes a dead
// letter.
func TestGitHubExample(t *testing.T) {
	t.Parallel()
	l := launchLocal(t, t.TempDir())
	url := makeQueue(t, l, "github")
	example := launchIn(t, []string{"GITHUB_WEBHOOK_SECRET=a secret of the tests"},
		buildProgram(t, "github.com/hookstart/hookstart/shared/runner/examples/github"),
		"-nats-url", l.nats)
	example.Await("(runner is ready)")

	push, err := os.ReadFile("testdata/payloads/github-push.json")
	if err != nil {
		t.Fatal(err)
	}
	sign := func(secret string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = mac.Write(push)
		return "sha256=" + hex.EncodeToString(mac.Sum(nil))
	}
	headers := func(signature string) map[string]string {
		return map[string]string{
			"Content-Type":        "application/json",
			"X-GitHub-Event":      "push",
			"X-Hub-Signature-256": signature,
		}
	}
	signed := ended(t, l, url, string(push), headers(sign("a secret of the tests")), "succeeded",
		"", "")
	if !strings.Contains(string(signed.Output), `"event":"push"`) ||
		!strings.Contains(string(signed.Output), `"repository":"`) {
		t.Errorf("output %s", signed.Output)
	}
	forged := ended(t, l, url, string(push), headers(sign("another")), "failed", "",
		"is not that of this body")
	unsigned := ended(t, l, url, string(push), headers(""), "failed", "",
		"there is no X-Hub-Signature-256")
	changed := ended(t, l, url, string(push)+" ", headers(sign("a secret of the tests")), "failed",
		"", "is not that of this body")
	list := deadLetters(t, l)
	for _, e := range []api.ExecutionDetail{forged, unsigned, changed} {
		if list[e.ExecutionID] != api.DeadLetterFailed {
			t.Errorf("%s is no dead letter: %v", e.ExecutionID, list)
		}
	}
	example.Terminate()
	if strings.Contains(example.Output(), "a secret of the tests") {
		t.Error("the secret is in the log")
	}
}

const nodeExample = "../../shared/runner/examples/node"

// requireNode skips the test if the Node.js example is not installed. If HOOKSTART_TEST_REQUIRE
// includes node, it fails the test instead.
func requireNode(t *testing.T) {
	t.Helper()
	const install = "make node"
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(nodeExample + "/node_modules/hookstart-runner")
	}
	if err == nil {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("HOOKSTART_TEST_REQUIRE"), ","), "node") {
		t.Fatalf("node is required: %v; %s", err, install)
	}
	t.Skipf("the example in Node.js is not installed: %s", install)
}

// The program in shared/runner/examples/node works with the npm package of the Node.js kit and the
// official NATS client.
func TestNodeExample(t *testing.T) {
	t.Parallel()
	requireNode(t)
	l := launchLocal(t, t.TempDir(), "--max-body-bytes=200000")
	url := makeQueue(t, l, "node")
	asJSON := map[string]string{"Content-Type": "application/json", "X-GitHub-Event": "ping"}
	early, err := post(t.Context(), url, asJSON, strings.NewReader("0"))
	if err != nil || early.Status != 200 {
		t.Fatalf("POST: %+v, %v", early, err)
	}
	example := launchIn(t, []string{"HOOKSTART_NATS_URL=" + l.nats}, "node", nodeExample+"/main.js")
	example.Await("(runner is ready)")
	members := func(n int) func() bool {
		return func() bool { return membersOf(t, l.client(), "node") == n }
	}
	within(t, time.Minute, "member", members(1))
	// The runner must also run an execution that was accepted before it joined the group.
	recorded(t, l.client(), early.ExecutionID, func(e api.ExecutionDetail) bool {
		return e.Status == "succeeded"
	})

	const bytes = `"bytes":`
	ended(t, l, url, `{"a": "ü"}`, asJSON, "succeeded",
		`{"ranBy":"node","event":"ping",`+bytes+`11,"input":{"a":"ü"}}`, "")
	ended(t, l, url, "text ü", nil, "succeeded",
		`{"ranBy":"node",`+bytes+`7,"input":{"body":"text ü"}}`, "")
	ended(t, l, url, "\xff", nil, "succeeded",
		`{"ranBy":"node",`+bytes+`1,"input":{"body":"/w==","bodyEncoding":"base64"}}`, "")
	failed := ended(t, l, url, `{"fail": "on purpose"}`, asJSON, "failed", "", "on purpose")
	// Each byte of the output is encoded as six bytes, so the output does not fit into a report.
	ended(t, l, url, strings.Repeat("\x01", 200_000), nil, "failed", "", "the output has 12000")
	js := jetStream(t, l.nats)
	if _, err := js.Publish(t.Context(), "executions.start.node.node.node",
		[]byte("no protobuf")); err != nil {
		t.Fatal(err)
	}
	example.Await(`("result":"unreadable")`)
	ended(t, l, url, `1`, asJSON, "succeeded", "", "") // the failure has blocked nothing
	if list := deadLetters(t, l); list[failed.ExecutionID] != api.DeadLetterFailed ||
		len(list) != 3 {
		t.Errorf("dead letters: %v", list)
	}
	// A Node.js runner must create the consumer with the same configuration as a Go runner (package
	// runner), because one group may contain both.
	consumer, err := js.Consumer(t.Context(), stream.ExecutionsName, "runner-node-node")
	if err != nil {
		t.Fatal(err)
	}
	if c := consumer.CachedInfo().Config; c.AckPolicy != jetstream.AckExplicitPolicy ||
		c.AckWait != 15*time.Second ||
		c.FilterSubject != stream.QueueFilterSubject("node") || c.MaxAckPending != 10_000 ||
		c.DeliverPolicy != jetstream.DeliverAllPolicy {
		t.Errorf("%+v", c)
	}
	// The member sends heartbeats. After four missed heartbeats it would no longer count as a
	// member.
	still := time.NewTimer(5 * stream.RunnerHeartbeatInterval)
	defer still.Stop()
	for waiting := true; waiting; {
		select {
		case <-still.C:
			waiting = false
		case <-time.After(time.Second):
			if !members(1)() {
				t.Fatal("it is not a member any more")
			}
		}
	}
	example.Terminate()
	// The member announces that it is leaving, so that other programs do not wait for its
	// heartbeats.
	within(t, 2*stream.RunnerHeartbeatInterval, "end of the member", members(0))
	if info, err := consumer.Info(t.Context()); err != nil || info.NumAckPending != 0 ||
		info.NumPending != 0 {
		t.Errorf("left behind: %+v, %v", info, err)
	}
}

// evilRunner is a program that uses the Node.js kit. The input is a key of values, a map of
// functions. The handler calls the function under that key, which throws or returns something that
// is hard to convert to text or JSON. Runner options that are functions, such as log, throw as
// well.
const evilRunner = `
import { connect } from "@nats-io/transport-node";
import { Permanent, run } from "hookstart-runner";
const nc = await connect({ servers: process.env.HOOKSTART_NATS_URL });
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
const evil = () => { throw new Proxy({}, { get: evil, getPrototypeOf: evil }); };
const noText = Object.assign(new Error(), { toString: evil });
const values = {
  undefined: () => { throw undefined; },
  object: () => { throw Object.create(null); },
  proxy: evil,
  "no text": () => { throw noText; },
  number: () => { throw Object.assign(new Error("x"), { message: 7 }); },
  then: () => ({ then: evil }),
  json: () => ({ toJSON: evil }),
  bigint: () => 1n,
  "permanent number": () => { throw Object.assign(new Permanent("x"), { message: 8 }); },
  fine: () => "fine",
};
await run(nc, {
  queue: "evil", group: "evil", attempts: 2, ackWait: 1000, log: evil, onReady: evil,
  backoff: (attempt) => attempt === 1 ? evil() : 0,
}, (e) => values[JSON.parse(e.input).body](), stop.signal);
await nc.close();
console.log("it ended by itself");
`

// An exception that a handler or an option throws ends neither the runner nor the process.
func TestNodeSurvivesItsHandler(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	command := nodeRunner(evilRunner, server.URL())
	program := childtest.Launch(t, command)
	for body, want := range map[string]execution.Progress{
		"undefined":        {Status: execution.Failed, Error: "undefined"},
		"object":           {Status: execution.Failed, Error: "no text"},
		"proxy":            {Status: execution.Failed, Error: "no text"},
		"no text":          {Status: execution.Failed, Error: "no text"},
		"number":           {Status: execution.Failed, Error: "7"},
		"then":             {Status: execution.Failed, Error: "no text"},
		"json":             {Status: execution.Failed, Error: "the output is not valid JSON"},
		"bigint":           {Status: execution.Failed, Error: "the output is not valid JSON"},
		"permanent number": {Status: execution.Failed, Error: "8"},
		"fine":             {Status: execution.Succeeded},
	} {
		got := ingress.Await(t, ingress.Start(t, runnertest.Post{Queue: "evil", Body: body}))
		if got.Status != want.Status || !strings.Contains(got.Error, want.Error) {
			t.Errorf("%s: %+v", body, got)
		}
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	program.Await("(it ended by itself)")
}

// slowRunner is a program that uses the Node.js kit, with a concurrency of two and a handler that
// takes two seconds.
const slowRunner = `
import { connect } from "@nats-io/transport-node";
import { run } from "hookstart-runner";
const nc = await connect({ servers: process.env.HOOKSTART_NATS_URL });
const stop = new AbortController();
process.on("SIGTERM", () => { stop.abort(); console.log("it stops"); });
const work = () => new Promise((done) => setTimeout(done, 2000));
await run(nc, { queue: "slow", group: "slow", concurrency: 2,
	ackWait: Number(process.env.ACK_WAIT ?? 1000), attempts: Number(process.env.ATTEMPTS ?? 1),
	log: (e) => console.log(JSON.stringify(e)) }, work, stop.signal);
await nc.close();
`

// nodeRunner returns the command that runs a JavaScript program that uses the Node.js kit,
// connected to the given NATS server.
func nodeRunner(program, natsURL string) *exec.Cmd {
	command := exec.Command("node", "--input-type=module", "--eval", program)
	command.Dir = nodeExample
	command.Env = append(os.Environ(), "HOOKSTART_NATS_URL="+natsURL)
	return command
}

// A message arrives at a Node.js runner that is stopping. This delivery counts as an attempt. If
// another attempt is left, the runner hands the message back, and otherwise runs the execution.
func TestNodeKeepsWhatArrivesAtTheStop(t *testing.T) {
	t.Parallel()
	requireNode(t)
	for _, attempts := range []int{1, 2} {
		server := natstest.Start(t)
		nc := server.Connect(t)
		ingress := runnertest.NewIngress(t, nc)
		requests, err := nc.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT." + stream.ExecutionsName +
			".runner-slow-slow")
		if err != nil {
			t.Fatal(err)
		}
		js, proxy := jetStream(t, server.URL()), server.NewProxy(t)
		command := attemptsRunner(proxy.URL(), attempts)
		program := childtest.Launch(t, command)
		if _, err := requests.NextMsg(30 * time.Second); err != nil {
			t.Fatal(err)
		}
		proxy.Silence()
		id := ingress.Start(t, runnertest.Post{Queue: "slow"})
		for sent := false; !sent; {
			consumer, err := js.Consumer(t.Context(), stream.ExecutionsName, "runner-slow-slow")
			if err != nil {
				t.Fatal(err)
			}
			info := consumer.CachedInfo()
			if sent = info.NumAckPending == 1; !sent && info.NumWaiting == 0 {
				// On a slow machine the runner's request for messages may have expired before the
				// execution was stored. Restore the connection, so that the next request fetches
				// the execution.
				proxy.Heal()
			}
		}
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		program.Await("(it stops)")
		proxy.Heal()
		if attempts > 1 {
			program.AwaitExit()
			program = childtest.Launch(t, attemptsRunner(server.URL(), attempts))
		}
		if got := ingress.Await(t, id); got.Status != execution.Succeeded {
			t.Errorf("with %d attempts: %+v", attempts, got)
		}
		if attempts == 1 {
			program.AwaitExit() // a second SIGTERM would end it immediately
		}
	}
}

// attemptsRunner returns the command of a slowRunner with the given number of attempts. Its ack
// wait is so long that a message is redelivered only if a runner hands it back.
func attemptsRunner(natsURL string, attempts int) *exec.Cmd {
	command := nodeRunner(slowRunner, natsURL)
	command.Env = append(command.Env, "ATTEMPTS="+strconv.Itoa(attempts), "ACK_WAIT=3600000")
	return command
}

// canceledRunner is a program that uses the Node.js kit. Its handler prints the execution's ID when
// it begins, waits until its signal is aborted, and prints the reason. It then returns or throws,
// as the input says.
const canceledRunner = `
import { connect } from "@nats-io/transport-node";
import { Canceled, run } from "hookstart-runner";
const nc = await connect({ servers: process.env.HOOKSTART_NATS_URL });
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
await run(nc, { queue: "canceled", group: "canceled", log: () => {} }, async (e, signal) => {
  console.log("begin", e.executionId, ".");
  await new Promise((resolve) => signal.addEventListener("abort", resolve));
  console.log("aborted", e.executionId, signal.reason instanceof Canceled, ".");
  if (JSON.parse(e.input).body === "returns") {
    return "done";
  }
  throw signal.reason;
}, stop.signal);
await nc.close();
`

// The Node.js kit aborts the signal of a canceled execution's handler. The execution is canceled if
// the handler then throws, and succeeds if it returns. An execution that was canceled earlier never
// begins.
func TestNodeIsCanceled(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	before := ingress.Start(t, runnertest.Post{Queue: "canceled"})
	ingress.Cancel(t, before)
	program := childtest.Launch(t, nodeRunner(canceledRunner, server.URL()))
	if got := ingress.Await(t, before); got.Status != execution.Canceled ||
		!got.StartedAt.IsZero() {
		t.Errorf("canceled before it began: %+v", got)
	}
	for body, want := range map[string]execution.Status{
		"throws": execution.Canceled, "returns": execution.Succeeded,
	} {
		id := ingress.Start(t, runnertest.Post{Queue: "canceled", Body: body})
		program.Await("begin (" + id + ") ")
		ingress.Cancel(t, id)
		if reason := program.Await("aborted " + id + ` (\w+) `); reason != "true" {
			t.Errorf("%s: the reason is no Canceled", body)
		}
		got := ingress.Await(t, id)
		if got.Status != want || got.StartedAt.IsZero() || got.Attempt != 1 ||
			want == execution.Succeeded && string(got.Output) != `"done"` {
			t.Errorf("its handler %s: %+v", body, got)
		}
	}
	program.Terminate()
	if strings.Contains(program.Output(), "begin "+before) {
		t.Error("an execution that was canceled before has begun")
	}
}

// Executions for which a process has no free concurrency slot stay on the server. An execution that
// the server redelivers while it is running runs only once.
func TestNodeRunsOnce(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	acks, err := nc.SubscribeSync("$JS.ACK." + stream.ExecutionsName + ".runner-slow-slow.1.>")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 6 {
		ids = append(ids, ingress.Start(t, runnertest.Post{Queue: "slow"}))
	}
	program := childtest.Launch(t, nodeRunner(slowRunner, server.URL()))
	heartbeat, err := acks.NextMsg(30 * time.Second)
	if err == nil {
		err = nc.Publish(heartbeat.Subject, []byte("-NAK"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if got := ingress.Await(t, id); got.Status != execution.Succeeded {
			t.Errorf("%+v", got)
		}
	}
	program.Terminate()
	if runs := strings.Count(program.Output(), `"result":"succeeded"`); runs != len(ids) {
		t.Errorf("%d runs of %d executions", runs, len(ids))
	}
}

// If the storage of NATS is full, a Node.js runner retries the report of an execution until there
// is room, and does not run the execution again.
func TestNodeReportsWaitForRoom(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	js := jetStream(t, server.URL())
	size := func(bytes int64) {
		t.Helper()
		s, err := js.Stream(t.Context(), stream.ProgressName)
		if err == nil {
			config := s.CachedInfo().Config
			config.MaxBytes, config.Discard = bytes, jetstream.DiscardNew
			_, err = js.UpdateStream(t.Context(), config)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	size(1)
	id := ingress.Start(t, runnertest.Post{Queue: "slow"})
	reports, err := nc.SubscribeSync("executions.progress.>")
	if err != nil {
		t.Fatal(err)
	}
	program := childtest.Launch(t, nodeRunner(slowRunner, server.URL()))
	for range 30 { // the runner sends the report again every tenth of ackWait
		if _, err := reports.NextMsg(30 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	size(-1)
	if got := ingress.Await(t, id); got.Status != execution.Succeeded || got.Attempt != 1 {
		t.Errorf("%+v", got)
	}
	program.Terminate()
	if strings.Contains(program.Output(), "not reported") {
		t.Error("the process gave up the report")
	}
	if !strings.Contains(program.Output(), "the report cannot be stored yet") {
		t.Error("the process did not say that the report waits")
	}
}

// membersOf returns the total number of members of a queue's runner groups.
func membersOf(t *testing.T, c *apiclient.Client, queue string) (n int) {
	t.Helper()
	list, err := c.Queues(t.Context(), apiclient.Page{})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range list.Items {
		for _, g := range q.Groups {
			if q.Queue == queue {
				n += g.Members
			}
		}
	}
	return n
}

// deadLetters returns the kinds of the dead letters, keyed by ID.
func deadLetters(t *testing.T, l *localProgram) map[string]string {
	t.Helper()
	list, err := l.client().DeadLetters(t.Context(), apiclient.DeadLetterFilter{}, apiclient.Page{
		Limit: api.MaxLimit,
	})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, d := range list.Items {
		kinds[d.ID] = d.Kind
	}
	return kinds
}
