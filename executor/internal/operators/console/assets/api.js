// What pages read from the operators' API, and what every call has in common.

// Problem is what the API refuses with, in its own words.
export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

import { forget } from "./failures.js";

// What is being changed: a part of the page asked for meanwhile may be older than the change.
let underWay = 0, changes = 0;

// unchanged runs work, and says whether nothing was being changed from its beginning to its end.
export async function unchanged(work) {
  const before = changes;
  const calm = underWay === 0;
  await work();
  return calm && before === changes;
}

// changing runs work, which changes something.
export async function changing(work) {
  forget();
  underWay++;
  changes++;
  try {
    return await work();
  } finally {
    underWay--;
  }
}

export const unreachable = () => new Problem(0, "unreachable", "The executor cannot be reached. Try again in a moment.");

// get returns the JSON in the response, or undefined if there is none. It throws a Problem if the call fails.
export async function get(path) {
  let response;
  try {
    response = await fetch(path);
  } catch {
    throw unreachable();
  }
  if (response.status === 401) {
    signIn();
  }
  const text = await response.text();
  let answer;
  try {
    answer = text === "" ? undefined : JSON.parse(text);
  } catch {
    answer = undefined;
  }
  if (!response.ok) {
    throw new Problem(response.status, answer?.code ?? "", answer?.detail ?? `The executor answered ${response.status}.`);
  }
  return answer;
}

// signIn is for a session that has ended; after it, the same page comes again.
export function signIn() {
  location.assign("/sign-in?next=" + encodeURIComponent(location.pathname + location.search));
}

// busy keeps a button from being pressed twice. A disabled one would lose the focus.
export async function busy(button, work) {
  button.setAttribute("aria-disabled", "true");
  try {
    return await work();
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

// watchBusy ignores a busy button that is pressed, and does not let it submit its form. So a double click, or a key that
// is held down, posts a form only once.
export function watchBusy() {
  const stop = (event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  const inPlace = (control) => control?.form?.matches("[data-in-place]");
  document.addEventListener("click", (event) => {
    if (event.target.closest("[aria-disabled=true]") || event.detail > 1 && inPlace(event.target.closest("button"))) {
      stop(event);
    }
  }, true);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.repeat && !event.target.matches("textarea") && inPlace(event.target)) {
      stop(event);
    }
  }, true);
}
