package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
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

// The Node.js kit runs the executions with the same key one after another, in order, even after
// retries.
func TestNodeKeepsTheOrder(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	command := exec.Command("node", "--input-type=module", "--eval", orderedRunner)
	command.Dir = nodeExample
	command.Env = append(os.Environ(), "HOOKSTART_NATS_URL="+server.URL())
	program := childtest.Launch(t, command)
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
