// A workflow's name, queue and rate limit, and its deletion.
import { busy, call, send } from "./api.js";
import { confirmed } from "./confirm.js";
import { goOn } from "./done.js";
import { fail, succeed } from "./failures.js";
import { refreshFragments } from "./fragments.js";

export function watchSettings() {
  const form = document.querySelector("[data-settings]");
  if (!form) {
    return;
  }
  const said = form.querySelector("[data-said]");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await busy(form.querySelector("button"), () => save(form));
      await refreshFragments();
      document.title = `${form.elements.name.value} · hookstart`;
      succeed(said, "Saved.");
    } catch (problem) {
      fail(said, problem);
    }
  });
  watchDelete(document.querySelector("[data-delete]"));
}

// save puts the whole workflow: what is not in the form, or was not changed in it, as it is
// now, for somebody else may have changed it meanwhile.
async function save(form) {
  const { name, queue, requests, seconds } = form.elements;
  if ((requests.value === "") !== (seconds.value === "")) {
    throw new Error("A rate limit needs both numbers. Empty both for the plan's.");
  }
  const path = form.dataset.settings;
  const have = await call("GET", path);
  const edited = (...fields) => fields.some((field) => field.value !== field.defaultValue);
  const own = requests.value === "" ? undefined : { requests: Number(requests.value), windowSeconds: Number(seconds.value) };
  const now = await send("PUT", path, {
    accountId: have.accountId,
    name: edited(name) ? name.value : have.name,
    queue: edited(queue) ? queue.value : have.queue,
    rateLimit: edited(requests, seconds) ? own : have.rateLimit,
    triggers: have.triggers,
  });
  // What somebody else has changed is seen now, and is not taken for an edit the next time.
  const rate = now.rateLimit ?? { requests: "", windowSeconds: "" };
  for (const [field, value] of [[name, now.name], [queue, now.queue], [requests, rate.requests], [seconds, rate.windowSeconds]]) {
    field.value = field.defaultValue = value;
  }
}

function watchDelete(button) {
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
