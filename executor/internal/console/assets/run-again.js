// "Run again" of rows and of an execution's page, and "Requeue".
import { busy, call } from "./api.js";
import { fail, succeed } from "./failures.js";
import { showStarted } from "./live.js";

export function watchRunAgain() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-run-again]");
    if (!button) {
      return;
    }
    const said = (button.closest("section") ?? document).querySelector("[data-said]") ?? document.querySelector("[data-said]");
    try {
      const { executionId } = await busy(button, () => call("POST", button.dataset.runAgain));
      started(said, executionId, button.dataset.started);
    } catch (problem) {
      fail(said, problem);
    }
  });
}

// started says that an execution has been started, and where it is.
export function started(said, executionId, text = "Started on the sample payload.") {
  showStarted(executionId);
  const link = document.createElement("a");
  link.href = "/executions/" + encodeURIComponent(executionId);
  link.textContent = "Show it";
  succeed(said, text + " ", link);
}
