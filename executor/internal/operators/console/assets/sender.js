// The sender of a trigger node: what its form asks for depends on the preset, and comes from the server. Secrets that the
// sender has sent are shown once.
import { Problem, get, signIn, unreachable } from "./api.js";
import { fail, succeed } from "./failures.js";

export function watchSender() {
  const form = document.getElementById("sender-form");
  if (form) {
    watchChoice(form);
    watchCaptured(form.closest("[data-trigger]").dataset.trigger + "/sender");
  }
}

function watchChoice(form) {
  let asked;
  const choose = async () => {
    const fields = form.querySelector("[data-preset-fields]");
    const mine = asked = {};
    const response = await fetch(`${fields.dataset.presetFields}&preset=${encodeURIComponent(form.elements.preset.value)}`).catch(() => undefined);
    const text = await response?.text().catch(() => undefined);
    if (mine !== asked) {
      return; // another one was typed meanwhile
    }
    if (response?.status === 401) {
      signIn();
    } else if (text === undefined) {
      fail(document.getElementById("sender-form-said"), unreachable());
    } else if (!response.ok) {
      const page = new DOMParser().parseFromString(text, "text/html");
      const why = page.querySelector("main .problem")?.textContent ?? `The executor answered ${response.status}.`;
      fail(document.getElementById("sender-form-said"), new Problem(response.status, "", why));
    } else {
      show(fields, text);
    }
  };
  form.elements.preset.addEventListener("input", choose);
  form.elements.preset.addEventListener("change", choose);
  form.addEventListener("answered", ({ detail }) => {
    const theirs = detail.form?.querySelector("[data-preset-fields]");
    if (theirs) {
      show(form.querySelector("[data-preset-fields]"), theirs.outerHTML);
    }
  });
}

// show shows the fields of a preset, unless they are there and something may be typed in them.
function show(fields, text) {
  const template = document.createElement("template");
  template.innerHTML = text;
  const fresh = template.content.firstElementChild;
  if (fresh.dataset.of !== fields.dataset.of) {
    fields.replaceWith(fresh);
  }
}

function watchCaptured(path) {
  document.querySelector("[data-show-captured]")?.addEventListener("click", async () => {
    const said = document.querySelector("[data-captured]");
    try {
      const captured = (await get(path)).secrets.find((secret) => secret.captured)?.captured;
      if (captured) {
        const code = document.createElement("code");
        code.textContent = captured;
        succeed(said, code);
      } else {
        succeed(said, "It has sent none yet, or it was shown already.");
      }
    } catch (problem) {
      fail(said, problem);
    }
  });
}
