// Making keys, each shown once, and revoking them.
import { busy, call, send } from "./api.js";
import { confirmed } from "./confirm.js";
import { goOn } from "./done.js";
import { fail } from "./failures.js";

export function watchKeys() {
  const form = document.querySelector("[data-create-key]");
  if (form) {
    watchNew(form);
    watchRevoke();
  }
}

function watchNew(form) {
  const refusal = form.querySelector("[data-refusal]");
  const { role, account } = form.elements;
  role.addEventListener("change", () => {
    account.disabled = role.value === "admin";
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    refusal.hidden = true;
    try {
      await busy(form.querySelector("button"), () => make(form));
    } catch (problem) {
      fail(refusal, problem);
    }
  });
}

// make shows the key in this page only: leaving or loading it again forgets it.
async function make(form) {
  const { name, role, account, expires } = form.elements;
  const made = await send("POST", "/api/v1/keys", {
    name: name.value, role: role.value,
    accountId: account.disabled || account.value === "" ? undefined : account.value,
    expiresAt: expires.value === "" ? undefined : new Date(Date.now() + Number(expires.value) * 1000).toISOString(),
  });
  const shown = document.querySelector("[data-made-key]");
  shown.querySelector("[data-made-name]").textContent = made.name;
  shown.querySelector("[data-copy-text]").textContent = made.key;
  shown.hidden = false;
  form.reset();
  account.disabled = false;
  shown.focus();
}

function watchRevoke() {
  const dialog = document.querySelector("[data-revoke-dialog]");
  const refusal = document.querySelector("[data-revoke-refusal]");
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-revoke]");
    if (!button) {
      return;
    }
    dialog.querySelector("[data-revoke-name]").textContent = button.dataset.name;
    if (!await confirmed(dialog)) {
      return;
    }
    try {
      await busy(button, () => call("DELETE", button.dataset.revoke));
      goOn("/keys", `“${button.dataset.name}” is revoked.`);
    } catch (problem) {
      fail(refusal, problem);
    }
  });
}
