// What a trigger node does with a request: its filter, order key and answer. The filter is tried on the
// last requests before it is saved, by its form.
import { Problem, get, signIn } from "./api.js";
import { fail, succeed } from "./failures.js";
import { whatIsWrong } from "./sample.js";
import { showTimes } from "./times.js";

const pause = 400; // ms without a key before a filter is tried

let path; // of the trigger node in the API

export function watchHandling() {
  const pane = document.querySelector("[data-trigger]");
  if (!pane) {
    return;
  }
  path = pane.dataset.trigger;
  for (const form of pane.querySelectorAll("[data-handling]")) {
    watchForm(form);
  }
  const details = pane.querySelector("[data-filter-details]");
  if (details) {
    watchFilter(details, details.querySelector("form"), pane);
  }
}

function watchForm(form) {
  const said = form.querySelector("[data-said]");
  form.addEventListener("input", () => {
    form.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
    succeed(said);
  });
  window.addEventListener("beforeunload", (event) => {
    if ([...form.elements].some(isEdited)) {
      event.preventDefault();
    }
  });
}

const isEdited = (field) => (field.type === "checkbox" ? field.checked !== field.defaultChecked
  : field.matches("input:not([type=hidden]), textarea") && field.value !== field.defaultValue);

// watchFilter proposes places and values of the last requests, and shows what the filter does with them.
function watchFilter(details, form, pane) {
  const area = form.elements.filter;
  const said = form.querySelector("[data-said]");
  const [trial, places, list] = ["[data-trial]", "[data-places]", "[data-places-list]"].map((s) => form.querySelector(s));
  const { workflow, node } = pane.dataset;
  let asked, timer;

  const refuse = (text) => {
    area.setAttribute("aria-invalid", "true");
    fail(said, { message: text });
    trial.replaceChildren(); // it was about another filter
  };
  const press = () => {
    const filter = parse(area.value);
    for (const chip of list.querySelectorAll("[data-value]")) {
      const condition = filter && filter[nameOf(filter, chip.dataset.place)];
      chip.setAttribute("aria-pressed", String(valuesOf(condition).map(text).includes(chip.dataset.value)));
    }
  };
  const check = async () => {
    press();
    const wrong = area.value.trim() === "" ? "" : whatIsWrong(area.value);
    if (wrong) {
      refuse(wrong);
      return;
    }
    const mine = asked = {};
    const response = await fetch("/fragments/filter", { method: "POST", body: new URLSearchParams({ workflow, node, filter: area.value }) }).catch(() => undefined);
    const answer = await response?.text().catch(() => undefined);
    if (mine !== asked) {
      return; // another one was written meanwhile
    }
    if (response?.status === 401) {
      signIn();
    } else if (response?.status === 422) {
      refuse(answer);
    } else if (response?.ok && answer !== undefined) {
      area.removeAttribute("aria-invalid");
      succeed(said);
      show(answer);
    } else {
      fail(said, new Problem(0, "unreachable", "It is not known what the filter does: the executor cannot be reached. Try again in a moment."));
    }
  };
  const show = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    const [result, seen] = ["[data-trial-result]", "[data-trial-places]"].map((s) => template.content.querySelector(s));
    showTimes(result);
    trial.replaceChildren(result);
    if (list.childElementCount === 0) { // they do not depend on the filter, and one may have the focus
      list.replaceChildren(...seen.children);
      places.hidden = list.childElementCount === 0;
      press();
    }
  };

  details.addEventListener("toggle", () => {
    if (details.open) {
      list.replaceChildren(); // more requests may have come since it was open
      check();
    }
  });
  area.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(check, pause);
  });
  list.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-value]");
    if (!chip) {
      return;
    }
    const filter = area.value.trim() === "" ? {} : parse(area.value);
    if (!filter) {
      refuse("Mend the filter first: it is no JSON object.");
      return;
    }
    toggle(filter, nameOf(filter, chip.dataset.place), chip.dataset.value);
    area.value = Object.keys(filter).length === 0 ? "" : lines(filter);
    check();
  });
  const order = document.querySelector("[data-handling=orderKey]");
  order?.parentElement.addEventListener("toggle", ({ target }) => target.open && suggest(order, workflow, node));
  let counting;
  order?.elements.place.addEventListener("input", () => {
    clearTimeout(counting);
    counting = setTimeout(() => countValues(order), pause);
  });
}

// countValues shows how many of the last requests have a value at the place of the order key.
async function countValues(form) {
  const place = form.elements.place.value.trim();
  const trial = place === "" ? undefined
    : await get(`${path}/order-key-trial?${new URLSearchParams({ orderKey: place })}`).catch(() => undefined);
  if (form.elements.place.value.trim() !== place) {
    return; // another one was written meanwhile
  }
  form.querySelector("[data-counted]").textContent = !trial?.requests ? ""
    : `${trial.withValue} of the last ${trial.requests} requests ${trial.withValue === 1 ? "has" : "have"} a value there.`;
}

// suggest offers the places of the last requests for the order key, with a value of each.
async function suggest(form, workflow, node) {
  const response = await fetch("/fragments/filter", { method: "POST", body: new URLSearchParams({ workflow, node, filter: "" }) }).catch(() => undefined);
  if (!response?.ok) {
    return; // the place can be written all the same
  }
  const template = document.createElement("template");
  template.innerHTML = await response.text();
  form.querySelector("datalist").replaceChildren(...[...template.content.querySelectorAll(".seen")].map((seen) => {
    const option = document.createElement("option");
    option.value = seen.querySelector("code").textContent;
    option.textContent = `for example ${seen.querySelector(".chip")?.textContent ?? "a long value"}`;
    return option;
  }));
}

// parse reads a filter, and keeps numbers as they are written where the browser can. It is undefined if the text
// is no JSON object.
function parse(json) {
  try {
    const exact = (_, value, context) => (typeof value === "number" && context && JSON.rawJSON ? JSON.rawJSON(context.source) : value);
    const value = JSON.parse(json, exact);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

// nameOf is a place as the filter writes it: the case of a header's name does not matter.
const nameOf = (filter, place) => Object.keys(filter).find((name) => name === place
  || (name.startsWith("header:") && name.toLowerCase() === place.toLowerCase())) ?? place;

const text = (value) => JSON.stringify(value);

// valuesOf are the values that a condition names; of one with operators, none.
function valuesOf(condition) {
  if (condition === undefined) {
    return [];
  }
  if (Array.isArray(condition)) {
    return condition;
  }
  return text(condition).startsWith("{") ? [] : [condition];
}

// toggle adds a value to the condition of a place, or takes it out of it. A condition with operators is replaced.
function toggle(filter, place, json) {
  const values = valuesOf(filter[place]);
  const at = values.map(text).indexOf(json);
  if (at >= 0) {
    values.splice(at, 1);
  } else {
    values.push(parse(`{"value":${json}}`).value);
  }
  if (values.length === 0) {
    delete filter[place];
  } else {
    filter[place] = values.length === 1 ? values[0] : [...values];
  }
}

// lines writes a filter with one place on a line.
const lines = (filter) => `{\n${Object.entries(filter).map(([place, condition]) => `  ${text(place)}: ${text(condition)}`).join(",\n")}\n}`;
