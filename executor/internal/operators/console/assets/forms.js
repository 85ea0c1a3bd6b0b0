// Forms that create accounts and workflows.
export function watchForms() {
  for (const field of document.querySelectorAll("[data-slug-of]")) {
    suggest(field, field.form.elements[field.dataset.slugOf]);
  }
}

// suggest fills in an ID made of the name, until somebody writes another.
function suggest(id, name) {
  let own = false;
  id.addEventListener("input", () => { own = id.value !== ""; });
  name.addEventListener("input", () => {
    if (!own) {
      id.value = name.value.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase()
        .replace(/[^a-z0-9_]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 64);
    }
  });
}
