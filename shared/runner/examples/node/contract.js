// What travels on the stream: proto/hookstart/v1/execution.proto, read at the start, so that
// there is no generated code that could be stale. A runner that lives elsewhere takes a copy
// of that file along, and names it in HOOKSTART_PROTO.
import { fileURLToPath } from "node:url";
import { headers } from "@nats-io/transport-node";
import protobuf from "protobufjs";

const file = process.env.HOOKSTART_PROTO ?? fileURLToPath(new URL("../../../../proto/hookstart/v1/execution.proto", import.meta.url));
const root = await protobuf.load(file);
const ExecutionStart = root.lookupType("hookstart.v1.ExecutionStart");
const ExecutionProgress = root.lookupType("hookstart.v1.ExecutionProgress");
const kinds = root.lookupEnum("hookstart.v1.BodyKind").values;
const states = root.lookupEnum("hookstart.v1.ExecutionState").values;

export const streamName = "EXECUTIONS";
export const startSubject = (queue) => `executions.start.${queue}.>`;
export const consumerName = (queue, group) => `runner-${queue}-${group}`;

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

// decodeStart reads the message that starts an execution. It throws what no further attempt
// would make better.
export function decodeStart(data) {
  const start = ExecutionStart.decode(data);
  if (!uuid.test(start.executionId)) {
    throw new Error(`${JSON.stringify(start.executionId.slice(0, 80))} is not an execution ID`);
  }
  if (![kinds.BODY_KIND_JSON, kinds.BODY_KIND_TEXT, kinds.BODY_KIND_BINARY].includes(start.bodyKind)) {
    throw new Error(`body kind ${start.bodyKind} is not known`);
  }
  const body = Buffer.from(start.body);
  const values = (list) => Object.fromEntries(list.map(({ name, values }) => [name, values]));
  return {
    executionId: start.executionId,
    workflowId: start.workflowId,
    nodeId: start.nodeId,
    accountId: start.accountId,
    queue: start.queue,
    deliveryId: start.deliveryId,
    rerunOf: start.rerunOf,
    contentType: start.contentType,
    body, // the bytes as sent: what a signature is about
    headers: values(start.headers),
    query: values(start.query),
    // The JSON text that the workflow works on. JSON.parse would round long numbers, so whether to is left to the handler.
    input: input(start.bodyKind, body),
  };
}

function input(kind, body) {
  switch (kind) {
    case kinds.BODY_KIND_JSON:
      return body.toString();
    case kinds.BODY_KIND_TEXT:
      return JSON.stringify({ body: body.toString() });
    default:
      return JSON.stringify({ body: body.toString("base64"), bodyEncoding: "base64" });
  }
}

// progress is the message that reports a state: RUNNING, SUCCEEDED with an output, or
// FAILED with an error. It has no Nats-Msg-Id: those are for starts.
export function progress(start, startHeaders, state, { output, error } = {}) {
  const now = Date.now();
  const about = headers();
  about.set("Hookstart-Execution-Id", start.executionId);
  about.set("Hookstart-Workflow-Id", start.workflowId);
  about.set("Hookstart-Node-Id", start.nodeId);
  about.set("Content-Type", "application/protobuf");
  about.set("traceparent", startHeaders?.get("traceparent") ?? "");
  const data = ExecutionProgress.encode({
    executionId: start.executionId,
    state: states[`EXECUTION_STATE_${state}`],
    at: { seconds: Math.floor(now / 1000), nanos: (now % 1000) * 1e6 },
    error: error?.slice(0, 4000),
    output: output === undefined ? undefined : Buffer.from(output),
  }).finish();
  return { subject: `executions.progress.${start.queue}.${start.workflowId}.${start.executionId}`, data, headers: about };
}
