// Many dead letters at once: those that are checked, or all that match the filter; all rejected executions.
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
    watchReplay(replay);
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
      const { done, left } = await busy(button, () => repeat(`/api/v1/dead-letters/${button.dataset.bulkDo}`, selected, requeue ? "requeued" : "dismissed", said));
      goOn(location.pathname + location.search, `${done} ${requeue ? "retried" : "dismissed"}.${left}`);
    } catch (problem) {
      fail(said, problem);
    }
  });
}

function watchReplay(bar) {
  const dialog = document.querySelector("[data-replay-dialog]");
  const button = bar.querySelector("[data-replay-all-do]");
  const said = bar.querySelector("[data-bulk-said]");
  button.addEventListener("click", async () => {
    if (!await confirmed(dialog)) {
      return;
    }
    try {
      const { done, left } = await busy(button, () => repeat("/api/v1/executions/replay", JSON.parse(bar.dataset.replayAll), "replayed", said));
      goOn(location.pathname + location.search, `${done} run again.${left}`);
    } catch (problem) {
      fail(said, problem);
    }
  });
}

// repeat makes a call, which is about 10,000 at most, until there are no others.
async function repeat(path, selected, name, said) {
  for (let done = 0; ;) {
    const answer = await send("POST", path, selected);
    done += answer[name];
    if (!answer.more || answer[name] === 0) {
      const left = (answer.left ?? []).map((l) => ` ${l.count} not: ${l.code.replaceAll("_", " ")}.`).join("");
      return { done, left };
    }
    said.textContent = `${done} so far …`;
  }
}
