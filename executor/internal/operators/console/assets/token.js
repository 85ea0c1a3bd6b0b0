// A trigger's token is not in the page. It is fetched when somebody wants to see it, or
// to copy what holds it.
import { get } from "./api.js";
import { fail, succeed } from "./failures.js";

const hidden = "••••••••";
let pane;

// fetchToken fetches it each time: it may have been rotated meanwhile, elsewhere too.
async function fetchToken() {
  return (await get(pane.dataset.trigger)).token;
}

function show(token) {
  const visible = token !== hidden;
  for (const place of pane.querySelectorAll("[data-token]")) {
    place.textContent = token;
  }
  const button = pane.querySelector("[data-show-token]");
  button.textContent = visible ? "Hide" : "Show";
  button.setAttribute("aria-pressed", String(visible));
}

export function watchToken() {
  pane = document.querySelector("[data-trigger]");
  if (!pane?.querySelector("[data-show-token]")) {
    return; // viewers do not see it
  }
  const said = pane.querySelector("[data-token-said]");
  const button = pane.querySelector("[data-show-token]");
  button.addEventListener("click", async () => {
    try {
      if (button.getAttribute("aria-pressed") === "true") {
        show(hidden);
        return;
      }
      show(await fetchToken());
      succeed(said, "Whoever has this URL can start the workflow.");
    } catch (problem) {
      fail(said, problem);
    }
  });
  document.addEventListener("replaced", ({ detail: { before, after } }) => {
    const made = (part) => part.querySelector("time")?.dateTime; // of the current one, which is the first
    if (before.id === "tokens" && made(before) !== made(after) && button.getAttribute("aria-pressed") === "true") {
      show(hidden);
      succeed(said, "The token was rotated elsewhere. Show or copy the new URL.");
    }
  });
}

// textOf is an element's text, with the token where it belongs.
async function textOf(element) {
  const copy = element.cloneNode(true);
  const places = copy.querySelectorAll("[data-token]");
  const token = places.length > 0 ? await fetchToken() : "";
  places.forEach((place) => place.replaceWith(token));
  return copy.textContent;
}

async function toClipboard(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text);
  }
  // Without TLS and not on loopback, browsers have only the old way.
  const area = document.createElement("textarea");
  area.value = text;
  area.setAttribute("readonly", "");
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) {
    throw new Error("The browser does not let this page copy. Show it, and copy it by hand.");
  }
}

export function watchCopies() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) {
      return;
    }
    const label = button.firstChild;
    const before = button.dataset.label ??= label.textContent;
    try {
      await toClipboard(await textOf(document.getElementById(button.dataset.copy)));
      label.textContent = "Copied";
    } catch (problem) {
      label.textContent = "Not copied";
      button.title = problem.message;
    }
    setTimeout(() => { label.textContent = before; }, 2000);
  });
}
