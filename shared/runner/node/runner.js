// The kit: it takes executions from the stream, calls a handler for each, and reports what
// became of it. It does what shared/runner does in Go, and can share a group with it.
import { randomUUID } from "node:crypto";
import { setMaxListeners } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { Canceled, Cancellations } from "./cancel.js";
import { AckPolicy, DeliverPolicy, JetStreamApiError, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { createInbox, millis, nanos } from "@nats-io/transport-node";
import { Held, LaneMessage, Lease, LeaseNotTaken, Lost, consumerNotFound, handBack, isRefused, nextReport, readLastReport, secondHeartbeat, streamNotFound } from "./lanes.js";
import { ExecutionState, consumerName, consumerSettings, decodeSettings, decodeStart, heartbeat, laneConsumerName, laneSubject, presenceSubject, progress, settingsRequest, startSubject, streamName, validName } from "./contract.js";

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
// onceSlack is how much longer, in milliseconds, a runner that stops waits for its last requests: while NATS is away, no request expires.
const onceSlack = 4000;
// flushTimeout is how long a runner that stops waits, in milliseconds, until the server has its last acknowledgements.
const flushTimeout = 5000;
// noResponders is the status of an answer that says that nothing listens.
const noResponders = 503;

// storageFull has JetStream's codes for a message that it does not store for lack of room: a limit of the account (10002), of the
// server (10023, 10028, 10047) or of the stream is reached, or the disk is full (10077).
const storageFull = new Set([10002, 10023, 10028, 10047, 10077]);

// reportOverhead is room in a report for all but the output.
const reportOverhead = 16 * 1024;

export { Canceled, Lost };

// cancelPoll is how often the runner asks for cancellations of what its handlers work on, in milliseconds.
const cancelPoll = 1000;

// followEvery is how often a runner looks whether its queue has lanes, and a stream of its own, in milliseconds.
const followEvery = 2000;
// settingsTimeout is how long a runner waits for the record of its queue, in milliseconds.
const settingsTimeout = 5000;
// soonest and latest are the shortest and the longest pause, in milliseconds, between two requests that the server answers
// at once, while there is nothing.
const soonest = 50, latest = 500;
// startTimeout is how long a runner that starts waits, in milliseconds, for the stream and the consumer that the executor makes.
const startTimeout = 30_000;
// startErrors has the names of the errors that may pass meanwhile: there is no stream, NATS does not answer yet, or the runner may
// not make the consumer itself.
const startErrors = new Set(["JetStreamApiError", "StreamNotFoundError", "ConsumerNotFoundError", "NoResponders", "JetStreamNotEnabled", "RequestError", "TimeoutError", "PermissionViolationError"]);
// pullErrors is how many requests in a row may fail until a consumer is looked up again.
const pullErrors = 5;
// laneHold is how long a place is kept for the answer to such a request, in milliseconds.
const laneHold = 50;
// pullExpiryShared is pullExpiry while others could use the places that a request keeps: lanes, or the other stream.
const pullExpiryShared = 1000;

// returnDelay is the delay, in milliseconds, before a message that a stopping runner has not begun is redelivered. Without it, the
// server could give it to the same runner again, whose request has not ended yet, until no attempt is left.
const returnDelay = 100;
// laneFailure is logged when the consumer of a lane cannot be used.
const laneFailure = "a lane of ordered executions cannot be taken";
// lostLease is the reason why an execution with an order key is given up.
const lostLease = "another member may have the execution: the runner was frozen or cut off, or NATS delivered the message again";

/** Places are the places for handlers. Who waits first gets one first. */
class Places {
  /** @param {number} free */
  constructor(free) {
    this.free = free;
    /** @type {((taken: boolean) => void)[]} */
    this.waiting = [];
  }

  tryTake() {
    if (this.free === 0 || this.waiting.length > 0) {
      return false;
    }
    this.free--;
    return true;
  }

  /**
   * take waits for a place. It returns false when the signal ends first.
   * @param {AbortSignal} stop
   * @param {boolean} [first] before those who wait already
   * @returns {Promise<boolean>}
   */
  take(stop, first) {
    if (stop.aborted) {
      return Promise.resolve(false);
    }
    if (first && this.free > 0) {
      this.free--;
      return Promise.resolve(true);
    }
    if (this.tryTake()) {
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      const end = () => {
        this.waiting = this.waiting.filter((one) => one !== got);
        resolve(false);
      };
      const got = (/** @type {boolean} */ taken) => {
        stop.removeEventListener("abort", end);
        resolve(taken);
      };
      if (first) {
        this.waiting.unshift(got);
      } else {
        this.waiting.push(got);
      }
      stop.addEventListener("abort", end, { once: true });
    });
  }

  leave() {
    const next = this.waiting.shift();
    if (next) {
      next(true);
    } else {
      this.free++;
    }
  }
}

/**
 * A Source is the group's consumer in one of the two streams.
 * @typedef {{ own: boolean, over: boolean, consumer: import("@nats-io/jetstream").Consumer, o: Options }} Source o has the consumer's ack wait
 */

// Permanent is an error that is not tried again.
export class Permanent extends Error {}

// Unanswered means that nothing answers a request for messages: the server restarts, or the consumer has no leader or is gone.
class Unanswered extends Error {}

// ConnectionClosed means that the connection to NATS is closed for good. Its cause is the connection's error, if it had one.
export class ConnectionClosed extends Error {}

