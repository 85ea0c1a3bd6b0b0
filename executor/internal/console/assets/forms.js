// Forms that create accounts and workflows, and change plans.
import { busy, call, send } from "./api.js";
import { fail } from "./failures.js";

export function watchForms() {
  for (const field of document.querySelectorAll("[data-slug-of]")) {
    suggest(field, field.form.elements[field.dataset.slugOf]);
  }
  on("[data-create-workflow]", async (values) => {
    const path = "/api/v1/workflows/" + encodeURIComponent(values.id);
    await mustBeNew(path, `There is a workflow “${values.id}” already. Choose another ID.`);
    await send("PUT", path, {
      accountId: values.account, name: values.name, queue: values.queue || undefined, triggers: [{ nodeId: values.node, name: "Webhook" }],
    });
    location.assign("/workflows/" + encodeURIComponent(values.id));
  });
  on("[data-create-account]", async (values) => {
    const path = "/api/v1/accounts/" + encodeURIComponent(values.id);
    await mustBeNew(path, `There is an account “${values.id}” already. Choose another ID.`);
    await send("PUT", path, { name: values.name, plan: values.plan });
    location.assign("/accounts");
  });
  on("[data-change-plan]", async (values, form) => {
    await send("PUT", "/api/v1/accounts/" + encodeURIComponent(form.dataset.changePlan), { name: form.dataset.name, plan: values.plan });
    location.reload();
  });
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

// mustBeNew keeps a PUT from replacing what is there.
async function mustBeNew(path, message) {
  try {
    await call("GET", path);
  } catch (problem) {
    if (problem.status === 404) {
      return;
    }
    throw problem;
  }
  throw new Error(message);
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
