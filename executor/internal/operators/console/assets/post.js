// Forms that are posted to the console. Without this script, the browser shows the response as a new page. With it, the
// page stays and shows what the response says about the form, in the element whose ID is the form's ID with "-said", or
// in the one that the button or the form names. data-refused names the element of the response that says why the form
// was refused, if it has another ID. If the response asks for confirmation in an open dialog, the page opens that
// dialog. If the response says that there is more to do, the form is posted again. A button with data-once works only
// once, and then says so.
import { Problem, busy, changing, signIn, unreachable } from "./api.js";
import { chosen } from "./confirm.js";
import { goOn, hideDone } from "./done.js";
import { fail, succeed } from "./failures.js";
import { refreshFragments } from "./fragments.js";
import { sayStarted } from "./started.js";

export function watchPosts() {
  document.addEventListener("submit", (event) => {
    if (event.target.matches("[data-in-place]")) {
      event.preventDefault();
      post(event.target, event.submitter ?? event.target.querySelector("button"));
    }
  });
  window.addEventListener("pageshow", ({ persisted }) => persisted && underWay.clear());
}

const underWay = new Set(); // addresses whose response or next page is awaited
const openers = new WeakMap(); // for each dialog, the button that it asks about
const posted = "posted"; // a dialog's return value if it was closed because its form was posted

async function post(form, button) {
  const address = button.getAttribute("formaction") ?? form.getAttribute("action");
  if (underWay.has(address)) {
    return;
  }
  const id = form.getAttribute("id"); // form.id is the form's field of that name, if it has one
  const said = document.getElementById(button.dataset.said ?? form.dataset.said ?? `${id}-said`);
  hideDone();
  try {
    const values = new FormData(form, button);
    underWay.add(address);
    const dialog = button.closest("dialog");
    const asked = busy(openers.get(dialog) ?? button, () => changing(() => askAll(address, values, said)))
      .finally(() => underWay.delete(address));
    dialog?.close(posted); // the form has its answer to the question
    const { saved, response, page } = await asked;
    if (saved) {
      setSaved(form, button, values);
      if (form.dataset.inPlace === "page") {
        underWay.add(address);
        goOn(saved.page, saved.done, () => underWay.delete(address));
      } else {
        await showSaved(form, button, said, saved, values);
      }
      return;
    }
    const once = page.querySelector("[data-shown-once]");
    if (once) {
      adopt(form, page.getElementById(id), values); // it has none of the problems of an attempt before
      form.reset();
      document.getElementById(once.id).replaceWith(once);
      once.focus();
      return;
    }
    await refuse(form, button, said, response, page, values);
  } catch (problem) {
    for (const part of said.children) { // they were about another failure
      part.hidden = !part.matches("[data-text]");
    }
    fail(said, problem);
  }
}

// askAll posts a form until nothing is left to do, and shows how far it is. It returns what ask returns at last.
async function askAll(address, values, said) {
  for (;;) {
    const answer = await ask(address, values);
    if (!answer.saved?.again) {
      return answer;
    }
    for (const [name, value] of Object.entries(answer.saved.again)) {
      values.set(name, value);
    }
    succeed(said, answer.saved.done);
  }
}

// ask posts a form. It returns what the response says if the form was saved, or the page in the response.
async function ask(address, values) {
  const body = new URLSearchParams(values);
  const response = await fetch(address, { method: "POST", body, headers: { Accept: "application/json" } })
    .catch(() => undefined);
  const text = await response?.text().catch(() => undefined);
  if (text === undefined) {
    throw unreachable();
  }
  if (response.status === 401) {
    signIn();
    throw new Problem(401, "unauthorized", "The session has expired. Sign in, then repeat the change.");
  }
  if (response.ok && response.headers.get("Content-Type") === "application/json") { // not a gateway's refusal
    return { saved: JSON.parse(text) };
  }
  return { response, page: new DOMParser().parseFromString(text, "text/html") };
}

// setSaved marks as saved what was posted, but not what was typed since then.
function setSaved(form, button, values) {
  for (const control of form.elements) {
    const { name, value } = control;
    const saved = values.getAll(name).map((each) => each.replaceAll("\r\n", "\n"));
    if (name.startsWith("shown.")) {
      const of = name.slice("shown.".length);
      if (button.name === "" && form.elements[of]) { // another button may save another value
        control.value = values.get(of) ?? "";
      }
    } else if (control.matches("select")) {
      setDefault(control, saved[0]);
    } else if (control.matches("[type=checkbox], [type=radio]")) {
      control.defaultChecked = saved.includes(value);
    } else if (control.matches("[type=password]")) {
      if (saved.includes(value)) {
        control.value = ""; // the page does not keep a secret
      }
    } else if (control.matches("input, textarea") && saved.includes(value)) {
      control.defaultValue = value;
    }
  }
}

