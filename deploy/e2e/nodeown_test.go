package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
)

// ownRunner is a Node.js runner whose handler prints when it begins and ends.
const ownRunner = `
import { connect } from "@nats-io/transport-node";
import { run } from "hookstart-runner";
const nc = await connect({ servers: process.env.HOOKSTART_NATS_URL });
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
let running = 0;
await run(nc, { queue: "ordered", group: "ordered", concurrency: 2,
	log: (e) => console.log(JSON.stringify(e)) }, async (e) => {
  console.log("begin", e.orderKey || "none", e.executionId, ++running, ".");
  await new Promise((resolve) => setTimeout(resolve, 2));
  running--;
}, stop.signal);
await nc.close();
`

// The Node.js kit consumes its queue's executions from the shared stream and from the queue's own
// stream, and follows moves between them without a restart. It keeps the order of keys, runs each
// execution exactly once, and never exceeds its concurrency.
func TestNodeFollowsItsQueue(t *testing.T) {
	t.Parallel()
	requireNode(t)
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	program := childtest.Launch(t, nodeRunner(ownRunner, server.URL()))
	want, all := map[string][]string{}, []string{}
	begin := func() {
		for n := range 24 {
			key := fmt.Sprint("k", n%6)
			id := ingress.Start(t, runnertest.Post{Queue: "ordered", OrderKey: key})
			want[key] = append(want[key], id)
			all = append(all, id, ingress.Start(t, runnertest.Post{Queue: "ordered"}))
		}
	}
	await := func(started []string) {
		for _, id := range started {
			if final := ingress.Await(t, id); final.Status != execution.Succeeded {
				t.Fatalf("%s ended as %+v", id, final)
			}
		}
	}
	begin()
	ingress.MoveToOwnStream(t, "ordered")
	begin()
	await(all)
	begin()
	ingress.MoveToSharedStream(t, "ordered")
	begin()
	await(all)
	// DeleteOwnStream also deletes the reports of the executions in the own stream, so from here on
	// wait only for executions that are started later.
	ingress.DeleteOwnStream(t, "ordered")
	before := len(all)
	begin()
	await(all[before:])
	begins, ran := map[string][]string{}, map[string]int{}
	for _, line := range regexp.MustCompile(`begin (\S+) (\S+) (\d+) \.`).FindAllStringSubmatch(program.Output(), -1) {
		key, id, running := line[1], line[2], line[3]
		if running != "1" && running != "2" {
			t.Errorf("%s handlers run at once, want at most 2", running)
		}
		ran[id]++
		if key != "none" {
			begins[key] = append(begins[key], id)
		}
	}
	for _, id := range all {
		if ran[id] != 1 {
			t.Errorf("%s ran %d times", id, ran[id])
		}
	}
	for key := range want {
		if !slices.Equal(begins[key], want[key]) {
			t.Errorf("%s began as\n%v, started as\n%v", key, begins[key], want[key])
		}
	}
}
