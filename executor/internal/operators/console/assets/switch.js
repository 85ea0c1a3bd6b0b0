// The active switch of a workflow. What the plan refuses is said beside it.
import { busy, call } from "./api.js";
import { fail } from "./failures.js";
import { refreshFragments } from "./fragments.js";

export function watchSwitch() {
  const button = document.querySelector("[data-switch]");
  if (!button) {
    return;
  }
  const path = "/api/v1/workflows/" + encodeURIComponent(button.closest("[data-workflow]").dataset.workflow);
  const refusal = document.querySelector("[data-switch-refusal]");
  button.addEventListener("click", async () => {
    const activate = button.getAttribute("aria-checked") !== "true";
    try {
      const workflow = await busy(button, () => call("POST", path + (activate ? "/activate" : "/deactivate")));
      button.setAttribute("aria-checked", String(workflow.active));
      await refreshFragments();
    } catch (problem) {
      const ofPlan = ["plan_limit_exceeded", "webhooks_not_in_plan"].includes(problem.code);
      // What to do about the plan is on the page, with links: the API's second sentence is not needed.
      refusal.querySelector("[data-plan]").hidden = !ofPlan;
      fail(refusal, { code: problem.code, message: ofPlan ? problem.message.replace(/\. .*/s, ".") : problem.message });
    }
  });
}
