// A workflow's name, queue and rate limit, and its deletion.
import { busy, call, send, tagOf } from "./api.js";
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

// A setting has one field or several; of reads it from a workflow.
const settings = ({ name, queue, requests, seconds }) => [
  { what: "name", fields: [name], of: (w) => [w.name || w.id] },
  { what: "queue", fields: [queue], of: (w) => [w.queue] },
  { what: "rate limit", fields: [requests, seconds], of: (w) => [w.rateLimit?.requests ?? "", w.rateLimit?.windowSeconds ?? ""] },
];

// save patches what was changed in the form: nothing else is touched, for somebody else may have changed it
// meanwhile. What both have changed is saved at the second try.
async function save(form) {
  const { name, queue, requests, seconds } = form.elements;
  if ((requests.value === "") !== (seconds.value === "")) {
    throw new Error("A rate limit needs both numbers. Empty both for the plan's.");
  }
  const path = form.dataset.settings;
  const have = await call("GET", path);
  const all = settings(form.elements);
  refuseConflicts(all, have);
  const [newName, newQueue, newRate] = all.map(edited);
  const own = requests.value === "" ? null : { requests: Number(requests.value), windowSeconds: Number(seconds.value) };
  let now;
  try {
    now = await send("PATCH", path, {
      name: newName ? name.value : undefined,
      queue: newQueue ? queue.value : undefined,
      rateLimit: newRate ? own : undefined,
    }, tagOf(have));
  } catch (problem) {
    if (problem.code === "changed_since") { // a moment ago
      return save(form);
    }
    throw problem;
  }
  // What somebody else has changed is seen now, and is not taken for an edit the next time.
  for (const { fields, of } of all) {
    of(now).forEach((value, i) => { fields[i].value = fields[i].defaultValue = value; });
  }
}

const edited = ({ fields }) => fields.some((field) => field.value !== field.defaultValue);

// refuseConflicts throws if somebody else has changed what was changed in the form, once for each of their changes.
function refuseConflicts(all, have) {
  const theirs = [];
  for (const setting of all) {
    const values = setting.of(have).map(String);
    const differs = (from) => setting.fields.some((field, i) => from(field) !== values[i]);
    if (edited(setting) && differs((field) => field.defaultValue) && differs((field) => field.value)) {
      theirs.push(`the ${setting.what} to ${values[0] === "" ? "the plan’s" : `“${values.join(" in ")}${values.length > 1 ? " seconds" : ""}”`}`);
      setting.fields.forEach((field, i) => { field.defaultValue = values[i]; });
    }
  }
  if (theirs.length > 0) {
    throw new Error(`Not saved: somebody else has changed ${theirs.join(" and ")} since you opened the page. Your changes are still in the form: save again to overwrite theirs, or reload the page to keep theirs.`);
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
