// Forms that create accounts and workflows, and change plans.
import { busy, isNew, send, signIn } from "./api.js";
import { confirmed } from "./confirm.js";
import { goOn } from "./done.js";
import { fail } from "./failures.js";

export function watchForms() {
  for (const field of document.querySelectorAll("[data-slug-of]")) {
    suggest(field, field.form.elements[field.dataset.slugOf]);
  }
  on("[data-create-workflow]", async (values) => {
    const path = "/api/v1/workflows/" + encodeURIComponent(values.id);
    await create(path, {
      accountId: values.account, name: values.name, queue: values.queue || undefined, triggers: [{ nodeId: values.node, name: "Webhook" }],
    }, `There is a workflow “${values.id}” already. Choose another ID.`);
    goOn("/workflows/" + encodeURIComponent(values.id), `“${values.name}” is created. It is inactive: try it with Send test, or activate it.`);
  });
  on("[data-create-account]", async (values) => {
    const path = "/api/v1/accounts/" + encodeURIComponent(values.id);
    await create(path, { name: values.name, plan: values.plan }, `There is an account “${values.id}” already. Choose another ID.`);
    goOn("/accounts", `“${values.name}” is created.`);
  });
  on("[data-change-plan]", async (values, form) => {
    const account = form.dataset.changePlan;
    if (!await mayStop(account, values.plan)) {
      form.reset();
      return;
    }
    await send("PATCH", "/api/v1/accounts/" + encodeURIComponent(account), { plan: values.plan });
    goOn(location.pathname + location.search, `“${form.dataset.name}” is on the plan ${values.plan} now.`);
  });
}

// mayStop asks, if there are workflows that would stop to work under another plan, or slow down.
async function mayStop(account, plan) {
  const response = await fetch("/fragments/plan-change?" + new URLSearchParams({ account, plan })).catch(() => undefined);
  if (response?.status === 401) {
    signIn();
  }
  if (!response?.ok) {
    throw new Error("It is not known which workflows would stop. Load the page again, and try once more.");
  }
  if (response.status === 204) {
    return true;
  }
  const dialog = document.querySelector("[data-plan-dialog]");
  dialog.innerHTML = await response.text();
  return confirmed(dialog);
}

function on(selector, submit) {
  for (const form of document.querySelectorAll(selector)) {
    const refusal = form.querySelector("[data-refusal]");
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      refusal.hidden = true;
      try {
        await busy(form.querySelector("button"), () => submit(Object.fromEntries(new FormData(form)), form));
      } catch (problem) {
        fail(refusal, problem);
      }
    });
  }
}

// create puts what is not there yet. message says that the ID is taken.
async function create(path, value, message) {
  try {
    await send("PUT", path, value, isNew);
  } catch (problem) {
    throw problem.code === "changed_since" ? new Error(message) : problem;
  }
}

// suggest fills in an ID made of the name, until somebody writes another.
function suggest(id, name) {
  let own = false;
  id.addEventListener("input", () => { own = id.value !== ""; });
  name.addEventListener("input", () => {
    if (!own) {
      id.value = name.value.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase()
        .replace(/[^a-z0-9_]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 64);
    }
  });
}
