// Forms that are posted to the console. Without this script, the browser shows the response as a new page. With it, the
// page stays and shows what the response says about the form, in the element whose ID is the form's ID with "-said", or
// in the one that the form names. If the response asks for confirmation in an open dialog, the page opens that dialog.
import { Problem, busy, changing, signIn, unreachable } from "./api.js";
import { goOn } from "./done.js";
import { fail, succeed } from "./failures.js";
import { refreshFragments } from "./fragments.js";

export function watchPosts() {
  document.addEventListener("submit", (event) => {
    if (event.target.matches("[data-in-place]")) {
      event.preventDefault();
      post(event.target, event.submitter ?? event.target.querySelector("button"));
    }
  });
}

const posted = "posted"; // a dialog's return value if it was closed because its form was posted

async function post(form, button) {
  const id = form.getAttribute("id"); // form.id is the form's field of that name, if it has one
  const said = document.getElementById(form.dataset.said ?? `${id}-said`);
  try {
    const asked = busy(button, () => changing(() => ask(form, button)));
    button.closest("dialog")?.close(posted); // the form has its answer to the question
    const { response, page } = await asked;
    const answered = page.getElementById(id);
    if (!response.ok) {
      refuse(form, said, response, page, answered);
      return;
    }
    if (answered) {
      adopt(form, answered, true); // nothing is left to lose
    }
    const once = page.querySelector("[data-shown-once]");
    if (once) {
      form.reset();
      document.getElementById(once.id).replaceWith(once);
      once.focus();
      return;
    }
    const done = page.querySelector("[data-done]").textContent;
    const { pathname, search } = new URL(response.url);
    if (form.dataset.inPlace === "page" || pathname !== location.pathname || !answered) {
      goOn(pathname + search, done);
      return;
    }
    document.title = page.title;
    if (said.matches(".refusal")) {
      said.hidden = true;
    } else {
      succeed(said, done);
    }
    await refreshFragments(button);
  } catch (problem) {
    for (const part of said.children) { // they were about another failure
      part.hidden = !part.matches("[data-text]");
    }
    fail(said, problem);
  }
}

async function ask(form, button) {
  const body = new URLSearchParams(new FormData(form, button));
  const response = await fetch(form.getAttribute("action"), { method: "POST", body }).catch(() => undefined);
  const text = await response?.text().catch(() => undefined);
  if (text === undefined) {
    throw unreachable();
  }
  if (response.status === 401 || new URL(response.url).pathname === "/sign-in") {
    signIn();
    throw new Problem(401, "unauthorized", "The session has expired. Sign in, then repeat the change.");
  }
  return { response, page: new DOMParser().parseFromString(text, "text/html") };
}

// refuse shows why the form was not saved, according to the same form in the response, or to an error page.
function refuse(form, said, response, page, answered) {
  const question = page.querySelector("dialog[open]");
  if (question) {
    confirm(form, document.getElementById(question.id), question);
    return;
  }
  const text = page.getElementById(said.id);
  if (!answered || !text) {
    const why = page.querySelector("main .problem")?.textContent ?? `The executor answered ${response.status}.`;
    throw new Problem(response.status, "", why);
  }
  adopt(form, answered, false);
  const message = (text.querySelector("[data-text]") ?? text).textContent;
  if (said.matches(".refusal")) {
    said.replaceChildren(...text.childNodes);
  }
  fail(said, { message });
  form.querySelector("[aria-invalid=true]")?.focus();
}

// confirm shows the question of the answer. Its button posts the form again.
function confirm(form, dialog, question) {
  dialog.replaceChildren(...question.childNodes);
  dialog.returnValue = "";
  dialog.addEventListener("close", () => dialog.returnValue === posted || form.reset(), { once: true });
  dialog.showModal();
}

// adopt sets the controls of a form, and the messages beside them, to those in the response. After a failure, it keeps
// what was typed and does not treat it as saved.
function adopt(form, answered, saved) {
  const taken = new Set();
  for (const theirs of answered.elements) {
    const mine = [...form.elements].find((control) => control.name !== "" && control.name === theirs.name && !taken.has(control));
    if (!mine) {
      continue;
    }
    taken.add(mine);
    for (const name of ["aria-invalid", "aria-checked"]) {
      if (theirs.hasAttribute(name)) {
        mine.setAttribute(name, theirs.getAttribute(name));
      } else {
        mine.removeAttribute(name);
      }
    }
    if (mine.matches("[aria-checked], [type=hidden]")) { // another button keeps its text, and so its value
      mine.value = theirs.value;
    } else if (mine.matches("[type=checkbox]")) {
      if (saved) {
        mine.checked = mine.defaultChecked = theirs.checked;
      }
    } else if (mine.matches("input, textarea") && (saved || mine.value !== theirs.value)) {
      mine.value = mine.defaultValue = theirs.value;
    }
  }
  const problems = answered.querySelectorAll("[data-problem]");
  form.querySelectorAll("[data-problem]").forEach((mine, i) => {
    mine.textContent = problems[i].textContent;
    mine.hidden = problems[i].hidden;
  });
}
