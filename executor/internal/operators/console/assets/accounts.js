// The workflow that an account's operator events start: the form offers the account's workflows.
import { get } from "./api.js";

export function watchAccounts() {
  for (const details of document.querySelectorAll("details.events:has([data-events])")) {
    details.addEventListener("toggle", () => details.open && offerWorkflows(details));
  }
}

// offerWorkflows lists an account's workflows, as far as one page of the API has them.
async function offerWorkflows(details) {
  const form = details.querySelector("[data-events]");
  const found = await get(`/api/v1/workflows?limit=200&accountId=${encodeURIComponent(form.dataset.account)}`).catch(() => undefined);
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
