// Parts of a page that the server makes anew now and then: [data-fragment] says where they
// are, and data-every after how many seconds. One that begins empty is fetched at once.
import { unchanged } from "./api.js";
import { forget } from "./failures.js";
import { showTimes } from "./times.js";

const fragments = new Set();

export function watchFragments() {
  showFragments(document);
  window.addEventListener("focus", () => refreshFragments());
  document.addEventListener("visibilitychange", () => document.hidden || refreshFragments());
}

// showFragments keeps the parts within an element up to date.
export function showFragments(within) {
  for (const { dataset, childElementCount } of within.querySelectorAll("[data-fragment]")) {
    const fragment = new Fragment(dataset.fragment);
    fragments.add(fragment);
    fragment.timer = setInterval(() => document.hidden || fragment.refresh(), Number(dataset.every) * 1000);
    if (childElementCount === 0) {
      fragment.refresh();
    }
  }
}

// refreshFragments is for when something has probably changed. With the control by which somebody has changed it,
// the part around that control is replaced too, although it has the focus. The focus goes to what has the control's
// ID in the new part; if nothing has, the caller places it.
export async function refreshFragments(control) {
  await Promise.all([...fragments].map((fragment) => fragment.refresh(control)));
}

class Fragment {
  constructor(path) {
    this.path = path;
  }

  async refresh(control) {
    this.control = control ?? this.control; // a refresh that overtakes this one replaces the part in its stead
    if (![...document.querySelectorAll("[data-fragment]")].some(({ dataset }) => dataset.fragment === this.path)) {
      clearInterval(this.timer); // it has gone, or what has replaced it says that nothing more will come
      fragments.delete(this);
      return;
    }
    let text;
    const asked = this.asked = {};
    const current = await unchanged(async () => {
      const response = await fetch(this.path).catch(() => undefined);
      text = response?.ok && !response.redirected ? await response.text().catch(() => undefined) : undefined;
    });
    if (text === undefined || !current || asked !== this.asked) {
      return; // it is tried again, or has been already
    }
    forget("unreachable");
    const template = document.createElement("template");
    template.innerHTML = text;
    for (const after of [...template.content.children]) {
      const before = document.getElementById(after.id);
      if (before) {
        replace(before, after, this.control);
      }
    }
    this.control = undefined;
  }
}

// replace puts what is new in its place; nothing moves away from under one's hands, except by their own doing.
function replace(before, after, control) {
  if (after.hasAttribute("aria-checked")) {
    before.setAttribute("aria-checked", after.getAttribute("aria-checked")); // it may have the focus, and keeps it
    before.value = after.value; // what it switches to
    return;
  }
  const hovered = before.matches("[data-fragment]:hover") && before.childElementCount > 0;
  const focused = before.contains(document.activeElement);
  const own = control !== undefined && before.contains(control);
  if (!own && (focused || hovered || [...before.querySelectorAll("input, select")].some(isEdited)) || bare(before) === bare(after)) {
    return;
  }
  for (const { dataset } of before.querySelectorAll("details[open]")) {
    after.querySelector(`[data-code="${dataset.code}"]`)?.setAttribute("open", "");
  }
  const edited = [...before.querySelectorAll("input, select")].filter(isEdited);
  edited.forEach((field) => keep(field, after));
  const active = edited.includes(document.activeElement) && twinOf(document.activeElement, after);
  before.replaceWith(after);
  showTimes(after);
  if (own && focused) {
    (active || document.getElementById(control.id))?.focus();
  }
  document.dispatchEvent(new CustomEvent("replaced", { detail: { before, after } }));
}

// keep takes over what was typed into a field, with the value that the page has shown there.
function keep(field, after) {
  const twin = twinOf(field, after);
  if (twin) {
    twin.value = field.value;
    const [had, has] = [field, twin].map(({ form, name }) => form.elements[`shown.${name}`]);
    if (had && has) {
      has.value = had.value;
    }
  }
}

// twinOf returns the field of the same name in the form with the same ID, or null.
const twinOf = (field, after) => field.form && field.name
  && after.querySelector(`[id="${field.form.getAttribute("id")}"] [name="${field.name}"]`);

const isEdited = (field) => (field.matches("select")
  ? [...field.options].some((option) => option.selected !== option.defaultSelected) : field.value !== field.defaultValue);

// bare is a part's HTML without what goes on by itself: the texts of times, and what is open.
function bare(part) {
  const copy = part.cloneNode(true);
  for (const time of copy.querySelectorAll("time[data-time]")) {
    time.replaceWith(time.dateTime);
  }
  copy.querySelectorAll("details[open]").forEach((each) => each.removeAttribute("open"));
  return copy.outerHTML;
}
