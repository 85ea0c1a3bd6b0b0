// Cancellations: executions that an operator wants to end are keys of a bucket.
import { setTimeout as pause } from "node:timers/promises";

const subject = "$JS.API.STREAM.MSG.GET.KV_cancellations";
const prefix = "$KV.cancellations.";

// The server's error codes.
const messageNotFound = 10037;
const streamNotFound = 10059;

const catchUpWait = 200; // how long a message waits until all new keys are read, in milliseconds, before its own key is asked for
const askTimeout = 2000; // of one question, in milliseconds
const checkInterval = 1000; // for how long the newest key counts as being at its revision, in milliseconds, while no new one is found
const minForget = 1000; // known cancellations from which on those that have expired are forgotten
const tries = 3; // questions without an answer before a runner that never got one does without
const again = 30_000; // for how long it does, in milliseconds

// Canceled is the reason with which a handler's signal is aborted when its execution is canceled. If the handler throws
// then, the execution is canceled; if it returns, it has succeeded.
export class Canceled extends Error {}

/** Cancellations knows the executions that are to end. */
export class Cancellations {
  /** @param {import("@nats-io/transport-node").NatsConnection} nc */
  constructor(nc) {
    this.nc = nc;
    /** @type {Map<string, number>} the revisions of the keys by the executions */
    this.ids = new Map();
    this.forgetAt = minForget; // how many there are when those that have expired are forgotten next
    this.last = 0; // the revision of the newest key that was read
    this.lastId = ""; // its execution
    this.reconnects = 0;
    this.checked = 0; // reconnects when the newest key was last known to be at its revision
    this.checkedAt = 0; // and when that was
    this.readable = false; // a question was answered before: from then on none is given up
    this.failures = 0;
    this.offUntil = 0;
    /** @type {Promise<void> | undefined} */
    this.asking = undefined;
    /** @type {Promise<void> | undefined} */
    this.next = undefined;
    this.status = /** @type {AsyncIterable<import("@nats-io/transport-node").Status> & { stop(): void }} */ (nc.status());
    void this.follow();
  }

  /** follow counts reconnects: after each, the bucket may be another one, in which revisions begin anew. */
  async follow() {
    for await (const { type } of this.status) {
      if (type === "reconnect") {
        this.reconnects++;
      }
    }
  }

  close() {
    this.status.stop();
  }

  /**
   * has says whether an execution is to end, by what the bucket holds after the call has begun: the executor stores
   * the key before it looks whether a runner was given the message. If there are so many new keys that reading them takes
   * long, it asks for the execution's own.
   * @param {string} executionId
   * @param {AbortSignal} working
   */
  async has(executionId, working) {
    while (!working.aborted) {
      try {
        if (await Promise.race([this.read().then(() => true), pause(catchUpWait, false, { ref: false })])) {
          break;
        }
        return await this.ask(executionId);
      } catch (failure) {
        if (this.nc.isClosed()) {
          throw failure;
        }
        await pause(100);
      }
    }
    return this.ids.has(executionId);
  }

  /**
   * ask says whether the bucket holds the key of an execution.
   * @param {string} executionId
   */
  async ask(executionId) {
    const reply = await this.nc.request(subject, JSON.stringify({ last_by_subj: prefix + executionId }), { timeout: askTimeout });
    const { error } = /** @type {any} */ (reply.json());
    if (error && error.err_code !== messageNotFound) {
      throw new Error(error.description);
    }
    return !error;
  }

  // read waits for a reading that begins after the call. Those who come during one share the next.
  read() {
    if (Date.now() < this.offUntil) {
      return Promise.resolve();
    }
    this.next ??= (this.asking ?? Promise.resolve()).catch(() => {}).then(() => {
      this.asking = this.next;
      this.next = undefined;
      return this.catchUp();
    });
    return this.next;
  }

  /**
   * catchUp reads the keys that are new. If there are any, after a reconnect, and every checkInterval, it then looks whether the
   * bucket still has the key that was the newest before. If not, it is another bucket, or has lost keys: all are read again.
   * While they are read from the beginning, that key is the one that was read last: the first may have expired when all are read.
   */
  async catchUp() {
    let { reconnects, last, lastId } = this;
    let fromBeginning = last === 0;
    for (let check = false; ;) {
      let answer;
      try {
        const reply = await this.nc.request(subject, JSON.stringify({ seq: check ? this.last : last + 1, next_by_subj: `${prefix}*` }), { timeout: askTimeout });
        answer = /** @type {any} */ (reply.json());
      } catch (failure) {
        const unknown = /no responders/i.test(String(failure));
        if (!this.readable && (unknown || ++this.failures > tries)) {
          this.failures = 0;
          this.offUntil = Date.now() + again;
          return;
        }
        throw failure;
      }
      if (answer.error?.err_code === streamNotFound) {
        this.last = 0;
        if (!this.readable) { // an executor of an earlier version
          this.offUntil = Date.now() + askTimeout;
        }
        return;
      }
      if (answer.error && answer.error.err_code !== messageNotFound) {
        throw new Error(answer.error.description);
      }
      this.readable = true;
      const id = answer.message?.subject.slice(prefix.length);
      if (id) {
        this.ids.set(id, answer.message.seq);
      }
      if (reconnects !== this.reconnects) { // the keys before may be those of another bucket
        ({ reconnects, last, lastId } = this);
        check = fromBeginning = false;
      } else if (check && id === this.lastId && answer.message.seq === this.last) {
        Object.assign(this, { last, lastId, checked: reconnects, checkedAt: performance.now() });
        return this.forgetExpired();
      } else if (check) {
        this.last = last = 0;
        check = false;
        fromBeginning = true;
      } else if (id) {
        last = answer.message.seq;
        lastId = id;
        if (fromBeginning) {
          Object.assign(this, { last, lastId });
        }
      } else {
        check = last > 0 && (last !== this.last || reconnects !== this.checked || performance.now() - this.checkedAt >= checkInterval);
        if (!check) {
          return;
        }
      }
    }
  }

  /**
   * forgetExpired forgets the cancellations whose keys have expired, each time that the number of cancellations has doubled.
   * Keys expire in the order of their revisions, which begin again with 1 in a new bucket.
   */
  async forgetExpired() {
    if (this.ids.size < this.forgetAt) {
      return;
    }
    let oldest;
    try {
      const reply = await this.nc.request(subject, JSON.stringify({ seq: 1, next_by_subj: `${prefix}*` }), { timeout: askTimeout });
      oldest = /** @type {any} */ (reply.json()).message?.seq;
    } catch {
      // the next reading tries it again
    }
    if (!oldest) {
      return;
    }
    for (const [id, revision] of this.ids) {
      if (revision < oldest) {
        this.ids.delete(id);
      }
    }
    this.forgetAt = Math.max(minForget, 2 * this.ids.size);
  }
}
