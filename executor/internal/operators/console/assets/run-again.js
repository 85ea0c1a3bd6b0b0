// "Run again" and "Retry", of rows and of an execution's page. With data-node, one chooses between the request and
// the node's sample payload, if it has one. With data-once a button works one time, and then says that.
import { busy, call } from "./api.js";
import { chosen } from "./confirm.js";
import { fail, succeed } from "./failures.js";
import { showStarted } from "./live.js";

const onSample = "Started on the sample payload.";

export function watchRunAgain() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-run-again]");
    if (!button) {
      return;
    }
    const said = (button.closest("tr, aside") ?? button.closest("section") ?? document).querySelector("[data-said]") ?? document.querySelector("[data-said]");
    try {
      const path = await pathOf(button);
      if (!path) {
        return;
      }
      const { executionId } = await busy(button, () => call("POST", path));
      started(said, executionId, path === button.dataset.runAgain ? button.dataset.started : onSample);
      if (button.dataset.once) { // it may have the focus, and keeps it
        button.textContent = button.dataset.once;
        button.setAttribute("aria-disabled", "true");
      }
    } catch (problem) {
      fail(said, problem);
    }
  });
}

// pathOf is what a button calls, or nothing if one does not choose.
async function pathOf(button) {
  const { runAgain, node } = button.dataset;
  if (!node || (await busy(button, () => call("GET", node))).samplePayload === null) {
    return runAgain;
  }
  const choice = await chosen(document.querySelector("[data-again-dialog]"));
  return choice && runAgain.replace(/replay$/, choice);
}

// started says that an execution has been started, and where it is.
export function started(said, executionId, text = onSample) {
  showStarted(executionId);
  const link = document.createElement("a");
  link.href = "/executions/" + encodeURIComponent(executionId);
  link.textContent = "Show it";
  succeed(said, text + " ", link);
}