const defaults = {
  group: "",
  queue: "default",
  concurrency: 10,
  attempts: 5,
  backoff: (/** @type {number} */ attempt) => Math.min(1000 * 2 ** (attempt - 1), 60_000),
  timeout: 5 * 60_000, // of one attempt
  ackWait: 15_000, // how long until the work of a runner that died is given to another; one of a consumer that exists holds instead
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
 * An Event is one attempt and its result, a report that waits until NATS has room, or the error of a function among the options.
 * @typedef {{ result: string, attempt?: number, executionId?: string, ms?: number, error?: string, option?: string }} Event
 */

/**
 * run runs executions until stop says so; then it lets handlers finish. An execution can run
 * twice: let what the handler does depend on its executionId. Nothing that a handler returns or throws ends
 * the process, and neither does an error thrown by a function among the options: it is logged. Out of reach
 * is what a handler starts and does not await: timers, listeners of its signal, promises left alone.
 * When the connection is closed for good, nothing can be reported any more: run aborts the handlers' signals and throws
 * ConnectionClosed. When the group's consumer was deleted, run lets handlers finish, too, and throws an error, as it does when it is
 * stopped while NATS is away. Let the program end with it, and be started anew.
 * @param {NatsConnection} nc
 * @param {Partial<Options> & { group: string }} options
 * @param {Handler} handler
 * @param {AbortSignal} stop
 */
export async function run(nc, options, handler, stop) {
  const asked = withDefaults(options);
  const js = jetstream(nc);
  const manager = await jetstreamManager(nc, { checkAPI: false }); // awaitConsumer waits until JetStream answers
  const consumer = await awaitConsumer(nc, js, manager, asked, stop);
  if (!consumer) {
    return;
  }
  let group = await consumer.info(true);
  let created = streamCreated(manager, group.stream_name);
  const o = withAckWait(asked, group);
  const working = new AbortController(); // ends when handlers may not go on
  /** @type {Set<Promise<void>>} */
  const underway = new Set();
  /** @type {Map<string, Delivery>} */
  const deliveries = new Map();
  const cancellations = new Cancellations(nc);
  const canceling = setInterval(async () => {
    if (deliveries.size > 0) {
      await cancellations.read().catch(() => {}); // asked again a second later
      for (const [key, { cancel }] of deliveries) {
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
  /** @type {Set<import("@nats-io/jetstream").ConsumerMessages>} */
  const requests = new Set();
  const once = o.attempts === 1;
  const closeRequests = () => requests.forEach((messages) => void messages.close());
  // end ends the requests at once. A runner with one attempt instead lets them expire: see onceExpiry.
  const end = () => {
    if (!once) {
      requests.forEach(drain);
    }
  };
  stop.addEventListener("abort", end, { once: true });
  const over = new AbortController(); // stop, or the connection is closed
  const silent = new AbortController(); // over, and NATS has not answered the last requests
  /** @type {NodeJS.Timeout[]} */
  const timers = []; // that run from the end on
  over.signal.addEventListener("abort", () => {
    timers.push(setTimeout(() => working.abort(), o.drainTimeout), setTimeout(() => {
      closeRequests();
      silent.abort();
    }, onceExpiry + onceSlack));
  }, { once: true });
  stop.addEventListener("abort", () => over.abort(), { once: true });
  setMaxListeners(0, over.signal, silent.signal, working.signal); // one listener per lane and per handler; Node.js warns of more than ten
  if (stop.aborted) {
    over.abort();
  }
  const closed = nc.closed().then((cause) => {
    working.abort();
    over.abort();
    closeRequests();
    return new ConnectionClosed("the connection to NATS is closed for good", { cause });
  });
  const places = new Places(o.concurrency);
  let laned = 0; // how many lanes are taken
  /** @type {Error | undefined} */
  let deleted; // the group's consumer was deleted
  /** @type {Source | undefined} */
  let own; // undefined: nothing is taken from the queue's own stream
  let takingOwn = false; // takeOwn runs: own is set once NATS has answered
  let ownActive = false; // the last execution came from there
  let ownIsNewer = false; // by the last reading of the queue's record
  let mayReadSettings = false; // the queue's record has been read, so the account has the permission
  const following = follow();
  await take({ own: false, over: false, consumer, o });

  /** follow takes the queue's lanes, and its own stream, as soon as it has them. */
  async function follow() {
    const taking = [];
    while (!over.signal.aborted) {
      const settings = await readSettings(nc, o.queue);
      if (settings.readable) {
        mayReadSettings = true;
        ownIsNewer = settings.ownIsNewer;
        if (own && !settings.hasOwn) {
          own.over = true;
        }
        if (!takingOwn && settings.hasOwn) {
          taking.push(takeOwn());
        }
      }
      for (const lanes = settings.readable ? settings.lanes : await countLanes(js, o); laned < lanes; laned++) {
        taking.push(takeLane(laned));
      }
      await idle(followEvery);
    }
    await Promise.all(taking);
  }

  /**
   * idle waits, or until the end.
   * @param {number} ms
   */
  async function idle(ms) {
    await pause(ms, undefined, { signal: over.signal }).catch(() => {});
  }

  /** takeOwn takes executions from the queue's own stream, until it is gone. */
  async function takeOwn() {
    takingOwn = true;
    try {
      const consumer = await ensureConsumer(nc, js, manager, o, { shared: group });
      own = { own: true, over: false, consumer, o: withAckWait(o, await consumer.info(true), o.ackWait) };
      await take(own);
    } catch (failure) {
      if (!(failure instanceof JetStreamApiError) || failure.code !== streamNotFound) {
        log(o, { result: "the queue's own stream cannot be taken", error: reason(failure) });
      }
    } finally {
      own = undefined;
      takingOwn = false;
    }
  }

  /**
   * take takes executions without an order key from a source.
   * @param {Source} source
   */
  async function take(source) {
    let wait = soonest;
    let failed = 0;
    while (!source.over && await places.take(over.signal)) {
      // No more than there are places: what waits for one longer than ackWait is run by another member, too.
      let taken = 1;
      const sharing = laned > 0 || own !== undefined;
      // A request that waits keeps places, so it waits where the last execution came from.
      const waits = own === undefined || ownActive === source.own;
      const most = !waits ? 1 : sharing ? Math.ceil(o.concurrency / 2) : o.concurrency;
      while (taken < most && places.tryTake()) {
        taken++;
      }
      let began = 0;
      let failing = false;
      let lost = false;
      const begin = (/** @type {Message} */ msg) => {
        const last = msg.info.deliveryCount >= o.attempts;
        if (stop.aborted && !last) {
          msg.nak(returnDelay); // fetched, not begun: for another member
          return;
        }
        ownActive = source.own;
        // After a reconnect, the client repeats its request, and more messages may come than places were taken.
        if (began === taken && places.tryTake()) {
          taken++;
        }
        const placed = began < taken;
        if (placed) {
          began++;
        } else if (adopt(deliveries, msg)) {
          return;
        } else if (!last) {
          msg.nak(returnDelay);
          return;
        }
        const one = runOne(msg, source.o, placed).finally(() => underway.delete(one));
        underway.add(one);
      };
      try {
        if (waits) {
          const messages = await source.consumer.fetch({ max_messages: taken, expires: sharing ? pullExpiryShared : once ? onceExpiry : pullExpiry });
          requests.add(messages);
          if (stop.aborted) {
            end();
          }
          try {
            for await (const msg of messages) {
              begin(msg);
            }
          } finally {
            requests.delete(messages);
          }
        } else {
          const msg = await nextMessage(nc, streamName(o.queue, source.own), consumerName(o.queue, o.group), () => {}, silent.signal);
          if (msg) {
            begin(msg);
          }
        }
        failed = 0;
      } catch (failure) {
        failing = true;
        const gone = /consumer (deleted|not found)/i.test(reason(failure)); // the server says so to requests that wait
        lost = (++failed >= pullErrors || gone) && !nc.isClosed();
      } finally {
        for (; taken > began; taken--) {
          places.leave();
        }
      }
      if (lost && source.own) {
        source.over = true;
      } else if (lost) {
        await findAgain(source).catch(() => {}); // tried again after the next request
      }
      if (failing && !nc.isClosed() && !deleted) {
        await pause(250); // the server restarts, or has no leader
      }
      if (began > 0) {
        wait = soonest;
      } else if (!waits) {
        await idle(wait);
        wait = Math.min(wait * 1.5, latest);
      }
    }
  }

  /**
   * findAgain makes the group's consumer in the shared stream anew if NATS has lost its storage. In the known stream, a new consumer
   * would deliver executions again that have ended: if it was deleted there, the runner ends. Where the runner may not read the
   * stream, as in an account of its own, an executor makes the consumer.
   * @param {Source} source
   */
  async function findAgain(source) {
    const before = await created;
    if (before === undefined) {
      return;
    }
    const now = await streamCreated(manager, group.stream_name);
    if (now === undefined) {
      return;
    }
    if (now !== before) {
      source.consumer = await ensureConsumer(nc, js, manager, o);
      group = await source.consumer.info(true);
      source.o = withAckWait(o, group);
      created = Promise.resolve(now);
      return;
    }
    try {
      await manager.consumers.info(group.stream_name, group.name);
    } catch (failure) {
      if (failure instanceof JetStreamApiError && failure.code === consumerNotFound) {
        deleted = new Error(`the consumer ${group.name} of ${group.stream_name} was deleted`, { cause: failure });
        over.abort();
        end();
      }
    }
  }

  /**
   * runOne runs an execution without an order key, and leaves its place. Without a place, it waits for one.
   * @param {Message} msg
   * @param {Options} options with the ack wait of its consumer
   * @param {boolean} placed
   */
  async function runOne(msg, options, placed) {
    try {
      placed ||= await waitForPlace(msg, options.ackWait);
      if (placed) {
        await attempt(nc, js, options, handler, working.signal, deliveries, cancellations, msg);
      } else {
        msg.nak(returnDelay);
      }
    } catch (failure) { // the connection was closed
      log(o, { result: "not reported", error: reason(failure) });
    } finally {
      if (placed) {
        places.leave();
      }
    }
  }

  /**
   * waitForPlace waits for a place, with heartbeats, before all others. It returns false if handlers may not go on.
   * @param {Message} msg
   * @param {number} ackWait in milliseconds
   */
  async function waitForPlace(msg, ackWait) {
    const beat = () => unlessClosed(() => msg.working());
    beat();
    const beating = setInterval(beat, ackWait / 4);
    try {
      return await places.take(working.signal, true);
    } finally {
      clearInterval(beating);
    }
  }

  /**
   * takeLane takes the executions of one lane, one after the other. At any time, all of a lane in one of the two streams
   * are older than all in the other; so the newer stream is asked only when the group is done with the older one. Which
   * one is newer, the queue's record says; it is read again after a message has come.
   * @param {number} lane
   */
  async function takeLane(lane) {
    const found = { shared: false, own: /** @type {Source | undefined} */ (undefined) };
    const optionsAt = { shared: o, own: o }; // the options with the ack waits of the lane's consumers, where they are shorter
    // held are messages that came when their stream was the newer one and the group was not done with the older one. While the
    // queue moves, there can be one of each stream: which of them is older, mayBegin decides anew each time.
    /** @type {Map<boolean, Held>} by whether the stream is the queue's own */
    const held = new Map();
    /** @type {Map<boolean, number>} requests in a row that nothing has answered, by whether the stream is the queue's own */
    const unanswered = new Map();
    let wait = soonest;
    while (!over.signal.aborted) {
      try {
        if (!found.shared) {
          const consumer = await ensureConsumer(nc, js, manager, o, { lane, main: group });
          optionsAt.shared = withAckWait(o, await consumer.info(true), o.ackWait);
          found.shared = true;
        }
        if (own && found.own !== own) {
          const source = own;
          const consumer = await ensureConsumer(nc, js, manager, o, { lane, main: await source.consumer.info(true), shared: group });
          optionsAt.own = withAckWait(o, await consumer.info(true), o.ackWait);
          found.own = source;
        }
        if (await takeNext()) {
          wait = soonest;
        } else {
          await idle(wait);
          wait = Math.min(wait * 1.5, latest);
        }
      } catch (failure) {
        if (failure instanceof Unanswered) {
          await idle(latest);
          continue;
        }
        log(o, { result: laneFailure, error: reason(failure) });
        await idle(followEvery);
      }
    }
    await finishHeld();

    /**
     * finishHeld runs what is held and is a last attempt, as soon as it may begin: handed back, it would fail without having
     * run. It hands back the rest, and what may not begin while handlers may go on.
     */
    async function finishHeld() {
      const giveBack = async (/** @type {boolean} */ fromOwn, /** @type {Held} */ waiting) => {
        waiting.release();
        held.delete(fromOwn);
        await handBack(manager, waiting.msg, returnDelay);
      };
      for (const [fromOwn, waiting] of [...held]) {
        if (!isLastAttempt(waiting.msg)) {
          await giveBack(fromOwn, waiting);
        }
      }
      while (!working.signal.aborted && held.size > 0) {
        let began = false;
        for (const [fromOwn, waiting] of [...held]) {
          began = await takeHeld(waiting, fromOwn, working.signal).catch(() => false) || began;
        }
        if (!began) {
          await pause(latest, undefined, { signal: working.signal }).catch(() => {});
        }
      }
      for (const [fromOwn, waiting] of [...held]) {
        await giveBack(fromOwn, waiting);
      }
    }

    /** @param {boolean} fromOwn */
    function optionsOf(fromOwn) {
      return fromOwn ? optionsAt.own : optionsAt.shared;
    }

    /** @param {LaneMessage} msg */
    function isLastAttempt(msg) {
      return msg.info.deliveryCount >= o.attempts;
    }

    /** takeNext takes the next execution of the lane. It returns false if there is none now. */
    async function takeNext() {
      if (!own && held.size === 0) {
        return takeFrom(false);
      }
      const older = !ownIsNewer;
      if ((!older || own || held.has(older)) && await takeFrom(older)) {
        return true;
      }
      if (held.has(!older)) {
        return takeFrom(!older);
      }
      return await drained(older) && (older || own !== undefined) && takeFrom(!older);
    }

    /**
     * takeFrom takes the next execution of one stream: the one that is held, if there is one.
     * @param {boolean} fromOwn
     */
    async function takeFrom(fromOwn) {
      const waiting = held.get(fromOwn);
      if (waiting) {
        return takeHeld(waiting, fromOwn, over.signal);
      }
      if (!await places.take(over.signal)) {
        return false;
      }
      let placed = true;
      const leave = () => {
        if (placed) {
          placed = false;
          places.leave();
        }
      };
      try {
        const msg = await ask(fromOwn, leave);
        if (!msg) {
          return false;
        }
        placed ||= await placeFor(msg, optionsOf(fromOwn).ackWait);
        if (!placed || (stop.aborted && !isLastAttempt(msg))) {
          await handBack(manager, msg, returnDelay);
          return false;
        }
        // If that cannot be found out now, the message is kept, too: dropped, it would be out until the ack wait is over.
        if (!await mayBegin(fromOwn).catch(() => false)) {
          held.set(fromOwn, new Held(msg, optionsOf(fromOwn).ackWait));
          return true;
        }
        await begin(msg, optionsOf(fromOwn));
        return true;
      } finally {
        leave();
      }
    }

    /**
     * ask asks for the next message of one stream. After some requests in a row that nothing has answered, the lane's consumer is
     * looked up again, and made if it was deleted.
     * @param {boolean} fromOwn
     * @param {() => void} leave
     */
    async function ask(fromOwn, leave) {
      try {
        const msg = await nextMessage(nc, streamName(o.queue, fromOwn), laneConsumerName(o.queue, o.group, lane), leave, silent.signal);
        unanswered.delete(fromOwn);
        return msg;
      } catch (failure) {
        const count = (unanswered.get(fromOwn) ?? 0) + 1;
        unanswered.set(fromOwn, count);
        if (count >= pullErrors) {
          unanswered.delete(fromOwn);
          if (fromOwn) {
            found.own = undefined;
          } else {
            found.shared = false;
          }
        }
        throw failure;
      }
    }

    /**
     * placeFor takes a place for a message that has come after its place was left. It is the first to get one: handed back, it
     * would be an attempt. A last attempt would fail without having run, so it waits, with heartbeats, until there is a place.
     * @param {LaneMessage} msg
     * @param {number} ackWait in milliseconds
     */
    async function placeFor(msg, ackWait) {
      if (!isLastAttempt(msg)) {
        return places.take(AbortSignal.timeout(Math.ceil(ackWait / 4)), true);
      }
      return waitForPlace(msg, ackWait);
    }

    /**
     * @param {Held} waiting
     * @param {boolean} fromOwn
     * @param {AbortSignal} until
     */
    async function takeHeld(waiting, fromOwn, until) {
      if (!await mayBegin(fromOwn) || !await places.take(until)) {
        return false;
      }
      waiting.release();
      held.delete(fromOwn);
      try {
        await begin(waiting.msg, optionsOf(fromOwn));
      } finally {
        places.leave();
      }
      return true;
    }

    /**
     * @param {LaneMessage} msg
     * @param {Options} options with the ack wait of its consumer
     */
    async function begin(msg, options) {
      const one = attempt(nc, js, options, handler, working.signal, deliveries, cancellations, msg, new Lease(nc, manager, options.ackWait))
        .catch((failure) => log(o, { result: failure instanceof LeaseNotTaken ? laneFailure : "not reported", error: reason(failure) }));
      underway.add(one);
      await one;
      underway.delete(one);
    }

    /**
     * mayBegin reports whether an execution that has come from a stream may begin: it is the older one, or the group is
     * done with the lane in the other. It reads the queue's record for each execution, because the queue may have moved
     * to its own stream and back since follow read it. Where the account may not read it, there is no own stream. While
     * it cannot be read for another reason, nothing may begin.
     * @param {boolean} fromOwn
     */
    async function mayBegin(fromOwn) {
      const settings = await readSettings(nc, o.queue, optionsOf(fromOwn).ackWait / 4);
      if (!settings.readable) {
        return settings.unanswered && !mayReadSettings && !found.own;
      }
      mayReadSettings = true;
      ownIsNewer = settings.ownIsNewer;
      if (!settings.hasOwn) {
        return true;
      }
      const looks = over.signal.aborted ? found.own !== undefined : own !== undefined && found.own === own;
      if (!ownIsNewer && !fromOwn && !looks) {
        return false; // older executions wait where this lane does not look yet
      }
      return ownIsNewer !== fromOwn || drained(!fromOwn);
    }

    /**
     * drained reports whether the group is done with the lane in a stream.
     * @param {boolean} ofOwn
     */
    async function drained(ofOwn) {
      try {
        const info = await manager.consumers.info(streamName(o.queue, ofOwn), laneConsumerName(o.queue, o.group, lane));
        return info.num_pending === 0 && info.num_ack_pending === 0;
      } catch (failure) {
        if (failure instanceof JetStreamApiError && (failure.code === consumerNotFound || failure.code === streamNotFound)) {
          return true;
        }
        throw failure;
      }
    }
  }

  await following;
  await Promise.all(underway);
  timers.forEach(clearTimeout);
  clearInterval(present);
  clearInterval(canceling);
  cancellations.close();
  if (nc.isClosed()) {
    throw await closed;
  }
  nc.publish(presence, "leaves");
  // What was acknowledged last must reach the server.
  if (!await Promise.race([nc.flush().then(() => true), pause(flushTimeout, false, { ref: false })])) {
    throw new Error(`NATS has not answered for ${flushTimeout} ms: what was acknowledged last may run again`);
  }
  if (deleted) {
    throw deleted;
  }
}

/**
 * streamCreated returns when a stream was created, or undefined if that cannot be read.
 * @param {import("@nats-io/jetstream").JetStreamManager} manager
 * @param {string} stream
 */
async function streamCreated(manager, stream) {
  try {
    return (await manager.streams.info(stream)).created;
  } catch {
    return undefined;
  }
}

/**
 * countLanes returns how many lanes the queue has, for a runner with an account of its own that cannot read the queue's
 * record: it counts the consumers that the executor has made for its group.
 * @param {JetStream} js
 * @param {Options} o
 */
async function countLanes(js, o) {
  for (let lane = 0; ; lane++) {
    try {
      await js.consumers.get(streamName(o.queue, false), laneConsumerName(o.queue, o.group, lane));
    } catch {
      return lane;
    }
  }
}

/**
 * nextMessage asks for the next message of a consumer, which the server has now or not. It calls leave when the server does
 * not answer at once, as while a message of a lane is out. It returns null if there is no message within pullExpiryShared, or once
 * silent is aborted, and throws Unanswered if there is nobody to answer.
 * @param {NatsConnection} nc
 * @param {string} stream
 * @param {string} consumer
 * @param {() => void} leave
 * @param {AbortSignal} silent
 * @returns {Promise<LaneMessage | null>}
 */
async function nextMessage(nc, stream, consumer, leave, silent) {
  const { inboxPrefix } = /** @type {{ options?: { inboxPrefix?: string } }} */ (nc).options ?? {};
  const answers = nc.subscribe(createInbox(inboxPrefix), { max: 1 });
  const held = setTimeout(leave, laneHold);
  // Draining ends the request at the server, but still takes a message that is on its way, or that has waited in the socket
  // while a handler blocked the event loop. If it were dropped, it would be out until the ack wait is over.
  const over = setTimeout(() => answers.drain().catch(() => {}), pullExpiryShared);
  try {
    nc.publish(`$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`, JSON.stringify({ batch: 1, no_wait: true }), {
      reply: answers.getSubject(),
    });
    const answer = await unless(silent, first(answers));
    const code = answer?.headers?.code;
    if (code === noResponders) {
      throw new Unanswered(`nothing answers for the consumer ${consumer} of ${stream}`);
    }
    return answer && !code ? new LaneMessage(answer) : null;
  } finally {
    clearTimeout(held);
    clearTimeout(over);
  }
}

/**
 * drain ends a request for messages at the server, but still takes the messages that are on their way, or that have waited in the
 * socket while a handler blocked the event loop: closing the request would drop them. The library drains the subscription, but offers
 * no method for it.
 * @param {import("@nats-io/jetstream").ConsumerMessages} messages
 */
function drain(messages) {
  const { sub } = /** @type {{ sub?: import("@nats-io/transport-node").Subscription }} */ (messages);
  if (sub) {
    sub.drain().catch(() => {}); // the connection is closed, which ends the request, too
  } else {
    void messages.close();
  }
}

/**
 * first returns the first message of a subscription, or undefined if it ends before.
 * @param {import("@nats-io/transport-node").Subscription} messages
 */
async function first(messages) {
  for await (const msg of messages) {
    return msg;
  }
}

/**
 * unless returns what a promise brings, or undefined once a signal is aborted.
 * @template T
 * @param {AbortSignal} signal
 * @param {Promise<T>} promise
 * @returns {Promise<T | undefined>}
 */
function unless(signal, promise) {
  return new Promise((resolve, reject) => {
    const end = () => resolve(undefined);
    signal.addEventListener("abort", end, { once: true });
    if (signal.aborted) {
      end();
    }
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", end));
  });
}

// longestTimer is the longest time of a timer of Node.js, in milliseconds. It lets a longer one end at once.
const longestTimer = 2 ** 31 - 1;

/**
 * withDefaults returns the options, with the defaults of those that are missing or undefined. It throws a TypeError if one is not valid.
 * @param {Partial<Options>} options
 * @returns {Options}
 */
function withDefaults(options) {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  const o = { ...defaults, ...Object.fromEntries(given) };
  /** @type {(name: keyof Options, least: number, most: number) => void} */
  const check = (name, least, most) => {
    const value = o[name];
    if (typeof value !== "number" || !(value >= least && value <= most)) {
      throw new TypeError(`the option ${name} must be a number from ${least} to ${most}, not ${String(value)}`);
    }
  };
  for (const name of /** @type {const} */ (["queue", "group"])) {
    if (!validName.test(o[name])) {
      throw new TypeError(`the option ${name} must match ${validName.source}, and ${JSON.stringify(o[name])} does not`);
    }
  }
  for (const name of /** @type {const} */ (["concurrency", "attempts"])) {
    check(name, 1, longestTimer);
    if (!Number.isInteger(o[name])) {
      throw new TypeError(`the option ${name} must be a whole number, not ${o[name]}`);
    }
  }
  check("timeout", 1, longestTimer);
  check("ackWait", 1, longestTimer);
  check("drainTimeout", 0, longestTimer);
  check("reportRunningAfter", -longestTimer, longestTimer);
  return o;
}

/**
 * awaitConsumer returns the group's consumer, as ensureConsumer does, at the start: it waits up to startTimeout for the executor, which makes
 * the stream, and the consumer where a runner may not make it. It returns undefined if it is stopped meanwhile.
 * @param {NatsConnection} nc
 * @param {JetStream} js
 * @param {import("@nats-io/jetstream").JetStreamManager} manager
 * @param {Options} o
 * @param {AbortSignal} stop
 */
async function awaitConsumer(nc, js, manager, o, stop) {
  const end = Date.now() + startTimeout;
  for (let wait = soonest; ; wait = Math.min(2 * wait, latest)) {
    try {
      return await ensureConsumer(nc, js, manager, o);
    } catch (err) {
      if (!(err instanceof Error) || !startErrors.has(err.name)) {
        throw err;
      }
      if (stop.aborted) {
        return undefined;
      }
      if (Date.now() >= end) {
        throw new Error(`${err.message}; the executor makes the stream, and, with --runner-groups=${o.queue}/${o.group}, the consumer of a runner that may not make it`, { cause: err });
      }
    }
    await unless(stop, pause(wait));
  }
}

/**
 * ensureConsumer finds the group's durable consumer, or that of a lane, or makes it. A lane begins where the group's
 * consumer began, main. With shared, the group's consumer in the shared stream, it is a consumer in the queue's own stream.
 * @param {NatsConnection} nc
 * @param {JetStream} js
 * @param {import("@nats-io/jetstream").JetStreamManager} manager
 * @param {Options} o
 * @param {{ lane?: number, main?: import("@nats-io/jetstream").ConsumerInfo, shared?: import("@nats-io/jetstream").ConsumerInfo }} [of]
 */
async function ensureConsumer(nc, js, manager, o, { lane, main, shared } = {}) {
  const own = shared !== undefined;
  const stream = streamName(o.queue, own);
  const name = lane === undefined ? consumerName(o.queue, o.group) : laneConsumerName(o.queue, o.group, lane);
  const subject = lane === undefined ? startSubject(o.queue, own) : laneSubject(o.queue, lane, own);
  const ordered = lane !== undefined && { max_ack_pending: 1 };
  try {
    const consumer = await js.consumers.get(stream, name);
    if ((await consumer.info(true)).config.filter_subject !== subject) {
      throw new Error(`the consumer ${name} has other subjects than ${subject}: choose another name of the group`);
    }
    return consumer;
  } catch (err) {
    if (!(err instanceof JetStreamApiError) || err.code !== consumerNotFound) {
      throw err;
    }
  }
  let settings = await readSettings(nc, o.queue);
  await manager.consumers.add(stream, {
    durable_name: name,
    filter_subject: subject,
    ack_policy: AckPolicy.Explicit,
    ack_wait: (main ?? shared)?.config.ack_wait ?? nanos(o.ackWait),
    ...(main ? begin(main) : beginOwn(shared)),
    ...consumerSettings(settings, o.group),
    ...ordered,
  });
  // What an operator sets meanwhile holds from the beginning, too: executors see the consumer, or the kit sees the settings.
  for (;;) {
    const now = await readSettings(nc, o.queue);
    if (now.revision === settings.revision) {
      break;
    }
    settings = now;
    // An update without pause_until ends a pause.
    await manager.consumers.update(stream, name, { pause_until: undefined, ...consumerSettings(settings, o.group), ...ordered });
  }
  return js.consumers.get(stream, name);
}

/**
 * withAckWait returns options with the ack wait of a consumer, which may have been made with another one.
 * @param {Options} o
 * @param {import("@nats-io/jetstream").ConsumerInfo} info
 * @param {number} [most] the longest, in milliseconds
 */
function withAckWait(o, info, most = Infinity) {
  return { ...o, ackWait: Math.min(millis(info.config.ack_wait ?? nanos(o.ackWait)), most) };
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
 * beginOwn returns where a group's consumer begins in the queue's own stream: with the oldest message, unless the group
 * itself began later.
 * @param {import("@nats-io/jetstream").ConsumerInfo} [shared] the group's consumer in the shared stream
 */
function beginOwn(shared) {
  return shared?.config.deliver_policy === DeliverPolicy.StartSequence ? { deliver_policy: DeliverPolicy.All } : begin(shared);
}

/**
 * readSettings reads what an operator has set of a queue. Where that cannot be read, the executors see to it. unanswered means
 * that nothing answers: the account lacks the permission, or the servers of the record are not there.
 * @param {NatsConnection} nc
 * @param {string} queue
 * @param {number} [most] the longest wait, in milliseconds
 */
async function readSettings(nc, queue, most = settingsTimeout) {
  const none = new Uint8Array();
  try {
    const answer = await nc.request(settingsRequest(queue), undefined, { timeout: Math.min(settingsTimeout, most) });
    const status = answer.headers?.code ?? 0;
    if (status !== 0 && status !== 404) {
      throw new Error(`status ${status}`);
    }
    const deleted = status === 404 || Boolean(answer.headers?.get("KV-Operation"));
    return { readable: true, unanswered: false, revision: Number(answer.headers?.get("Nats-Sequence") ?? 0), ...decodeSettings(deleted ? none : answer.data) };
  } catch (failure) {
    return { readable: false, unanswered: /no responders/i.test(reason(failure)), revision: 0, ...decodeSettings(none) };
  }
}

/**
 * attempt runs one message to an acknowledgement. It throws when the connection is closed, and LeaseNotTaken.
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
    start = decodeStart(msg.data, msg.subject);
  } catch (failure) {
    // No attempt would make it better. The executor puts it on the list of dead letters.
    const why = reason(failure);
    note("unreadable", why);
    msg.term(why);
    return;
  }
  if (adopt(deliveries, msg, start)) {
    return;
  }
  const delivery = { msg, lease };
  const key = deliveryKey(msg, start);
  deliveries.set(key, delivery);
  try {
    await perform(nc, js, o, handler, working, start, delivery, cancellations, note);
  } finally {
    deliveries.delete(key);
  }
}

/**
 * @param {Message} msg
 * @param {Start} start
 */
function deliveryKey(msg, start) {
  return `${msg.seq} ${start.executionId}`;
}

/**
 * adopt makes a message the last delivery of its execution, if that is worked on, and reports whether it is. A NATS server that restarts
 * can forget that it is worked on, and deliver it again: to here, too.
 * @param {Map<string, Delivery>} deliveries of what is worked on
 * @param {Message} msg
 * @param {Start} [start] what the message holds; it is read if missing
 */
function adopt(deliveries, msg, start) {
  try {
    start ??= decodeStart(msg.data, msg.subject);
  } catch {
    return false; // the attempt says why
  }
  const known = deliveries.get(deliveryKey(msg, start));
  if (known) {
    known.msg = msg;
  }
  return known !== undefined;
}

/**
 * perform runs an execution, and reports it. It throws when the connection is closed, and LeaseNotTaken.
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
  /** @type {import("./contract.js").LastReport | undefined} */
  let last; // known of an execution with an order key
  /** @type {(state: ExecutionState, what: { startedAt?: number, output?: string, error?: string }) => Promise<void>} */
  const finish = async (state, what) => {
    const at = Date.now();
    const make = () => progress(start, headers, state, { at, ...what, attempt: Math.min(count, o.attempts), group: o.group, last });
    let report = make();
    let refusals = 0;
    // Acknowledged only once it is stored: better twice than never. One that comes twice does no
    // harm, so it is sent again for as long as the acknowledgement may take: a stream that has no
    // leader, or is just being made, is there a moment later. While the storage of NATS is full, ackWait begins anew
    // with each refusal, until the drain timeout has passed, and a warning is logged each ackWait: another attempt could not be
    // reported either. After that it is not given up at once: the stream's next leader may have room.
    let until = Date.now() + o.ackWait;
    let warnAt = 0;
    for (let stored = false; !stored;) {
      try {
        await js.publish(report.subject, report.data, { headers: report.headers, timeout: Math.max(o.ackWait / 3, 100) });
        stored = true;
      } catch (failure) {
        if (last && isRefused(failure)) {
          refusals++;
          try {
            last = await nextReport(nc, start, o.group, refusals);
            report = make();
            stored = last?.ended ?? false; // an earlier try was stored, or another member has reported
            continue;
          } catch {
            // There is no answer: this report is sent again, and refused again.
          }
        }
        if (failure instanceof JetStreamApiError && storageFull.has(failure.code) && !working.aborted) {
          until = Date.now() + o.ackWait;
          if (Date.now() >= warnAt) {
            warnAt = until;
            note("the report cannot be stored yet", reason(failure));
          }
        }
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
  const { lease } = delivery;
  const beat = () => void (lease ? lease.holds() && delivery.msg instanceof LaneMessage && lease.renew(delivery.msg) : delivery.msg.working());
  let canceled;
  do { // again, if the answers took so long that little of the lease is left
    if (lease && !await lease.take(/** @type {{ msg: LaneMessage }} */ (delivery), working)) {
      return note("handed back", lostLease);
    }
    const beating = setInterval(() => unlessClosed(beat), o.ackWait / 3); // the answers may take longer than the ack wait
    try {
      last = lease && await readLastReport(nc, start, o.group, working);
      if (last?.ended) {
        return void delivery.msg.ack();
      }
      canceled = count <= o.attempts && await cancellations.has(start.executionId, working);
    } finally {
      clearInterval(beating);
    }
  } while (lease && !canceled && !lease.lasts());
  if (count > o.attempts) {
    return finish(ExecutionState.FAILED, { error: `no runner finished it in ${o.attempts} attempts: each died, was cut off, or did not return in time` });
  }
  if (canceled) {
    return finish(ExecutionState.CANCELED, { error: "the execution is canceled" });
  }
  if (working.aborted) { // perhaps before it was known whether the execution is canceled
    note("handed back", "the runner stops");
    return void (holds() && delivery.msg.nak());
  }
  const cancel = delivery.cancel = new AbortController();
  const startedAt = Date.now();
  // A quick one is reported once, when it has ended. If this report gets lost, the final one says more.
  const reportRunning = () => {
    const running = progress(start, headers, ExecutionState.RUNNING, { at: startedAt, attempt: count, group: o.group, last });
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
  const second = lease && setTimeout(() => unlessClosed(beat), secondHeartbeat);
  const watch = lease && setInterval(() => lease.holds() || cancel.abort(new Lost(lostLease)), o.ackWait / 10);
  /** @type {{ error: string, permanent: boolean } | undefined} */
  let failure;
  let output;
  try {
    output = await call(handler, { ...start, attempt: count }, o.timeout, working, cancel.signal);
    const size = Buffer.byteLength(output ?? "");
    const most = (nc.info?.max_payload ?? 1024 * 1024) - reportOverhead;
    if (size > most) { // the NATS server would take no report of it, however often it is tried
      throw new Permanent(`the output has ${size} bytes, but a report takes at most ${most}: store it elsewhere and return a reference`);
    }
  } catch (thrown) {
    failure = { error: reason(thrown), permanent: isPermanent(thrown) };
  } finally {
    clearInterval(alive);
    clearTimeout(second);
    clearInterval(watch);
    clearTimeout(slow);
  }
  if (!holds()) {
    return note("handed back", failure?.error ?? "another member may have it");
  }
  if (!failure) {
    return finish(ExecutionState.SUCCEEDED, { startedAt, output });
  }
  if (cancel.signal.aborted) {
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
  // The server reads the delay as a whole number of nanoseconds, and takes what it cannot read for no delay.
  return Number.isFinite(ms) ? Math.min(Math.max(0, Math.round(Number(ms))), longestTimer) : defaults.backoff(attempt);
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
  const cancel = () => {
    over.abort(canceled.reason);
    if (canceled.reason instanceof Lost) { // another member has the execution: its place is not kept any longer
      late.abort(canceled.reason);
    }
  };
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