// showSaved refreshes the part of the page that shows the result.
async function showSaved(form, button, said, saved, values) {
  const { page, done, started, fields } = saved;
  for (const [name, value] of Object.entries(fields ?? {})) {
    if (name !== "key" || form.elements.key.value === values.get("key")) { // else another button has renewed it
      form.elements[name].value = value;
    }
  }
  form.dispatchEvent(new CustomEvent("answered", { detail: { saved, values } }));
  if (started) {
    sayStarted(said, started, done);
    if (button.dataset.once) { // it may have the focus, and keeps it
      button.textContent = button.dataset.once;
      button.setAttribute("aria-disabled", "true");
    }
    return;
  }
  if (said.matches(".refusal")) {
    said.hidden = true;
  } else {
    succeed(said, done, ...linkTo(page));
  }
  await refreshFragments(button);
  if (document.activeElement === document.body && !said.hidden) { // the button is gone, and had the focus
    said.focus();
  }
}

// linkTo returns a link to the part of this page that shows the result, if the response names one.
function linkTo(page) {
  const { hash } = new URL(page, location.href);
  if (hash === "") {
    return [];
  }
  const link = document.createElement("a");
  link.href = hash;
  link.textContent = "Show them";
  return [" ", link];
}

// refuse shows why the form was not saved, according to the same form in the response, or to an error page.
async function refuse(form, button, said, response, page, values) {
  const question = page.querySelector("dialog[open]");
  if (question) {
    const dialog = document.getElementById(question.id);
    openers.set(dialog, openers.get(button.closest("dialog")) ?? button);
    await confirm(form, dialog, question);
    return;
  }
  const text = page.getElementById(form.dataset.refused ?? said.id);
  const message = (text?.querySelector("[data-text]") ?? text)?.textContent.trim();
  if (!message) {
    const why = page.querySelector("main .problem")?.textContent ?? `The executor answered ${response.status}.`;
    throw new Problem(response.status, "", why);
  }
  const answered = page.getElementById(form.getAttribute("id"));
  if (answered) { // not if somebody else has changed what the form is about
    adopt(form, answered, values);
    form.dispatchEvent(new CustomEvent("answered", { detail: { form: answered } }));
  }
  if (said.matches(".refusal")) {
    said.replaceChildren(...text.childNodes);
  }
  fail(said, { message });
  const invalid = form.querySelector("[aria-invalid=true]");
  const details = invalid?.closest("details");
  if (details) {
    details.open = true;
  }
  invalid?.focus();
}

// confirm asks the question in the response. One of the buttons posts the form again, also if the form has another ID
// in the response.
async function confirm(form, dialog, question) {
  dialog.replaceChildren(...question.childNodes);
  for (const button of dialog.querySelectorAll("[form]")) {
    button.setAttribute("form", form.getAttribute("id"));
  }
  if (await chosen(dialog) !== posted) {
    form.reset();
  }
}

// adopt sets the controls of a form that was not saved, and the messages beside them, to those in the response. It
// keeps what was typed, even while the response was awaited, and does not treat it as saved.
function adopt(form, answered, values) {
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
    if (mine.name === "of" || mine.name === "key" && mine.value !== values.get("key")) {
      continue; // the page still has the fields of that preset; another button has renewed the key
    }
    if (mine.matches("[aria-checked], [type=hidden]")) { // another button keeps its text, and so its value
      mine.value = theirs.value;
    } else if (mine.matches("select")) {
      setDefault(mine, answered.elements[`shown.${mine.name}`]?.value);
    } else if (mine.matches("input:not([type=checkbox], [type=password]), textarea") && mine.value === mine.defaultValue) {
      mine.value = mine.defaultValue = theirs.value;
    }
  }
  const problems = answered.querySelectorAll("[data-problem]");
  form.querySelectorAll("[data-problem]").forEach((mine, i) => {
    mine.textContent = problems[i].textContent;
    mine.hidden = problems[i].hidden;
  });
}

// setDefault sets the value that a select has after the form was reset. undefined changes nothing.
function setDefault(select, shown) {
  if (shown === undefined) {
    return;
  }
  const { value } = select;
  for (const option of select.options) {
    option.defaultSelected = option.value === shown;
  }
  select.value = value;
}
