// An execution beside its list: in a wide window, a row opens it in a panel, and the list stays where it is.
import { showFragments } from "./fragments.js";
import { showTimes } from "./times.js";

const wide = window.matchMedia("(min-width: 66rem)");
const rows = ".execution .when, .dead-letters .when a[href^='/executions/']";
let panel, shown; // shown is the path of the execution

export function watchBeside() {
  if (history.state?.beside) { // the page was loaded again
    history.replaceState(null, "");
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest(`${rows}, .beside [data-beside-content] a[href^="/executions/"]`);
    if (!link || !wide.matches || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) {
      return;
    }
    event.preventDefault();
    show(link.getAttribute("href"));
  });
  document.addEventListener("keydown", (event) => {
    if (panel && event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open]")) {
      close();
    }
  });
  window.addEventListener("popstate", () => panel && remove());
}

const links = () => [...document.querySelectorAll(rows)];
const current = () => links().find((link) => link.getAttribute("href") === shown);

async function show(path) {
  const response = await fetch(path).catch(() => undefined);
  const text = response && !response.redirected ? await response.text().catch(() => undefined) : undefined;
  if (text === undefined) {
    location.assign(path); // which says what is wrong, or leads to the sign-in
    return;
  }
  const main = new DOMParser().parseFromString(text, "text/html").querySelector("main");
  main.querySelectorAll(".crumbs, noscript, [data-done], [data-zone]").forEach((part) => part.remove());
  const title = document.createElement("h2");
  title.append(...main.querySelector("h1").childNodes);
  main.querySelector("h1").replaceWith(title);
  if (!panel) {
    panel = build();
    document.body.append(panel);
    history.pushState({ beside: true }, "");
  }
  current()?.removeAttribute("aria-current");
  shown = path;
  current()?.setAttribute("aria-current", "true");
  const content = panel.querySelector("[data-beside-content]");
  content.replaceChildren(...main.children);
  panel.querySelector("[data-beside-page]").href = path;
  showNeighbours();
  showTimes(content);
  showFragments(content);
  document.dispatchEvent(new CustomEvent("replaced", { detail: { before: content, after: content } }));
  if (!panel.contains(document.activeElement)) {
    panel.focus();
  }
  panel.scrollTop = 0;
}

function build() {
  const made = document.createElement("aside");
  made.className = "beside";
  made.tabIndex = -1;
  made.setAttribute("aria-label", "Execution");
  made.innerHTML = `<div class="beside-bar">
    <span class="buttons"><button type="button" class="small" data-beside-step="-1">Newer</button> <button type="button" class="small" data-beside-step="1">Older</button></span>
    <span class="buttons"><a class="button small" data-beside-page>Open as a page</a> <button type="button" class="small" data-beside-close>Close</button></span>
  </div><div data-beside-content></div>`;
  made.addEventListener("click", (event) => {
    const step = event.target.closest("[data-beside-step]");
    const next = step && neighbour(Number(step.dataset.besideStep));
    if (next) {
      show(next.getAttribute("href"));
    }
    if (event.target.closest("[data-beside-close]")) {
      close();
    }
  });
  return made;
}

// neighbour is the row before or after the one that is shown, as the list is now.
function neighbour(step) {
  const all = links();
  const at = all.indexOf(current());
  return at < 0 ? undefined : all[at + step];
}

function showNeighbours() {
  for (const button of panel.querySelectorAll("[data-beside-step]")) {
    button.setAttribute("aria-disabled", String(neighbour(Number(button.dataset.besideStep)) === undefined));
  }
}

function close() {
  if (history.state?.beside) {
    history.back(); // its entry goes with the panel
  } else {
    remove();
  }
}

function remove() {
  const link = current();
  link?.removeAttribute("aria-current");
  panel.remove();
  panel = shown = undefined;
  link?.focus();
}
