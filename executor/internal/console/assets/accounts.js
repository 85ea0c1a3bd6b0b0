// Deleting accounts.
import { busy, call } from "./api.js";
import { confirmed } from "./confirm.js";
import { goOn } from "./done.js";
import { fail } from "./failures.js";

export function watchAccounts() {
  const dialog = document.querySelector("[data-delete-dialog]");
  if (!dialog) {
    return;
  }
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-delete-account]");
    if (!button) {
      return;
    }
    dialog.querySelector("[data-delete-name]").textContent = button.dataset.name;
    if (!await confirmed(dialog)) {
      return;
    }
    const refusal = button.closest("form").querySelector("[data-refusal]");
    try {
      await busy(button, () => call("DELETE", button.dataset.deleteAccount));
      goOn("/accounts", `“${button.dataset.name}” is deleted.`);
    } catch (problem) {
      fail(refusal, problem);
    }
  });
}
