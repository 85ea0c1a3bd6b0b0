// Many at once: dead letters that are checked, or all that match the filter; rejected executions that run again;
// executions that are canceled.
import { busy, send } from "./api.js";
import { confirmed } from "./confirm.js";
import { goOn } from "./done.js";
import { fail } from "./failures.js";

export function watchBulk() {
  const bar = document.querySelector("[data-bulk]");
  if (bar) {
    watchLetters(bar);
  }
  const replay = document.querySelector("[data-replay-all]");
  if (replay) {
    watchAll(replay, document.querySelector("[data-replay-dialog]"), "/api/v1/executions/replay", replay.dataset.replayAll,
      { replayed: "run again" });
  }
  const cancel = document.querySelector("[data-cancel-all]");
  if (cancel) {
    watchAll(cancel, document.querySelector("[data-cancel-dialog]"), "/api/v1/executions/cancel", cancel.dataset.cancelAll,
      { canceled: "canceled", requested: "asked to end" });
  }
}

function watchLetters(bar) {
  const dialog = document.querySelector("[data-bulk-dialog]");
  const page = bar.querySelector("[data-bulk-page]");
  const all = [...document.querySelectorAll("[data-bulk-one]")];
  const checked = () => all.filter((box) => box.checked).map((box) => box.value);
  const what = () => {
    const n = checked().length;
    return n === 0 ? "all that match" : n === 1 ? "the selected one" : `the ${n} selected`;
  };
  const show = () => {
    const n = checked().length;
    page.checked = n === all.length;
    page.indeterminate = n > 0 && n < all.length;
    for (const place of bar.querySelectorAll("[data-bulk-what]")) {
      place.textContent = what();
    }
  };
  page.addEventListener("change", () => {
    all.forEach((box) => { box.checked = page.checked; });
    show();
  });
  all.forEach((box) => box.addEventListener("change", show));
  show(); // the browser may remember what was checked

  bar.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-bulk-do]");
    if (!button) {
      return;
    }
    const requeue = button.dataset.bulkDo === "requeue";
    const verb = requeue ? "Retry" : "Dismiss";
    const ids = checked();
    dialog.querySelector("[data-bulk-title]").textContent = `${verb} ${what()}`;
    dialog.querySelector("[data-bulk-text]").textContent = requeue
      ? "Each starts once more on its original input, the oldest first. What cannot be retried stays on the list."
      : "What is dismissed leaves this list. An execution stays failed, and can still be run again.";
    const yes = dialog.querySelector("[data-bulk-yes]");
    yes.textContent = verb;
    yes.className = requeue ? "primary" : "danger";
    if (!await confirmed(dialog)) {
      return;
    }
    const said = bar.querySelector("[data-bulk-said]");
    const selected = ids.length > 0 ? { ids } : JSON.parse(bar.dataset.bulk);
    try {
      const name = requeue ? "requeued" : "dismissed";
      const { counts, left } = await busy(button, () => repeat(`/api/v1/dead-letters/${button.dataset.bulkDo}`, selected, [name], said));
      goOn(location.pathname + location.search, `${counts[name]} ${requeue ? "retried" : "dismissed"}.${left}`);
    } catch (problem) {
      fail(said, problem);
    }
  });
}

// watchAll makes a call about all executions that match, after a dialog. words says, for each number in the answer,
// what it counts.
function watchAll(bar, dialog, path, selected, words) {
  const button = bar.querySelector("button");
  const said = bar.querySelector("[data-bulk-said]");
  button.addEventListener("click", async () => {
    if (!await confirmed(dialog)) {
      return;
    }
    try {
      const { counts, left } = await busy(button, () => repeat(path, JSON.parse(selected), Object.keys(words), said));
      const done = Object.entries(words).map(([name, what], i) => (i > 0 && counts[name] === 0 ? "" : `${counts[name]} ${what}`));
      goOn(location.pathname + location.search, `${done.filter(Boolean).join(", ")}.${left}`);
    } catch (problem) {
      fail(said, problem);
    }
  });
}

// repeat makes a call, which is about 10,000 at most, until there are no others. It adds up the numbers in its answers
// that have these names.
async function repeat(path, selected, names, said) {
  const counts = Object.fromEntries(names.map((name) => [name, 0]));
  const sum = () => names.reduce((n, name) => n + counts[name], 0);
  for (;;) {
    const before = sum();
    const answer = await send("POST", path, selected);
    names.forEach((name) => { counts[name] += answer[name]; });
    if (!answer.more || sum() === before) {
      const left = (answer.left ?? []).map((l) => ` ${l.count} not: ${l.code.replaceAll("_", " ")}.`).join("");
      return { counts, left };
    }
    said.textContent = `${sum()} so far …`;
  }
}
