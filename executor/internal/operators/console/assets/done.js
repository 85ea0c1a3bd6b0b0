// What was done is said on the page that comes next.
const key = "hookstart-next";

// goOn goes to a page, which says what was done. If the browser asks whether to leave this page, this page says it,
// too, and stayed is called.
export function goOn(path, done, stayed) {
  sessionStorage.setItem(key, JSON.stringify({ page: new URL(path, location.href).href, done }));
  window.addEventListener("beforeunload", (event) => {
    if (event.defaultPrevented) {
      setTimeout(() => { // after the answer
        say(done);
        stayed?.();
      });
    }
  }, { once: true });
  location.assign(path);
}

// hideDone removes the message about an earlier change.
export function hideDone() {
  sessionStorage.removeItem(key);
  document.querySelector("[data-done]").hidden = true;
}

export function sayDone() {
  const { page, done } = JSON.parse(sessionStorage.getItem(key)) ?? {};
  sessionStorage.removeItem(key);
  if (page === location.href) { // not if the operator has stayed, and gone to another page later
    say(done).focus(); // otherwise the focus would be at the top of the page again
  }
}

function say(done) {
  const place = document.querySelector("[data-done]");
  place.textContent = done;
  place.hidden = false;
  place.tabIndex = -1;
  return place;
}
