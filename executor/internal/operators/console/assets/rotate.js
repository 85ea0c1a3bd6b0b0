// Rotating a trigger's token.
import { busy, send } from "./api.js";
import { fail } from "./failures.js";
import { refreshFragments } from "./fragments.js";
import { hideToken } from "./token.js";

export function watchRotate() {
  const form = document.querySelector("[data-rotate]");
  if (!form) {
    return;
  }
  const pane = form.closest("[data-trigger]");
  const refusal = form.parentElement.querySelector("[data-refusal]");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    refusal.hidden = true;
    const grace = form.elements.grace;
    try {
      await busy(form.querySelector("button"), () => send("POST", pane.dataset.trigger + "/rotate-token", { keepOldForSeconds: Number(grace.value) }));
      hideToken();
      await refreshFragments();
      pane.querySelector("[data-token-said]").textContent = `There is a new URL. The old one ${grace.selectedOptions[0].textContent.replace("ends", "ended")}.`;
      form.closest("details").open = false;
    } catch (problem) {
      fail(refusal, problem);
    }
  });
}
