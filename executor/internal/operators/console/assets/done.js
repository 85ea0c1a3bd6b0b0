// What was done is said on the page that comes next.
const key = "hookstart-done";

// goOn goes to a page, which says what was done.
export function goOn(path, done) {
  sessionStorage.setItem(key, done);
  location.assign(path);
}

// hideDone removes the message about an earlier change.
export function hideDone() {
  document.querySelector("[data-done]").hidden = true;
}

export function sayDone() {
  const done = sessionStorage.getItem(key);
  if (done === null) {
    return;
  }
  sessionStorage.removeItem(key);
  const place = document.querySelector("[data-done]");
  place.textContent = done;
  place.hidden = false;
  place.tabIndex = -1;
  place.focus(); // or who uses the keyboard begins at the top again
}
