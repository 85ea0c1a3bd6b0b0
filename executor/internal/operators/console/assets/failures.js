// What did not work is said beside it, until the next action; what could not reach the
// executor, until it is reached again.

// fail says it. In a .refusal there may be more than the text: then [data-text] holds it.
export function fail(element, problem) {
  (element.querySelector("[data-text]") ?? element).textContent = problem.message;
  element.dataset.failed = problem.code ?? "";
  if (element.matches(".refusal")) {
    element.hidden = false;
  } else {
    element.classList.add("bad");
  }
}

// succeed says something in the place of a failure.
export function succeed(element, ...what) {
  delete element.dataset.failed;
  element.classList.remove("bad");
  element.replaceChildren(...what);
}

// forget takes back the failures that were said, with a code only those of that.
export function forget(code) {
  for (const element of document.querySelectorAll("[data-failed]")) {
    if (code !== undefined && element.dataset.failed !== code) {
      continue;
    }
    if (element.matches(".refusal")) {
      element.hidden = true;
      delete element.dataset.failed;
    } else {
      succeed(element);
    }
  }
}
