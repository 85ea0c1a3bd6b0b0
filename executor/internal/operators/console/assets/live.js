// The newest executions, kept up to date. An event only says that something changed; the
// rows come from the server, so that they look the same however they arrive.
import { signIn } from "./api.js";
import { forget } from "./failures.js";
import { refreshFragments } from "./fragments.js";
import { showTimes } from "./times.js";

const gather = 250; // ms: changes that follow each other closely are fetched once
const reopenAfter = 3000; // ms

let live;

export function watchExecutions() {
  const list = document.querySelector("[data-live]");
  if (list) {
    live = new Live(list);
    live.watch();
  }
}

// showStarted shows an execution that was started on this page, whatever is held.
export function showStarted(executionId) {
  live?.expect(executionId);
}

class Live {
  constructor(list) {
    this.list = list;
    this.pager = document.querySelector("[data-pager]");
    this.state = document.querySelector("[data-live-state]");
    this.text = this.state.querySelector("[data-live-text]");
    this.showButton = this.state.querySelector("[data-live-show]");
    this.own = new Set(); // IDs of what was started here and is not shown yet
    this.fetching = false;
    this.again = false;
  }

  watch() {
    // What is under the pointer or has the focus must not move away.
    this.showButton.addEventListener("click", () => this.refresh(true));
    for (const left of ["pointerleave", "focusout"]) {
      this.list.addEventListener(left, () => this.showButton.hidden || this.soon());
    }
    // A tab that nobody sees would only use up one of the browser's few connections.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    if (!document.hidden) {
      this.open();
    }
  }

  open() {
    this.close();
    this.source = new EventSource(this.list.dataset.events);
    this.source.addEventListener("open", () => {
      this.say("live", true);
      forget("unreachable");
      this.soon(); // what was missed meanwhile
    });
    this.source.addEventListener("execution", () => this.soon());
    this.source.addEventListener("error", () => this.lost());
  }

  // lost: a browser connects again by itself when a connection breaks off, and never does
  // when the answer is an error: the session has ended, or a proxy waits for the executor.
  async lost() {
    this.say("connecting …", false);
    const { source } = this;
    if (source.readyState !== EventSource.CLOSED) {
      return;
    }
    await this.refresh(false); // leads to the sign-in, if that is why
    if (source === this.source) {
      this.reopening = setTimeout(() => this.open(), reopenAfter);
    }
  }

  close() {
    clearTimeout(this.reopening);
    this.source?.close();
    this.source = undefined;
  }

  say(text, on) {
    this.text.textContent = text;
    this.state.classList.toggle("on", on);
  }

  soon() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.refresh(false);
    }, gather);
  }

  expect(executionId) {
    this.own.add(executionId);
    this.soon();
  }

  // held says whether somebody is at the list. A focus that came by the pointer goes with it.
  held() {
    return this.list.matches(":hover") || this.list.querySelector(":focus-visible") !== null;
  }

  async refresh(showAll) {
    if (this.fetching) {
      this.again = true;
      return;
    }
    this.fetching = true;
    try {
      const response = await fetch(this.list.dataset.live);
      if (response.status === 401) {
        this.close(); // who stays for what is not saved is asked once
        this.say("signed out", false);
        signIn();
        return;
      }
      if (response.ok) {
        this.merge(await response.text(), showAll);
      }
    } catch {
      this.say("connecting …", false);
    } finally {
      this.fetching = false;
      if (this.again) {
        this.again = false;
        this.soon();
      }
    }
  }

  merge(html, showAll) {
    const template = document.createElement("template");
    template.innerHTML = html;
    const fresh = [...template.content.querySelectorAll("[data-id]")];
    showTimes(template.content);
    const shown = new Map([...this.list.querySelectorAll("[data-id]")].map((row) => [row.dataset.id, row]));
    const arrived = fresh.filter((row) => !shown.has(row.dataset.id));
    if (shown.size > 0 && arrived.some((row) => row.querySelector(".status.rejected"))) {
      refreshFragments(); // the workflow has probably been deactivated
    }
    if (arrived.length > 0 && shown.size > 0 && !showAll && this.held()) {
      this.hold(fresh, arrived, shown);
      return;
    }
    for (const row of fresh) {
      this.own.delete(row.dataset.id); // others may not be recorded yet
    }
    this.hideButton();
    const rows = fresh.map((row) => {
      const have = shown.get(row.dataset.id);
      if (have) {
        update(have, row);
        return have;
      }
      row.classList.add("new");
      return row;
    });
    this.goOnAfter(template.content.querySelector("[data-older]"));
    if (rows.length === 0) {
      this.list.replaceChildren(template.content);
      return;
    }
    for (const row of [...this.list.children].filter((row) => !rows.includes(row))) {
      row.remove();
    }
    rows.forEach((row, i) => { // what stays is not touched: it may have the focus
      if (row !== this.list.children[i]) {
        this.list.insertBefore(row, this.list.children[i] ?? null);
      }
    });
  }

  // hold leaves the rows where they are, but for those that were started here.
  hold(fresh, arrived, shown) {
    for (const row of fresh) {
      update(shown.get(row.dataset.id), row);
    }
    const own = arrived.filter((row) => this.own.delete(row.dataset.id));
    own.forEach((row) => row.classList.add("new"));
    this.list.prepend(...own);
    const others = arrived.length - own.length;
    this.showButton.textContent = `${others} new: show`;
    if (others > 0) {
      this.showButton.hidden = false;
    } else {
      this.hideButton();
    }
  }

  hideButton() {
    if (document.activeElement === this.showButton) {
      this.state.tabIndex = -1; // the focus stays here, and not in the list, which it would hold
      this.state.focus();
    }
    this.showButton.hidden = true;
  }

  // goOnAfter makes "Older" begin after the last row that is shown now.
  goOnAfter(fresh) {
    fresh?.remove();
    const before = this.pager.querySelector("[data-older]");
    if (before && fresh) {
      before.href = fresh.href; // it may have the focus
    } else if (fresh) {
      this.pager.append(fresh);
    } else {
      before?.remove();
    }
  }
}

// update replaces what has changed in a row, and leaves a button that has the focus.
function update(row, fresh) {
  if (!row) {
    return;
  }
  for (const kind of ["status", "what", "came", "again"]) {
    const [before, after] = [row.querySelector(`:scope > .${kind}`), fresh.querySelector(`:scope > .${kind}`)];
    if (before.outerHTML !== after.outerHTML && !before.contains(document.activeElement)) {
      before.replaceWith(after.cloneNode(true));
    }
  }
}
