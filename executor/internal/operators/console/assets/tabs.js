// Tabs by the pattern of the ARIA authoring guide: arrows move, one tab is in the tab order.
export function watchTabs() {
  watchWithin(document);
  document.addEventListener("replaced", ({ detail: { after } }) => watchWithin(after));
}

function watchWithin(part) {
  for (const list of part.querySelectorAll("[data-tabs] > [role=tablist]")) {
    const tabs = [...list.querySelectorAll("[role=tab]")];
    const choose = (chosen, focus) => {
      for (const tab of tabs) {
        tab.setAttribute("aria-selected", String(tab === chosen));
        tab.tabIndex = tab === chosen ? 0 : -1;
        document.getElementById(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
      }
      if (focus) {
        chosen.focus();
      }
    };
    list.addEventListener("click", (event) => {
      const tab = event.target.closest("[role=tab]");
      if (tab) {
        choose(tab);
      }
    });
    list.addEventListener("keydown", (event) => {
      const at = tabs.indexOf(event.target);
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (at >= 0 && to !== undefined) {
        event.preventDefault();
        choose(tabs.at(to % tabs.length), true);
      }
    });
  }
}
