// Executions with an order key are in the lanes of their queue. A group has one consumer for each lane, of which the
// server hands out one message at a time, whichever member asks: so the order holds without an agreement among members.
import { setTimeout as pause } from "node:timers/promises";
import { JetStreamApiError } from "@nats-io/jetstream";
import { lastReport, reportStream, whoEnded } from "./contract.js";

// consumerNotFound and streamNotFound are the server's error codes.
export const consumerNotFound = 10014, streamNotFound = 10059;
const wrongLastSequence = 10071, wrongLastSequenceInProcess = 10164;
const askTimeout = 2000; // of one question, in milliseconds
const tries = 20; // requests in a row without a responder, before reports that were never read count as not readable

// Lost is the reason with which a handler's signal is aborted when another member of the group may have its execution: the
// server has confirmed no heartbeat for four fifths of the ack wait, or it has delivered the message again. What the handler
// returns is ignored.
export class Lost extends Error {}

// LeaseNotTaken means that the server has not confirmed the first heartbeat for a message of a lane within the ack wait.
export class LeaseNotTaken extends Error {}

// secondHeartbeat is the time from the start of a handler to the second heartbeat, in milliseconds. A leader of a consumer
// confirms a heartbeat before its followers know of it. If the leader stops at that moment, the next one redelivers the message,
// but not within the first 500 ms.
export const secondHeartbeat = 250;

/**
 * Lease is the period in which a handler may work on a message of a lane. The server gives the message to nobody else for an ack
 * wait after a heartbeat; the lease ends a fifth of it earlier, so that the handler has time to stop. The delivery itself begins
 * no lease: a new leader of the consumer does not know its time, and may redeliver the message soon after its election.
 */
export class Lease {
  /**
   * @param {import("@nats-io/transport-node").NatsConnection} nc
   * @param {import("@nats-io/jetstream").JetStreamManager} manager
   * @param {number} ackWait in milliseconds
   */
  constructor(nc, manager, ackWait) {
    this.nc = nc;
    this.manager = manager;
    this.ackWait = ackWait;
    this.until = 0;
    this.lost = false;
  }

  holds() {
    this.lost ||= performance.now() > this.until;
    return !this.lost;
  }

  /** lasts reports whether the lease holds for another half of the ack wait at least. */
  lasts() {
    return this.holds() && this.until - performance.now() >= this.ackWait / 2;
  }

  /**
   * take begins the lease. It returns false if the message has been delivered to another member, or is no longer pending. It
   * asks until there is an answer, and throws LeaseNotTaken when there was none within the ack wait. Then the server delivers the
   * message again, if the consumer still exists.
   * @param {{ msg: LaneMessage }} delivery
   * @param {AbortSignal} working
   */
  async take(delivery, working) {
    const end = performance.now() + this.ackWait;
    while (!working.aborted && !this.nc.isClosed()) {
      try {
        const { until, isLast } = await this.sendHeartbeat(delivery.msg, Math.max(end - performance.now(), 1));
        this.until = until;
        this.lost = !isLast;
        return isLast;
      } catch (failure) {
        if (performance.now() >= end) {
          throw new LeaseNotTaken(`the lease was not confirmed within ${this.ackWait} ms: ${failure}`);
        }
        await pause(100);
      }
    }
    return false;
  }

  /**
   * renew sends a heartbeat. It extends the lease if the heartbeat is confirmed before the lease has ended, and ends it if
   * another member has the message.
   * @param {LaneMessage} msg
   */
  async renew(msg) {
    try {
      const { until, isLast } = await this.sendHeartbeat(msg);
      this.lost ||= !isLast;
      if (this.holds()) {
        this.until = until;
      }
    } catch {
      // The next heartbeat may be answered.
    }
  }

  /**
   * sendHeartbeat sends a heartbeat, waits for its confirmation, and reports whether the consumer has delivered nothing after
   * this message, which is still pending.
   * @param {LaneMessage} msg
   * @param {number} [timeout] in milliseconds
   */
  async sendHeartbeat(msg, timeout = this.ackWait) {
    const sent = performance.now();
    await this.nc.request(msg.reply, "+WPI", { timeout });
    return { until: sent + this.ackWait * 0.8, isLast: await isLastDelivery(this.manager, msg) };
  }
}

/**
 * isLastDelivery reports whether the consumer has delivered nothing after a message, which is still pending.
 * @param {import("@nats-io/jetstream").JetStreamManager} manager
 * @param {LaneMessage} msg
 */
async function isLastDelivery(manager, msg) {
  try {
    const info = await manager.consumers.info(msg.stream, msg.consumer);
    return info.num_ack_pending > 0 && info.delivered.consumer_seq === msg.consumerSeq;
  } catch (failure) {
    if (failure instanceof JetStreamApiError && (failure.code === consumerNotFound || failure.code === streamNotFound)) {
      return false;
    }
    throw failure;
  }
}

/**
 * handBack hands a message of a lane back that has not begun. It does nothing if that is not the consumer's last delivery, or if
 * there is no answer in time: a server accepts the return of an earlier delivery, too, and would give the message to a third
 * member while the second one works on it.
 * @param {import("@nats-io/jetstream").JetStreamManager} manager
 * @param {LaneMessage} msg
 * @param {number} delay in milliseconds
 */
