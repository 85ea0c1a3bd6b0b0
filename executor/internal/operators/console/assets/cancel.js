// Canceling an execution.
import { busy, call } from "./api.js";
import { fail, succeed } from "./failures.js";
import { refreshFragments } from "./fragments.js";

export function watchCancel() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-cancel]");
    if (!button) {
      return;
    }
    const said = (button.closest("aside") ?? document).querySelector(".again [data-said]");
    try {
      const { status } = await busy(button, () => call("POST", button.dataset.cancel));
      succeed(said, status === "canceled" ? "It is canceled." : "It runs, and is asked to end.");
      await refreshFragments(button);
      if (document.activeElement === document.body) { // the button is gone, and had the focus
        said.tabIndex = -1;
        said.focus();
      }
    } catch (problem) {
      fail(said, problem);
    }
  });
}
