// What is said about an execution that was started.
import { succeed } from "./failures.js";
import { showStarted } from "./live.js";

// sayStarted says that an execution has been started, and where it is.
export function sayStarted(said, executionId, text) {
  showStarted(executionId);
  const link = document.createElement("a");
  link.href = "/executions/" + encodeURIComponent(executionId);
  link.textContent = "Show it";
  succeed(said, text + " ", link);
}
