// The kit: it takes executions from the stream, calls a handler for each, and reports what
// became of it. It does what shared/runner does in Go, and can share a group with it.
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { Canceled, Cancellations } from "./cancel.js";
import { AckPolicy, DeliverPolicy, JetStreamApiError, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { createInbox, nanos } from "@nats-io/transport-node";
import { LaneMessage, Lease, Lost, hasEnded } from "./lanes.js";
import { ExecutionState, consumerName, consumerSettings, decodeSettings, decodeStart, heartbeat, laneConsumerName, laneSubject, presenceSubject, progress, startSubject, streamName } from "./contract.js";

/** @typedef {import("./contract.js").Execution} Execution */
/** @typedef {import("./contract.js").Start} Start */
/** @typedef {import("@nats-io/transport-node").NatsConnection} NatsConnection */
/** @typedef {import("@nats-io/jetstream").JetStreamClient} JetStream */
/** @typedef {import("@nats-io/jetstream").JsMsg | LaneMessage} Message */
/** @typedef {{ msg: Message, cancel?: AbortController, lease?: Lease }} Delivery the last one of an execution that is worked on */

/**
 * A Handler runs one execution. What it returns is the output; the signal ends with its time.
 * @typedef {(e: Execution, signal: AbortSignal) => unknown} Handler
 */

// pullExpiry is how long a request for messages stays at the server, in milliseconds: where runners have an account of their own,
// a message may be sent to the request of a runner that has gone.
const pullExpiry = 5000;
// onceExpiry is that of a runner with one attempt, in milliseconds. When it stops, it waits for what its last request brings, and runs it: what
// is sent to a request that nobody waits for would be an attempt, and fail although no handler has seen it. No request can expire sooner.
const onceExpiry = 1000;
// consumerNotFound is the server's error code.
const consumerNotFound = 10014;

// reportOverhead is room in a report for all but the output.
const reportOverhead = 16 * 1024;

export { Canceled, Lost };

// cancelPoll is how often the runner asks for cancellations of what its handlers work on, in milliseconds.
const cancelPoll = 1000;

// lanesEvery is how often a runner looks whether its queue has lanes, in milliseconds.
const lanesEvery = 2000;
// laneSoonest and laneLatest are the shortest and the longest pause, in milliseconds, between two requests for the next
// message of a lane that has none.
const laneSoonest = 50, laneLatest = 500;
// laneHold is how long a place is kept for the answer to such a request, in milliseconds.
const laneHold = 50;
// pullExpiryWithLanes is pullExpiry while the queue has lanes, which could use the places that a request keeps.
const pullExpiryWithLanes = 1000;

// Permanent is an error that is not tried again.
export class Permanent extends Error {}

// ConnectionClosed means that the connection to NATS is closed for good. Its cause is the connection's error, if it had one.
export class ConnectionClosed extends Error {}

const defaults = {
  group: "",
  queue: "default",
  concurrency: 10,
  attempts: 5,
  backoff: (/** @type {number} */ attempt) => Math.min(1000 * 2 ** (attempt - 1), 60_000),
  timeout: 5 * 60_000, // of one attempt
  ackWait: 15_000, // how long until the work of a runner that died is given to another
  reportRunningAfter: 1000, // how long a handler works before it is reported that its execution runs; less than 0: at once
  drainTimeout: 30_000, // how long handlers may finish after the end
  // log gets one event for each attempt. The default writes those that failed to stderr.
  log: (/** @type {Event} */ event) => {
    if (event.error !== undefined) {
      console.warn(JSON.stringify(event));
    }
  },
  onReady: () => {}, // called once, when the group's consumer has answered
};
/** @typedef {typeof defaults} Options */
/**
 * An Event is one attempt and its result, or the error of a function among the options.
 * @typedef {{ result: string, attempt?: number, executionId?: string, ms?: number, error?: string, option?: string }} Event
 */

/**
 * run runs executions until stop says so; then it lets handlers finish. An execution can run
 * twice: let what the handler does depend on its executionId. Nothing that a handler returns or throws ends
 * the process, and neither does an error thrown by a function among the options: it is logged. Out of reach
 * is what a handler starts and does not await: timers, listeners of its signal, promises left alone.
 * When the connection is closed for good, nothing can be reported any more: run aborts the handlers' signals and throws
 * ConnectionClosed. Let the program end with it, and be started anew.
 * @param {NatsConnection} nc
 * @param {Partial<Options> & { group: string }} options
 * @param {Handler} handler
 * @param {AbortSignal} stop
 */
export async function run(nc, options, handler, stop) {
  const o = { ...defaults, ...options };
  const js = jetstream(nc);
  const manager = await jetstreamManager(nc);
  const consumer = await ensureConsumer(js, manager, o);
  const working = new AbortController(); // ends when handlers may not go on
  /** @type {Set<Promise<void>>} */
  const underway = new Set();
  /** @type {Map<string, Delivery>} */
  const deliveries = new Map();
  const cancellations = new Cancellations(nc);
  const canceling = setInterval(async () => {
    if (deliveries.size > 0) {
      await cancellations.read().catch(() => {}); // asked again a second later
      for (const [key, { cancel, lease }] of deliveries) {
        if (lease && !lease.holds()) {
          cancel?.abort(new Lost("the runner was frozen or cut off for longer than the ack wait: another member may have the execution"));
        }
        if (cancellations.ids.has(key.split(" ")[1] ?? "")) {
          cancel?.abort(new Canceled("the execution is canceled"));
        }
      }
    }
  }, cancelPoll);
  guard(o, "onReady", () => o.onReady());
  // Executors count who is there. A server that forbids it does no harm.
  const presence = presenceSubject(o.queue, o.group, randomUUID());
  nc.publish(presence);
  const present = setInterval(() => unlessClosed(() => nc.publish(presence)), heartbeat);
  /** @type {import("@nats-io/jetstream").ConsumerMessages | undefined} */
  let messages;
  const once = o.attempts === 1;
  const end = () => void (once || messages?.close());
  stop.addEventListener("abort", end, { once: true });
  const closed = nc.closed().then((cause) => {
    working.abort();
    messages?.close();
    return new ConnectionClosed("the connection to NATS is closed for good", { cause });
  });
  const group = await consumer.info(true);
  const laneTaker = takeLanes();
  let laned = 0; // how many lanes are taken

  /** takeLanes takes the queue's lanes, as soon as it has some. */
  async function takeLanes() {
    const taking = [];
    while (!stop.aborted && !nc.isClosed()) {
      for (const lanes = await countLanes(js, manager, o); laned < lanes; laned++) {
        taking.push(takeLane(laned));
      }
      await pause(lanesEvery, undefined, { signal: stop }).catch(() => {});
    }
    await Promise.all(taking);
  }

  /** takePlace takes one of the places for handlers. */
  function takePlace() {
    const place = { left: false, leave: () => {} };
    const taken = /** @type {Promise<void>} */ (new Promise((resolve) => {
      place.leave = () => {
        place.left = true;
        underway.delete(taken);
        resolve();
      };
    }));
    underway.add(taken);
    return place;
  }

  /**
   * takeLane takes the executions of one lane, one after the other.
   * @param {number} lane
   */
  async function takeLane(lane) {
    let found = false;
    let wait = laneSoonest;
    while (!stop.aborted && !nc.isClosed()) {
      try {
        if (!found) {
          await ensureConsumer(js, manager, o, { lane, main: group });
          found = true;
        }
        if (underway.size >= o.concurrency) {
          await Promise.race(underway);
          continue;
        }
        const asked = performance.now();
        const place = takePlace();
        const msg = await nextOfLane(nc, laneConsumerName(o.queue, o.group, lane), place.leave);
        if (!msg) {
          place.leave();
          await pause(wait, undefined, { signal: stop }).catch(() => {});
          wait = Math.min(wait * 1.5, laneLatest);
          continue;
        }
        wait = laneSoonest;
        const late = place.left && underway.size >= o.concurrency; // it came after the place was left, and there is no other
        if (late || (stop.aborted && msg.info.deliveryCount < o.attempts)) {
          place.leave();
          msg.nak();
          continue;
        }
        const mine = place.left ? takePlace() : place;
        await attempt(nc, js, o, handler, working.signal, deliveries, cancellations, msg, new Lease(asked, o.ackWait))
          .catch((failure) => log(o, { result: "not reported", error: reason(failure) }))
          .finally(mine.leave);
      } catch (failure) {
        log(o, { result: "a lane of ordered executions cannot be taken", error: reason(failure) });
        await pause(lanesEvery, undefined, { signal: stop }).catch(() => {});
      }
    }
  }

  while (!stop.aborted && !nc.isClosed()) {
    try {
      // No more than there are places: what waits for one longer than ackWait is run by another member, too.
      const free = o.concurrency - underway.size;
      messages = await consumer.fetch(laned > 0
        ? { max_messages: Math.max(1, Math.min(free, Math.ceil(o.concurrency / 2))), expires: pullExpiryWithLanes }
        : { max_messages: free, expires: once ? onceExpiry : pullExpiry });
      if (stop.aborted) {
        end();
      }
      for await (const msg of messages) {
        if (stop.aborted && msg.info.deliveryCount < o.attempts) {
          msg.nak(); // fetched, not begun: for another member, at once
          continue;
        }
        const one = attempt(nc, js, o, handler, working.signal, deliveries, cancellations, msg)
          .catch((failure) => log(o, { result: "not reported", error: reason(failure) })) // the connection was closed
          .finally(() => underway.delete(one));
        underway.add(one);
      }
    } catch {
      if (!nc.isClosed()) {
        await pause(250); // the server restarts, or has no leader
      }
    }
    if (underway.size >= o.concurrency) {
      await Promise.race(underway);
    }
  }
  const late = setTimeout(() => working.abort(), o.drainTimeout);
  await Promise.all([laneTaker, ...underway]);
  clearTimeout(late);
  clearInterval(present);
  clearInterval(canceling);
  if (nc.isClosed()) {
    throw await closed;
  }
  nc.publish(presence, "leaves");
  await nc.flush(); // what was acknowledged last must reach the server
}

/**
 * countLanes returns how many lanes the queue has; 0 if that cannot be determined. A runner with an account of its own
 * cannot read the queue's record: it counts the consumers that the executor has made for its group.
 * @param {JetStream} js
 * @param {import("@nats-io/jetstream").JetStreamManager} manager
 * @param {Options} o
 */
async function countLanes(js, manager, o) {
  const { readable, lanes } = await readSettings(manager, o.queue);
  if (readable) {
    return Number(lanes);
  }
  for (let lane = 0; ; lane++) {
    try {
      await js.consumers.get(streamName, laneConsumerName(o.queue, o.group, lane));
    } catch {
      return lane;
    }
  }
}

/**
 * nextOfLane asks for the next message of a lane. It calls leave when the server does not answer at once, as while a message
 * of the lane is out.
 * @param {NatsConnection} nc
 * @param {string} consumer
 * @param {() => void} leave
 * @returns {Promise<Message | null>}
 */
async function nextOfLane(nc, consumer, leave) {
  const inbox = createInbox();
  const answers = nc.subscribe(inbox, { max: 1 });
  const held = setTimeout(leave, laneHold);
  const over = setTimeout(() => answers.unsubscribe(), pullExpiryWithLanes);
  try {
    nc.publish(`$JS.API.CONSUMER.MSG.NEXT.${streamName}.${consumer}`, JSON.stringify({ batch: 1, no_wait: true }), { reply: inbox });
    for await (const answer of answers) {
      return answer.headers?.code ? null : new LaneMessage(answer);
    }
    return null;
  } finally {
    clearTimeout(held);
    clearTimeout(over);
  }
}

/**
 * ensureConsumer finds the group's durable consumer, or that of a lane, or makes it. A lane begins where the group's
 * consumer began.
 * @param {JetStream} js
 * @param {import("@nats-io/jetstream").JetStreamManager} manager
 * @param {Options} o
 * @param {{ lane: number, main: import("@nats-io/jetstream").ConsumerInfo }} [of]
 */
async function ensureConsumer(js, manager, o, of) {
  const name = of ? laneConsumerName(o.queue, o.group, of.lane) : consumerName(o.queue, o.group);
  const subject = of ? laneSubject(o.queue, of.lane) : startSubject(o.queue);
  try {
    const consumer = await js.consumers.get(streamName, name);
    if ((await consumer.info(true)).config.filter_subject !== subject) {
      throw new Error(`the consumer ${name} has other subjects than ${subject}: choose another name of the group`);
    }
    return consumer;
  } catch (err) {
    if (!(err instanceof JetStreamApiError) || err.code !== consumerNotFound) {
      throw err;
    }
  }
  let settings = await readSettings(manager, o.queue);
  await manager.consumers.add(streamName, {
    durable_name: name,
    filter_subject: subject,
    ack_policy: AckPolicy.Explicit,
    ack_wait: of?.main.config.ack_wait ?? nanos(o.ackWait),
    ...begin(of?.main),
    ...consumerSettings(settings, o.group),
    ...of && { max_ack_pending: 1 },
  });
  // What an operator sets meanwhile holds from the beginning, too: executors see the consumer, or the kit sees the settings.
  for (;;) {
    const now = await readSettings(manager, o.queue);
    if (now.revision === settings.revision) {
      break;
    }
    settings = now;
    // An update without pause_until ends a pause.
    await manager.consumers.update(streamName, name, { pause_until: undefined, ...consumerSettings(settings, o.group), ...of && { max_ack_pending: 1 } });
  }
  return js.consumers.get(streamName, name);
}

/**
 * begin returns where a consumer begins: with the oldest message, or where the group's consumer, which exists, began.
 * @param {import("@nats-io/jetstream").ConsumerInfo} [main]
 */
function begin(main) {
  const { deliver_policy, opt_start_seq, opt_start_time } = main?.config ?? {};
  switch (deliver_policy) {
    case DeliverPolicy.New:
      return { deliver_policy: DeliverPolicy.StartTime, opt_start_time: main?.created };
    case DeliverPolicy.StartTime:
    case DeliverPolicy.StartSequence:
      return { deliver_policy, ...opt_start_seq && { opt_start_seq }, ...opt_start_time && { opt_start_time } };
    default:
      return { deliver_policy: DeliverPolicy.All };
  }
}

/**
 * readSettings reads what an operator has set of a queue. Where that cannot be read, the executors see to it.
 * @param {import("@nats-io/jetstream").JetStreamManager} manager
 * @param {string} queue
 */
async function readSettings(manager, queue) {
  const none = new Uint8Array();
  try {
    const found = await manager.streams.getMessage("KV_registry", { last_by_subj: `$KV.registry.queue.${queue}` });
    return { readable: true, revision: found?.seq ?? 0, ...decodeSettings(found?.data ?? none) };
  } catch {
    return { readable: false, revision: 0, ...decodeSettings(none) };
  }
}

/**
 * attempt runs one message to an acknowledgement. It throws only when the connection is closed.
 * @param {NatsConnection} nc
 * @param {JetStream} js
 * @param {Options} o
 * @param {Handler} handler
 * @param {AbortSignal} working
 * @param {Map<string, Delivery>} deliveries of what is worked on
 * @param {Cancellations} cancellations
 * @param {Message} msg
 * @param {Lease} [lease] of a message of a lane
 */
async function attempt(nc, js, o, handler, working, deliveries, cancellations, msg, lease) {
  const began = Date.now();
  const count = msg.info.deliveryCount;
  /** @type {Start} */
  let start;
  const note = (/** @type {string} */ result, /** @type {string | undefined} */ error) => log(o, {
    result, attempt: count, executionId: start?.executionId, ms: Date.now() - began, error,
  });
  try {
    start = decodeStart(msg.data);
  } catch (failure) {
    // No attempt would make it better. The executor puts it on the list of dead letters.
    const why = reason(failure);
    note("unreadable", why);
    msg.term(why);
    return;
  }
  // A NATS server that restarts can forget that it is worked on, and deliver it again: to here, too.
  const key = `${msg.seq} ${start.executionId}`;
  const known = deliveries.get(key);
  if (known) {
    known.msg = msg;
    if (known.lease && lease) {
      known.lease.until = lease.until; // one that has ended stays so
    }
    return;
  }
  const delivery = { msg, lease };
  deliveries.set(key, delivery);
  try {
    await perform(nc, js, o, handler, working, start, delivery, cancellations, note);
  } finally {
    deliveries.delete(key);
  }
}

/**
 * perform runs an execution, and reports it. It throws only when the connection is closed.
 * @param {NatsConnection} nc
 * @param {JetStream} js
 * @param {Options} o
 * @param {Handler} handler
 * @param {AbortSignal} working
 * @param {Start} start
 * @param {Delivery} delivery
 * @param {Cancellations} cancellations
 * @param {(result: string, error?: string) => void} note
 */
async function perform(nc, js, o, handler, working, start, delivery, cancellations, note) {
  const { info: { deliveryCount: count }, headers } = delivery.msg;
  /** @type {(state: ExecutionState, what: { startedAt?: number, output?: string, error?: string }) => Promise<void>} */
  const finish = async (state, what) => {
    const report = progress(start, headers, state, { ...what, attempt: Math.min(count, o.attempts) });
    // Acknowledged only once it is stored: better twice than never. One that comes twice does no
    // harm, so it is sent again for as long as the acknowledgement may take: a stream that has no
    // leader, or is just being made, is there a moment later.
    const until = Date.now() + o.ackWait;
    for (let stored = false; !stored;) {
      try {
        await js.publish(report.subject, report.data, { headers: report.headers, timeout: Math.max(o.ackWait / 3, 100) });
        stored = true;
      } catch (failure) {
        if (Date.now() >= until || nc.isClosed()) {
          note("not reported", reason(failure));
          if (holds()) {
            delivery.msg.nak(1000);
          }
          return;
        }
        beat();
        await pause(o.ackWait / 10);
      }
    }
    note(ExecutionState[state].toLowerCase(), what.error);
    if (holds()) {
      delivery.msg.ack();
    }
  };
  const holds = () => delivery.lease?.holds() ?? true;
  const beat = () => void (delivery.lease ? delivery.lease.holds() && delivery.lease.renew(nc, delivery.msg instanceof LaneMessage ? delivery.msg.reply : "") : delivery.msg.working());
  if (delivery.lease) {
    beat();
    const ended = await hasEnded(nc, start, working);
    if (!holds()) {
      return note("handed back", "the runner was frozen or cut off for longer than the ack wait");
    }
    if (ended) {
      return void delivery.msg.ack();
    }
  }
  if (count > o.attempts) {
    return finish(ExecutionState.FAILED, { error: `no runner finished it in ${o.attempts} attempts: each died, was cut off, or did not return in time` });
  }
  if (await cancellations.has(start.executionId, working)) {
    return finish(ExecutionState.CANCELED, { error: "the execution is canceled" });
  }
  delivery.cancel = new AbortController();
  const startedAt = Date.now();
  // A quick one is reported once, when it has ended. If this report gets lost, the final one says more.
  const reportRunning = () => {
    const running = progress(start, headers, ExecutionState.RUNNING, { at: startedAt, attempt: count });
    unlessClosed(() => nc.publish(running.subject, running.data, { headers: running.headers }));
  };
  /** @type {NodeJS.Timeout | undefined} */
  let slow;
  if (o.reportRunningAfter < 0) {
    reportRunning();
  } else {
    slow = setTimeout(reportRunning, o.reportRunningAfter);
  }
  const alive = setInterval(() => unlessClosed(beat), o.ackWait / 3);
  /** @type {{ error: string, permanent: boolean } | undefined} */
  let failure;
  let output;
  try {
    output = await call(handler, { ...start, attempt: count }, o.timeout, working, delivery.cancel.signal);
    const size = Buffer.byteLength(output ?? "");
    const most = (nc.info?.max_payload ?? 1024 * 1024) - reportOverhead;
    if (size > most) { // the NATS server would take no report of it, however often it is tried
      throw new Permanent(`the output has ${size} bytes, but a report takes at most ${most}: store it elsewhere and return a reference`);
    }
  } catch (thrown) {
    failure = { error: reason(thrown), permanent: isPermanent(thrown) };
  } finally {
    clearInterval(alive);
    clearTimeout(slow);
  }
  if (!holds()) {
    return note("handed back", failure?.error ?? "another member may have it");
  }
  if (!failure) {
    return finish(ExecutionState.SUCCEEDED, { startedAt, output });
  }
  if (delivery.cancel.signal.aborted) {
    return finish(ExecutionState.CANCELED, { startedAt, error: failure.error });
  }
  if (working.aborted) {
    note("handed back", failure.error);
    delivery.msg.nak();
  } else if (failure.permanent || count >= o.attempts) {
    return finish(ExecutionState.FAILED, { startedAt, error: failure.error });
  } else {
    note("tried again", failure.error);
    delivery.msg.nak(wait(o, count));
  }
}

/**
 * wait returns the milliseconds until the attempt after this one: the default if backoff throws, or returns no number.
 * @param {Options} o
 * @param {number} attempt
 */
function wait(o, attempt) {
  const ms = guard(o, "backoff", () => o.backoff(attempt));
  return Number.isFinite(ms) ? Number(ms) : defaults.backoff(attempt);
}

/**
 * guard calls a function among the options. If that throws, or its promise is rejected, the error is logged.
 * @template T
 * @param {Options} o
 * @param {string} option
 * @param {() => T} callIt
 */
function guard(o, option, callIt) {
  const failed = (/** @type {unknown} */ thrown) => log(o, { result: "error in the options", option, error: reason(thrown) });
  try {
    const result = callIt();
    if (result instanceof Promise) {
      result.catch(failed);
    }
    return result;
  } catch (thrown) {
    failed(thrown);
    return undefined;
  }
}

/**
 * log logs an event. What a log throws, it cannot be told.
 * @param {Options} o
 * @param {Event} event
 */
function log(o, event) {
  try {
    const result = /** @type {unknown} */ (o.log(event));
    if (result instanceof Promise) {
      result.catch(() => {});
    }
  } catch {
    // there is nothing to say it with
  }
}

/**
 * unlessClosed sends something from a timer, where an error would end the process: a connection that is closed throws.
 * @param {() => void} send
 */
function unlessClosed(send) {
  try {
    send();
  } catch {
    // run notices that the connection is closed
  }
}

/**
 * reason returns what was thrown as text. It may be any value, with a message or a toString that throws.
 * @param {unknown} thrown
 */
function reason(thrown) {
  try {
    return String((thrown instanceof Error && thrown.message) || thrown);
  } catch {
    return "the handler threw a value that has no text";
  }
}

/**
 * isPermanent reports whether there is no further attempt after what was thrown.
 * @param {unknown} thrown
 */
function isPermanent(thrown) {
  try {
    return thrown instanceof Permanent;
  } catch {
    return false; // a Proxy whose traps throw
  }
}

/**
 * call calls the handler, and returns the output as one JSON text when it has, or throws
 * when it is out of time. A handler that does not heed the signal is left alone then.
 * @param {Handler} handler
 * @param {Execution} execution
 * @param {number} timeout
 * @param {AbortSignal} working
 * @param {AbortSignal} canceled
 */
async function call(handler, execution, timeout, working, canceled) {
  const limit = AbortSignal.timeout(timeout);
  const over = new AbortController(); // the handler's
  const late = new AbortController(); // when it is left alone soon; one that is canceled may take as long as it could have taken
  const cancel = () => over.abort(canceled.reason);
  canceled.addEventListener("abort", cancel, { once: true });
  const abort = () => [over, late].forEach((one) => one.abort(new Error(limit.aborted ? `the handler did not return within ${timeout} ms` : "the runner stops")));
  limit.addEventListener("abort", abort, { once: true });
  working.addEventListener("abort", abort, { once: true });
  const called = (async () => handler(execution, over.signal))();
  called.catch(() => {}); // when it is left alone, nobody hears how it ends
  const ended = /** @type {Promise<never>} */ (new Promise((_, reject) => {
    late.signal.addEventListener("abort", async () => {
      await pause(1000, undefined, { ref: false }); // it may still return by itself
      reject(late.signal.reason);
    }, { once: true });
  }));
  try {
    const value = await Promise.race([called, ended]);
    if (value === undefined) {
      return undefined;
    }
    return asJSON(value);
  } finally {
    working.removeEventListener("abort", abort);
    limit.removeEventListener("abort", abort);
  }
}

/**
 * asJSON returns an output as one JSON text. Without one, no further attempt would help.
 * @param {unknown} value
 */
function asJSON(value) {
  let text;
  try {
    text = JSON.stringify(value);
  } catch (thrown) {
    throw new Permanent(`the output is not valid JSON: ${reason(thrown)}`);
  }
  if (text === undefined) {
    throw new Permanent("the output is not valid JSON");
  }
  return text;
}
