// Pausing and resuming queues, and moving them between streams.
import { busy, call } from "./api.js";
import { fail } from "./failures.js";
import { refreshFragments } from "./fragments.js";

export function watchQueues() {
  const refusal = document.querySelector("[data-queue-refusal]");
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-queue]");
    if (!button) {
      return;
    }
    const { queue, method, body } = button.dataset;
    refusal.hidden = true;
    try {
      await busy(button, () => call(method || "POST", queue, body));
      await refreshFragments();
    } catch (problem) {
      fail(refusal, problem);
    }
  });
}
