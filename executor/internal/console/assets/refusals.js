// The refused requests of a workflow, kept up to date: ingresses report them once a second.
import { showTimes } from "./times.js";

const every = 5000;
let shown; // as it came

export function watchRefusals() {
  if (document.getElementById("refusals")) {
    setInterval(() => document.hidden || refresh(), every);
  }
}

async function refresh() {
  const before = document.getElementById("refusals");
  const response = await fetch(before.dataset.refusals).catch(() => undefined);
  if (!response?.ok || before.contains(document.activeElement)) {
    return; // it is tried again; nothing moves away from under one's hands
  }
  const text = await response.text();
  if (text === shown) {
    return;
  }
  shown = text;
  const template = document.createElement("template");
  template.innerHTML = text;
  const after = template.content.firstElementChild;
  for (const open of before.querySelectorAll("details[open]")) {
    const same = after.querySelector(`[data-code="${open.dataset.code}"]`);
    if (same) {
      same.open = true;
    }
  }
  before.replaceWith(after);
  showTimes(after);
}
