// Parts of a page that the server makes anew now and then: [data-fragment] says where it
// is, and data-every after how many seconds. One that begins empty is fetched at once.
import { showTimes } from "./times.js";

export function watchFragments() {
  for (const { id, dataset, childElementCount } of document.querySelectorAll("[data-fragment]")) {
    const fragment = new Fragment(id);
    setInterval(() => document.hidden || fragment.refresh(), Number(dataset.every) * 1000);
    if (childElementCount === 0) {
      fragment.refresh();
    }
  }
}

class Fragment {
  constructor(id) {
    this.id = id;
  }

  async refresh() {
    const before = document.getElementById(this.id);
    const response = await fetch(before.dataset.fragment).catch(() => undefined);
    if (!response?.ok || before.contains(document.activeElement) || (before.matches(":hover") && before.childElementCount > 0)) {
      return; // it is tried again; nothing moves away from under one's hands
    }
    const text = await response.text();
    if (text === this.shown) {
      return;
    }
    this.shown = text;
    const template = document.createElement("template");
    template.innerHTML = text;
    const after = template.content.firstElementChild;
    for (const { dataset } of before.querySelectorAll("details[open]")) {
      after.querySelector(`[data-code="${dataset.code}"]`)?.setAttribute("open", "");
    }
    before.replaceWith(after);
    showTimes(after);
  }
}
