// Executions with an order key are in the lanes of their queue. A group has one consumer for each lane, of which the
// server hands out one message at a time, whichever member asks: so the order holds without an agreement among members.
import { setTimeout as pause } from "node:timers/promises";
import { isFinal, lastReport } from "./contract.js";

const askTimeout = 2000; // of one question, in milliseconds
const tries = 20; // questions without a responder before reports count as not readable

// Lost is the reason with which a handler's signal is aborted when another member of the group may have its execution: the
// server has confirmed no heartbeat for as long as the ack wait. What the handler returns is ignored.
export class Lost extends Error {}

/**
 * Lease says until when no other member can have a message of a lane. A heartbeat extends it from the time at which it was
 * sent, if it is confirmed before the lease has ended.
 */
export class Lease {
  /** @param {number} asked when the message was asked for @param {number} ackWait */
  constructor(asked, ackWait) {
    this.ackWait = ackWait;
    this.until = asked + ackWait;
    this.lost = false;
  }

  holds() {
    this.lost ||= performance.now() > this.until;
    return !this.lost;
  }

  /**
   * renew sends a heartbeat, and waits for its confirmation.
   * @param {import("@nats-io/transport-node").NatsConnection} nc
   * @param {string} reply the message's
   */
  async renew(nc, reply) {
    const sent = performance.now();
    try {
      await nc.request(reply, "+WPI", { timeout: this.ackWait });
    } catch {
      return;
    }
    if (this.holds()) {
      this.until = sent + this.ackWait;
    }
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
    // $JS.ACK.(domain.account.)stream.consumer.deliveries.sequence.…
    const tokens = this.reply.split(".");
    const at = tokens.length > 9 ? 6 : 4;
    this.info = { deliveryCount: Number(tokens[at]) };
    this.seq = Number(tokens[at + 1]);
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
   * @param {import("@nats-io/transport-node").NatsConnection} nc
   * @param {LaneMessage} msg @param {Lease} lease @param {boolean} own it is from the queue's own stream
   */
  constructor(nc, msg, lease, own) {
    this.msg = msg;
    this.lease = lease;
    this.own = own;
    const beat = () => lease.holds() && lease.renew(nc, msg.reply).catch(() => {});
    void beat();
    this.beating = setInterval(beat, lease.ackWait / 4);
  }

  release() {
    clearInterval(this.beating);
  }
}

/**
 * hasEnded reports whether an execution has ended, by the last report that is stored of it. A server that has lost what was
 * acknowledged delivers it again, after later ones of its key.
 * @param {import("@nats-io/transport-node").NatsConnection} nc
 * @param {import("./contract.js").Start} start
 * @param {AbortSignal} working
 */
export async function hasEnded(nc, start, working) {
  for (let n = 0; !working.aborted && !nc.isClosed(); n++) {
    try {
      const answer = await nc.request(lastReport(start), undefined, { timeout: askTimeout });
      const status = answer.headers?.code ?? 0;
      if (status === 404 || status === 0) {
        return status === 0 && isFinal(answer.data);
      }
    } catch (failure) {
      if (failure instanceof Error && /no responders/i.test(failure.message) && n >= tries) {
        return false; // the account may not read reports
      }
    }
    await pause(100);
  }
  return false;
}
