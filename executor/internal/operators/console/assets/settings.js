// Deleting a workflow.
import { busy, call } from "./api.js";
import { confirmed } from "./confirm.js";
import { goOn } from "./done.js";
import { fail } from "./failures.js";

export function watchSettings() {
  const button = document.querySelector("[data-delete]");
  if (!button) {
    return;
  }
  const dialog = document.querySelector("[data-delete-dialog]");
  const refusal = document.querySelector("[data-delete-refusal]");
  button.addEventListener("click", async () => {
    if (!await confirmed(dialog)) {
      return;
    }
    try {
      await busy(button, () => call("DELETE", button.dataset.delete));
      goOn("/workflows", `“${document.querySelector("h1").textContent}” is deleted.`);
    } catch (problem) {
      fail(refusal, problem);
    }
  });
}
