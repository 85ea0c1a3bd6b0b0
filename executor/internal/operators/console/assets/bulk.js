// The selection of dead letters: those that are checked, or all that match the filter.
export function watchBulk() {
  const form = document.querySelector("[data-bulk]");
  if (!form) {
    return;
  }
  const page = form.querySelector("[data-bulk-page]");
  const all = [...document.querySelectorAll("[data-bulk-one]")];
  const show = () => {
    const n = all.filter((box) => box.checked).length;
    page.checked = n === all.length;
    page.indeterminate = n > 0 && n < all.length;
    for (const place of form.querySelectorAll("[data-bulk-what]")) {
      place.textContent = n === 0 ? "all that match" : n === 1 ? "the selected one" : `the ${n} selected`;
    }
  };
  page.addEventListener("change", () => {
    all.forEach((box) => { box.checked = page.checked; });
    show();
  });
  all.forEach((box) => box.addEventListener("change", show));
  form.addEventListener("reset", (event) => event.preventDefault()); // what is checked outlasts a question
  show(); // the browser may remember what was checked
}
