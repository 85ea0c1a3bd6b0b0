// The key "/" goes to the search of a page, or to the one of the executions.
import { focusNext } from "./filters.js";

export function watchSearch() {
  document.addEventListener("keydown", (event) => {
    const writes = event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || writes || document.querySelector("dialog[open]")) {
      return;
    }
    const field = document.querySelector("[data-search]");
    if (field) {
      event.preventDefault();
      field.focus();
      field.select();
    } else if (document.querySelector("nav a[href='/executions']")) {
      event.preventDefault();
      focusNext("delivery");
      location.assign("/executions");
    }
  });
}
