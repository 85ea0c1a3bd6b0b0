// Charts say the values of the bar under the pointer, or of the one that the arrow keys have reached.
import { clockOf } from "./times.js";

export function watchCharts() {
  const within = (event) => event.target.closest?.("[data-chart]");
  document.addEventListener("pointermove", (event) => {
    const chart = within(event);
    if (chart) {
      show(chart, event.target.closest(".step"));
    }
  });
  document.addEventListener("pointerout", (event) => {
    const chart = within(event);
    if (chart && !chart.contains(event.relatedTarget)) {
      show(chart, null);
    }
  });
  document.addEventListener("focusout", (event) => within(event) && show(within(event), null));
  document.addEventListener("keydown", (event) => {
    const chart = within(event);
    if (!chart || event.target !== chart) {
      return;
    }
    const steps = [...chart.querySelectorAll(".step")];
    const at = steps.findIndex((step) => step.matches(".on"));
    const last = steps.length - 1;
    const to = { ArrowLeft: at < 0 ? last : Math.max(at - 1, 0), ArrowRight: at < 0 ? 0 : Math.min(at + 1, last), Home: 0, End: last }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      show(chart, steps[to]);
    }
  });
}

function show(chart, step) {
  const before = chart.querySelector(".step.on");
  if (before === step) {
    return;
  }
  before?.classList.remove("on");
  step?.classList.add("on");
  const seconds = Number(chart.querySelector("svg").dataset.step);
  const at = Number(step?.dataset.at);
  chart.parentElement.querySelector("[data-chart-value]").textContent = step
    ? `${clockOf(at)} – ${clockOf(at + seconds * 1000)}: ${step.dataset.value}` : "";
}
