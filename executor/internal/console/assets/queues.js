// Pausing and resuming queues.
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
    refusal.hidden = true;
    try {
      await busy(button, () => call("POST", button.dataset.queue));
      await refreshFragments();
    } catch (problem) {
      fail(refusal, problem);
    }
  });
}
