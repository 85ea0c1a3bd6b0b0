// Messages about executions that a form has started.
import { succeed } from "./failures.js";
import { showStarted } from "./live.js";

// sayStarted shows that an execution was started, with a link to it.
export function sayStarted(said, executionId, text) {
  showStarted(executionId);
  const link = document.createElement("a");
  link.href = "/executions/" + encodeURIComponent(executionId);
  link.textContent = "Show it";
  succeed(said, text + " ", link);
}