export async function handBack(manager, msg, delay) {
  try {
    if (await Promise.race([isLastDelivery(manager, msg), pause(askTimeout, false, { ref: false })])) {
      msg.nak(delay);
    }
  } catch {
    // There is no answer, or the connection is closed.
  }
}

/** LaneMessage is a message of a lane, with the members of a JsMsg that the kit uses. */
export class LaneMessage {
  /** @param {import("@nats-io/transport-node").Msg} msg */
  constructor(msg) {
    this.msg = msg;
    this.data = msg.data;
    this.subject = msg.subject;
    this.headers = msg.headers;
    this.reply = msg.reply ?? "";
    // $JS.ACK.(domain.account.)stream.consumer.deliveries.sequence.consumer sequence.…
    const tokens = this.reply.split(".");
    const at = tokens.length > 9 ? 6 : 4;
    this.stream = tokens[at - 2] ?? "";
    this.consumer = tokens[at - 1] ?? "";
    this.info = { deliveryCount: Number(tokens[at]) };
    this.seq = Number(tokens[at + 1]);
    this.consumerSeq = Number(tokens[at + 2]);
  }

  ack() {
    this.msg.respond("+ACK");
  }

  /** @param {number} [ms] */
  nak(ms) {
    this.msg.respond(ms === undefined ? "-NAK" : `-NAK ${JSON.stringify({ delay: ms * 1e6 })}`);
  }

  working() {
    this.msg.respond("+WPI");
  }

  /** @param {string} [why] */
  term(why) {
    this.msg.respond(`+TERM ${why ?? ""}`);
  }
}

/**
 * Held is a message of a lane that must not begin yet, because older executions of the lane are in another stream. Its
 * heartbeats go on.
 */
export class Held {
  /**
   * @param {LaneMessage} msg
   * @param {number} ackWait in milliseconds
   */
  constructor(msg, ackWait) {
    this.msg = msg;
    const beat = () => {
      try {
        msg.working();
      } catch {
        // The connection is closed for good, which run notices.
      }
    };
    beat();
    this.beating = setInterval(beat, ackWait / 4);
  }

  release() {
    clearInterval(this.beating);
  }
}

/**
 * readableStreams holds, for each connection, the names of the streams of reports in which a last report has ever been looked up,
 * which proves that the connection's account has the permission to do so. An account may have it for some of the streams only.
 * @type {WeakMap<import("@nats-io/transport-node").NatsConnection, Set<string>>}
 */
const readableStreams = new WeakMap();

/**
 * readLastReport reads what the last report that is stored of an execution says: whether the group has ended it, in particular. A
 * server that has lost what was acknowledged delivers it again, after later ones of its key. It retries until the runner stops,
 * and then returns undefined. It also returns undefined if this connection has never been able to read a report in that stream,
 * and nothing responds to several requests in a row: then the account may not read reports there.
 * @param {import("@nats-io/transport-node").NatsConnection} nc
 * @param {import("./contract.js").Start} start
 * @param {string} group
 * @param {AbortSignal} working
 */
export async function readLastReport(nc, start, group, working) {
  const readable = readableStreams.get(nc) ?? new Set();
  readableStreams.set(nc, readable);
  for (let unanswered = 0; !working.aborted && !nc.isClosed();) {
    try {
      const last = await askLastReport(nc, start, group);
      readable.add(reportStream(start));
      return last;
    } catch (failure) {
      unanswered = failure instanceof Error && /no responders/i.test(failure.message) ? unanswered + 1 : 0;
      if (unanswered > tries && !readable.has(reportStream(start))) {
        return undefined;
      }
    }
    await pause(100);
  }
  return undefined;
}

/**
 * askLastReport asks once what the last report of an execution says.
 * @param {import("@nats-io/transport-node").NatsConnection} nc
 * @param {import("./contract.js").Start} start
 * @param {string} group
 * @returns {Promise<import("./contract.js").LastReport>}
 */
async function askLastReport(nc, start, group) {
  const answer = await nc.request(lastReport(start), undefined, { timeout: askTimeout });
  switch (answer.headers?.code ?? 0) {
    case 404:
      return { sequence: 0, ended: false, endedGroups: [] };
    case 0:
      return { sequence: Number(answer.headers?.get("Nats-Sequence") ?? 0), ...whoEnded(answer.data, group) };
    default:
      throw new Error(`status ${answer.headers?.code}`);
  }
}

const maxRefusals = 10; // of one report, because of another one

/**
 * nextReport returns what the report that comes after a refused one needs. The stream refuses a report of an execution with an
 * order key if another one was stored after the last one that the runner knew: so that each report names all groups that have
 * ended it. It returns undefined when the stream has refused that many that the next one must be stored in any case.
 * @param {import("@nats-io/transport-node").NatsConnection} nc
 * @param {import("./contract.js").Start} start
 * @param {string} group
 * @param {number} refusals
 */
export async function nextReport(nc, start, group, refusals) {
  if (refusals > maxRefusals) {
    return undefined;
  }
  await pause((refusals - 1) * 10); // a replica that lags behind may answer
  return askLastReport(nc, start, group);
}

/**
 * isRefused reports whether a stream has refused a report because of another one.
 * @param {unknown} failure
 */
export function isRefused(failure) {
  return failure instanceof JetStreamApiError && (failure.code === wrongLastSequence || failure.code === wrongLastSequenceInProcess);
}
