// Filters that take effect when a field is changed, without a press of their button. Whoever uses the
// keyboard is on the same field afterwards.
const key = "hookstart-filter";

// focusNext focuses a field of the filters of the next page.
export function focusNext(name) {
  sessionStorage.setItem(key, name);
}

export function watchFilters() {
  for (const form of document.querySelectorAll("[data-auto-filter]")) {
    form.addEventListener("change", (event) => {
      focusNext(event.target.name);
      form.requestSubmit();
    });
    // Empty fields would only make the address longer.
    form.addEventListener("formdata", (event) => {
      for (const [name, value] of [...event.formData]) {
        if (value === "") {
          event.formData.delete(name);
        }
      }
    });
    const before = sessionStorage.getItem(key);
    sessionStorage.removeItem(key);
    if (before && form.elements[before]) {
      form.elements[before].focus();
    }
  }
}
