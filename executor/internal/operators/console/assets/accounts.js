// Deleting accounts, and the workflow that their events start.
import { busy, call } from "./api.js";
import { confirmed } from "./confirm.js";
import { goOn } from "./done.js";
import { fail } from "./failures.js";

export function watchAccounts() {
  watchEvents();
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

// watchEvents sets the workflow that an account's operator events start.
function watchEvents() {
  const change = async (form, button, done, method, body) => {
    try {
      await busy(button, () => call(method, form.dataset.events, body));
      goOn("/accounts", done);
    } catch (problem) {
      // Without the name that the API has for the field: the form has one of its own.
      fail(form.querySelector("[data-refusal]"), { code: problem.code, message: problem.message.replace(/^workflowId: /, "") });
    }
  };
  for (const details of document.querySelectorAll("details.events:has([data-events])")) {
    details.addEventListener("toggle", () => details.open && offerWorkflows(details));
  }
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("[data-events]");
    if (!form) {
      return;
    }
    event.preventDefault();
    const data = new FormData(form);
    const put = { workflowId: data.get("workflow") };
    const kinds = data.getAll("kind");
    if (kinds.length > 0) {
      put.kinds = kinds;
    }
    if (data.get("silent")) {
      put.silentAfterSeconds = Number(data.get("silent"));
    }
    change(form, event.submitter, `The account's events start “${put.workflowId}”.`, "PUT", JSON.stringify(put));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-no-events]");
    if (button) {
      change(button.closest("form"), button, "The account's events start no workflow.", "DELETE");
    }
  });
}

// offerWorkflows lists an account's workflows, as far as one page of the API has them.
async function offerWorkflows(details) {
  const form = details.querySelector("[data-events]");
  const found = await call("GET", `/api/v1/workflows?limit=200&accountId=${encodeURIComponent(form.dataset.account)}`).catch(() => undefined);
  if (!found) {
    return; // the ID can be written all the same
  }
  form.querySelector("datalist").replaceChildren(...found.items.map(({ id, name }) => {
    const option = document.createElement("option");
    option.value = id;
    option.textContent = name ?? "";
    return option;
  }));
}
