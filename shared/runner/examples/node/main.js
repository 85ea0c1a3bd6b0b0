// An example of a runner in Node.js: it returns what came in, in short. README.md says how
// to try it.
import { connect } from "@nats-io/transport-node";
import { Permanent, run } from "hookstart-runner";

const env = process.env;
const queue = env.HOOKSTART_QUEUE ?? "node";
const group = env.HOOKSTART_GROUP ?? "node";
const log = (/** @type {object} */ event) => console.log(JSON.stringify({ time: new Date().toISOString(), ...event }));

/**
 * handler is what an execution does. It may be done twice, so let it depend on e.executionId.
 * @type {import("hookstart-runner").Handler}
 */
async function handler(e, signal) {
  const input = JSON.parse(e.input);
  if (typeof input?.fail === "string") {
    throw new Permanent(input.fail); // no attempt would make it better
  }
  signal.throwIfAborted();
  return { ranBy: "node", event: e.headers["X-Github-Event"]?.[0], bytes: e.body.length, input };
}

const stop = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, () => stop.abort());
}
const nc = await connect({
  servers: (env.HOOKSTART_NATS_URL ?? "nats://127.0.0.1:4222").split(","),
  name: "hookstart example runner node",
  maxReconnectAttempts: -1,
});
const onReady = () => log({ message: "runner is ready", queue, group });
await run(nc, { queue, group, log, onReady }, handler, stop.signal);
await nc.close();
