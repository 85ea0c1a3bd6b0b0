// Who calls a trigger node: choosing the sender, its secrets, and removing it.
import { busy, call, send } from "./api.js";
import { confirmed } from "./confirm.js";
import { goOn } from "./done.js";
import { fail, succeed } from "./failures.js";

let at; // the sender's path

const here = () => location.pathname + location.search;

export function watchSender() {
  const form = document.querySelector("[data-set-sender]");
  if (!form) {
    return;
  }
  at = form.closest("[data-trigger]").dataset.trigger + "/sender";
  watchChoice(form);
  watchSecrets();
  watchRemove();
}

// words is a refusal without the name that the API has for the field: the form has one of its own.
const words = (problem) => ({ code: problem.code, message: problem.message.replace(/^(preset|secrets?): /, "") });

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function watchChoice(form) {
  const fields = form.querySelector("[data-preset-fields]");
  const refusal = form.querySelector("[data-refusal]");
  let presets;
  const choose = async () => {
    try {
      presets ??= (await call("GET", "/api/v1/senders")).items;
    } catch (problem) {
      fail(refusal, problem);
      return;
    }
    const text = form.elements.preset.value.trim().toLowerCase();
    const preset = presets.find((p) => [p.id, p.title.toLowerCase(), ...p.aliases ?? []].includes(text));
    const begins = presets.some((p) => p.id.includes(text) || p.title.toLowerCase().includes(text));
    form.querySelector("[data-no-preset]").hidden = begins;
    if (fields.dataset.of !== preset?.id) {
      fields.dataset.of = preset?.id ?? "";
      fields.replaceChildren(...(preset ? fieldsOf(preset, preset.id === form.dataset.now, settingsNow) : []));
    }
  };
  const settingsNow = JSON.parse(form.dataset.settingsNow ?? "{}");
  form.elements.preset.addEventListener("input", choose);
  form.elements.preset.addEventListener("change", choose);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    refusal.hidden = true;
    const settings = {};
    for (const input of fields.querySelectorAll("[data-setting]")) {
      if (input.value !== "") {
        settings[input.dataset.setting] = input.value;
      }
    }
    const secret = fields.querySelector("[data-secret]")?.value;
    try {
      await busy(form.querySelector("button"), () => send("PUT", at, {
        preset: fields.dataset.of || form.elements.preset.value, settings, secrets: secret ? [secret] : undefined,
      }));
      goOn(here(), "The sender is set: from the next request on.");
    } catch (problem) {
      fail(refusal, words(problem));
    }
  });
}

// fieldsOf is what a preset asks for, below the steps that connect it. Of the preset that the node has now, the
// secrets stay unless there is another one.
function fieldsOf(preset, has, settingsNow) {
  const parts = has ? [] : [element("ol", { class: "steps" }, ...preset.setup.map((step) => element("li", {}, step)))];
  if (!has) {
    parts.push(...preset.notes.map((note) => element("p", { class: "muted hint" }, note)));
  }
  if (preset.secret) {
    const input = element("input", { id: "sender-secret", "data-secret": "", autocomplete: "off", spellcheck: "false", type: preset.secret.public ? "text" : "password" });
    input.required = !preset.secret.captured && !has;
    const optional = has ? " (empty: those that are there stay)" : preset.secret.captured ? " (leave it empty: the sender brings it)" : "";
    parts.push(element("label", { for: "sender-secret" }, preset.secret.label + optional), input);
  }
  const more = element("details", { class: "rotate" }, element("summary", {}, "More settings"));
  for (const setting of preset.settings) {
    const label = element("label", { for: "setting-" + setting.name }, setting.label);
    const input = settingInput(setting, has ? settingsNow[setting.name] : undefined);
    input.required = setting.required && !(has && setting.secret);
    if (setting.required) {
      parts.push(label, input);
    } else {
      more.append(element("div", { class: "stack" }, label, input));
    }
  }
  return [...parts, more];
}

function settingInput(setting, now) {
  const attributes = { id: "setting-" + setting.name, "data-setting": setting.name };
  if (setting.values) {
    const select = element("select", attributes, ...setting.values.map((value) => element("option", { value }, value)));
    select.value = now ?? setting.default ?? "";
    return select;
  }
  const input = element("input", { ...attributes, type: setting.secret ? "password" : "text", autocomplete: "off", spellcheck: "false", placeholder: setting.default ?? "" });
  input.value = now ?? "";
  return input;
}

function watchSecrets() {
  const refusal = document.querySelector("[data-sender-refusal]");
  document.querySelector("[data-add-secret]")?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = event.target;
    const said = form.querySelector("[data-refusal]");
    said.hidden = true;
    const { secret, ends } = form.elements;
    try {
      await busy(form.querySelector("button"), () => send("POST", at + "/secrets", {
        secret: secret.value, endOthersAfterSeconds: ends.value === "" ? undefined : Number(ends.value),
      }));
      goOn(here(), "The new secret works. Give it to the sender now.");
    } catch (problem) {
      fail(said, words(problem));
    }
  });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-end-secret]");
    if (!button || !await confirmed(document.querySelector("[data-end-secret-dialog]"))) {
      return;
    }
    try {
      await busy(button, () => call("DELETE", at + "/secrets/" + button.dataset.endSecret));
      goOn(here(), "The secret has ended.");
    } catch (problem) {
      fail(refusal, problem);
    }
  });
  document.querySelector("[data-show-captured]")?.addEventListener("click", async () => {
    const said = document.querySelector("[data-captured]");
    try {
      const captured = (await call("GET", at)).secrets.find((secret) => secret.captured)?.captured;
      succeed(said, captured ? element("code", {}, captured) : "It has sent none yet, or it was shown already.");
    } catch (problem) {
      fail(said, problem);
    }
  });
}

function watchRemove() {
  const button = document.querySelector("[data-remove-sender]");
  button?.addEventListener("click", async () => {
    if (!await confirmed(document.querySelector("[data-remove-sender-dialog]"))) {
      return;
    }
    try {
      await busy(button, () => call("DELETE", at));
      goOn(here(), "The sender is removed: the token alone opens it.");
    } catch (problem) {
      fail(document.querySelector("[data-sender-refusal]"), problem);
    }
  });
}
