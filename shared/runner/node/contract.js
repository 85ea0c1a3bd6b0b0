// What travels on the stream, with the types that protoc-gen-es makes from
// proto/hookstart/v1/execution.proto.
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { timestampDate, timestampFromMs, timestampNow } from "@bufbuild/protobuf/wkt";
import { headers } from "@nats-io/transport-node";
import { BodyKind, ExecutionProgressSchema, ExecutionStartSchema, ExecutionState, QueueSettingsSchema, QueueStreamPhase } from "./gen/hookstart/v1/execution_pb.js";

/** @typedef {import("./gen/hookstart/v1/execution_pb.js").NamedValues} NamedValues */
/** @typedef {ReturnType<typeof decodeStart>} Start what an execution begins with */
/** @typedef {Start & { attempt: number }} Execution what a handler gets; attempt counts from 1 */

/**
 * LastReport is what a group learns from the last report of an execution: its sequence, or 0 if there is none, whether the group
 * has ended the execution, and which other groups have.
 * @typedef {{ sequence: number, ended: boolean, endedGroups: string[] }} LastReport
 */

export { ExecutionState };

export const validName = /^[A-Za-z0-9_-]{1,64}$/;
const maxEndedGroups = 100; // that a report names

// A queue's starts are in the stream that all queues share, or, own, in the queue's own stream.
/** @param {string} queue @param {boolean} own */
export const streamName = (queue, own) => own ? `QUEUE_${queue}` : "EXECUTIONS";

/** @param {string} queue @param {boolean} own */
export const startSubject = (queue, own) => own ? `executions.queue.${queue}.start.>` : `executions.start.${queue}.>`;

/** @param {string} queue @param {string} group */
export const consumerName = (queue, group) => `runner-${queue}-${group}`;

/** @param {string} queue @param {number} lane @param {boolean} own */
export const laneSubject = (queue, lane, own) => own ? `executions.queue.${queue}.ordered.${lane}.>` : `executions.ordered.${queue}.${lane}.>`;

/** @param {string} queue @param {string} group @param {number} lane */
export const laneConsumerName = (queue, group, lane) => `${consumerName(queue, group)}-${lane}`;

// A report goes beside the start.
/** @param {Start} start */
const progressSubject = (start) => `executions.${start.own ? "reports" : "progress"}.${start.queue}.${start.workflowId}.${start.executionId}`;

/**
 * reportStream is the name of the stream that stores the reports on an execution.
 * @param {Start} start
 */
export const reportStream = (start) => start.own ? `PROGRESS_${start.queue}` : "PROGRESS";

/**
 * lastReport is the request for the last report of an execution, which the stream of reports answers.
 * @param {Start} start
 */
export const lastReport = (start) => `$JS.API.DIRECT.GET.${reportStream(start)}.${progressSubject(start)}`;

/**
 * whoEnded reads in a report which groups have ended its execution: whether the group has, and which others. A report without a
 * group is of every group.
 * @param {Uint8Array} data
 * @param {string} group
 */
export function whoEnded(data, group) {
  let report;
  try {
    report = fromBinary(ExecutionProgressSchema, data);
  } catch {
    return { ended: false, endedGroups: [] }; // it cannot be read
  }
  const all = new Set(report.endedGroups.filter((one) => validName.test(one)));
  if (report.state > ExecutionState.RUNNING) {
    all.add(validName.test(report.group) ? report.group : group);
  }
  const ended = all.delete(group);
  return { ended, endedGroups: [...all] };
}

/**
 * presenceSubject is where a member of a group says that it is there. The instance is this process's own.
 * @param {string} queue @param {string} group @param {string} instance
 */
export const presenceSubject = (queue, group, instance) => `hookstart.runners.${queue}.${group}.${instance}`;

// heartbeat is how often it says so, in milliseconds.
export const heartbeat = 3000;

/**
 * decodeSettings reads what an operator has set of a queue.
 * @param {Uint8Array} data
 */
export function decodeSettings(data) {
  const { pausedSince, pausedUntil, groups, lanes, stream } = fromBinary(QueueSettingsSchema, data);
  return {
    paused: pausedSince !== undefined,
    pausedUntil: pausedUntil && timestampDate(pausedUntil), // undefined: until it is resumed
    lanes: Number(lanes), // 0: no workflow of the queue has had an order key
    hasOwn: stream !== undefined && stream.phase !== QueueStreamPhase.UNSPECIFIED, // the queue has a stream of its own
    // New starts go to the queue's own stream, or went there last.
    ownIsNewer: stream !== undefined && ownPhases.includes(stream.phase),
    maxInFlight: Object.fromEntries(groups.map(({ group, maxInFlight }) => [group, Number(maxInFlight)])), // 0: no limit
  };
}

// ownPhases are the phases of a move in which the own stream holds the newer starts.
const ownPhases = [QueueStreamPhase.OWN, QueueStreamPhase.MOVING_OUT, QueueStreamPhase.CLOSED_OUT];

