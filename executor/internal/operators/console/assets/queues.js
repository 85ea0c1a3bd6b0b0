// Pausing and resuming queues, limiting groups of runners, and moving queues between streams.
import { busy, call, send } from "./api.js";
import { fail } from "./failures.js";
import { refreshFragments } from "./fragments.js";

export function watchQueues() {
  const refusal = document.querySelector("[data-queue-refusal]");
  const change = async (button, work) => {
    refusal.hidden = true;
    try {
      await busy(button, work);
      await refreshFragments(button);
    } catch (problem) {
      fail(refusal, problem);
    }
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-queue]");
    if (button) {
      const { queue, method, body } = button.dataset;
      change(button, () => call(method || "POST", queue, body ?? pauseOf(button)));
    }
  });
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("[data-group-limit]");
    if (form) {
      event.preventDefault();
      const limit = form.elements.limit.value;
      change(form.querySelector("button"), () => send("PUT", form.dataset.groupLimit, { maxInFlight: limit === "" ? null : Number(limit) }));
    }
    const stream = event.target.closest("[data-queue-stream]");
    if (stream) {
      event.preventDefault();
      change(stream.querySelector("button"), () => send("PUT", stream.dataset.queueStream, streamOf(stream.elements)).catch((problem) => {
        problem.message = problem.message.replace(/(?:\S+\.)?(maxBytes|maxAgeSeconds|replicas|placementTags): /g, (_, name) => `${labels[name]}: `);
        throw problem;
      }));
    }
  });
}

// labels are the form's words for the fields of the API.
const labels = {
  maxBytes: "Bytes at most", maxAgeSeconds: "Seconds that messages are kept", replicas: "Replicas", placementTags: "Tags of its servers",
};

// streamOf is the body that sets a queue's own stream. What is empty becomes as in the shared stream.
function streamOf({ bytes, age, replicas, tags }) {
  const number = ({ value }) => (value === "" ? undefined : Number(value));
  return {
    maxBytes: number(bytes), maxAgeSeconds: number(age), replicas: number(replicas), placementTags: tags.value.split(/\s+/).filter(Boolean),
  };
}

// pauseOf is the body that pauses a queue for as long as the list beside the button says; none if it says "until
// resumed", or if there is no list.
function pauseOf(button) {
  const seconds = Number(button.parentElement.querySelector("[data-pause-for]")?.value ?? 0);
  return seconds === 0 ? undefined : JSON.stringify({ until: new Date(Date.now() + seconds * 1000).toISOString() });
}
