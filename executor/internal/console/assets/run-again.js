// "Run again" of rows and of an execution's page, and "Requeue". With data-once a button
// works one time, and then says that.
import { busy, call } from "./api.js";
import { fail, succeed } from "./failures.js";
import { showStarted } from "./live.js";

export function watchRunAgain() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-run-again]");
    if (!button) {
      return;
    }
    const said = (button.closest("tr") ?? button.closest("section") ?? document).querySelector("[data-said]") ?? document.querySelector("[data-said]");
    try {
      const { executionId } = await busy(button, () => call("POST", button.dataset.runAgain));
      started(said, executionId, button.dataset.started);
      if (button.dataset.once) { // it may have the focus, and keeps it
        button.textContent = button.dataset.once;
        button.setAttribute("aria-disabled", "true");
      }
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