/**
 * settingsRequest is the request for the record of what an operator has set of a queue.
 * @param {string} queue
 */
export const settingsRequest = (queue) => `$JS.API.DIRECT.GET.KV_registry.$KV.registry.queue.${queue}`;

// forever is when a pause without an end would end.
const forever = "2200-01-01T00:00:00.000000001Z";

/**
 * consumerSettings are a group's consumer's by the settings of its queue. The end of an operator's pause is a whole
 * microsecond plus 1 ns: that tells it from others.
 * @param {Partial<ReturnType<typeof decodeSettings>>} settings
 * @param {string} group
 */
export function consumerSettings({ paused, pausedUntil, lanes = 0, maxInFlight = {} }, group) {
  const on = paused && (pausedUntil === undefined || pausedUntil > new Date());
  const limit = maxInFlight[group];
  return {
    max_ack_pending: limit ? Math.max(1, limit - lanes) : 10_000, // each lane may have one more in flight
    ...on && { pause_until: pausedUntil === undefined ? forever : pausedUntil.toISOString().replace("Z", "000001Z") },
  };
}

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/**
 * decodeStart reads the message that starts an execution. It throws what no further attempt
 * would make better.
 * @param {Uint8Array} data
 * @param {string} [subject] the message's
 */
export function decodeStart(data, subject = "") {
  const start = fromBinary(ExecutionStartSchema, data);
  if (!uuid.test(start.executionId)) {
    throw new Error(`${JSON.stringify(start.executionId.slice(0, 80))} is not an execution ID`);
  }
  const body = Buffer.from(start.body);
  return {
    executionId: start.executionId,
    workflowId: start.workflowId,
    nodeId: start.nodeId,
    accountId: start.accountId,
    queue: start.queue,
    deliveryId: start.deliveryId,
    rerunOf: start.rerunOf,
    replayOf: start.replayOf,
    sender: start.sender, // the preset of the node's sender; empty: it has none
    orderKey: start.orderKey, // empty: it has no order
    own: subject.startsWith("executions.queue."), // the start is in its queue's own stream
    verified: start.verified, // the request was verified as the sender's
    contentType: start.contentType,
    body, // the bytes as sent: what a signature is about
    headers: byName(start.headers),
    query: byName(start.query),
    // The JSON text that the workflow works on. JSON.parse would round long numbers, so whether to is left to the handler.
    input: input(start.bodyKind, body),
  };
}

/**
 * form reads a body of the type application/x-www-form-urlencoded; a sender may put JSON into its field payload.
 * @param {Start} start
 */
export function form(start) {
  return new URLSearchParams(start.body.toString());
}

/**
 * @param {NamedValues[]} list
 * @returns {Record<string, string[]>}
 */
function byName(list) {
  return Object.fromEntries(list.map(({ name, values }) => [name, values]));
}

/** @param {BodyKind} kind @param {Buffer} body */
function input(kind, body) {
  switch (kind) {
    case BodyKind.JSON:
      return body.toString();
    case BodyKind.TEXT:
      return JSON.stringify({ body: body.toString() });
    case BodyKind.BINARY:
      return JSON.stringify({ body: body.toString("base64"), bodyEncoding: "base64" });
    default:
      throw new Error(`body kind ${kind} is not known`);
  }
}

/**
 * progress is the message by which a member of a group reports a state: RUNNING, SUCCEEDED with an output, or
 * FAILED with an error. It has no Nats-Msg-Id: those are for starts. With last, the stream refuses it if another report of the
 * execution was stored after that one.
 * @param {Start} start
 * @param {import("@nats-io/transport-node").MsgHdrs | undefined} startHeaders
 * @param {ExecutionState} state
 * @param {{ at?: number, startedAt?: number, output?: string, error?: string, attempt?: number, group?: string, last?: LastReport }} [what] times are Date.now()
 */
export function progress(start, startHeaders, state, { at, startedAt, output = "", error = "", attempt = 0, group = "", last } = {}) {
  const about = headers();
  about.set("Hookstart-Execution-Id", start.executionId);
  about.set("Hookstart-Workflow-Id", start.workflowId);
  about.set("Hookstart-Node-Id", start.nodeId);
  about.set("Content-Type", "application/protobuf");
  about.set("traceparent", startHeaders?.get("traceparent") ?? "");
  if (last) {
    about.set("Nats-Expected-Last-Subject-Sequence", String(last.sequence));
  }
  const data = toBinary(ExecutionProgressSchema, create(ExecutionProgressSchema, {
    executionId: start.executionId,
    state,
    at: at === undefined ? timestampNow() : timestampFromMs(at),
    startedAt: startedAt === undefined ? undefined : timestampFromMs(startedAt),
    error: error.slice(0, 4000),
    output: Buffer.from(output),
    attempt,
    group,
    endedGroups: last?.endedGroups.slice(0, maxEndedGroups) ?? [],
  }));
  return { subject: progressSubject(start), data, headers: about };
}
