// Times come from the server as UTC and become local here; relative ones stay current.
// Hours are 0 to 23, unless the browser's language says otherwise by itself, as en-US-u-hc-h12 does.
const { hourCycle = "h23" } = new Intl.Locale(navigator.language);
const exact = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, timeZoneName: "short", hourCycle,
});
const moment = new Intl.DateTimeFormat(undefined, {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle,
});
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle });
const dayAndTime = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle });
const minute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle });
const everySecond = 1000;
const hour = 3600; // seconds
const day = 24 * hour;

// relative uses the words of humantext.Ago.
function relative(at) {
  const seconds = Math.round((Date.now() - at) / 1000);
  if (seconds >= 5) {
    return `${duration(seconds)} ago`;
  }
  if (seconds > -2) {
    return "just now";
  }
  // Rounded: what was asked to last 90 days does not end in 89 a moment later.
  const left = -seconds;
  const unit = left >= 2 * day ? hour : left > hour ? 60 : 1;
  return `in ${duration(Math.round(left / unit) * unit)}`;
}

// duration rounds down to the largest unit. Less than two days are hours.
function duration(seconds) {
  return seconds < 60 ? `${seconds} s`
    : seconds < hour ? `${Math.floor(seconds / 60)} min`
    : seconds < 2 * day ? `${Math.floor(seconds / hour)} h`
    : `${Math.floor(seconds / day)} days`;
}

function local(at) {
  return new Date(at).toDateString() === new Date().toDateString() ? clock.format(at) : dayAndTime.format(at);
}

// clockOf is a time of the last day, to the minute.
export const clockOf = (at) => minute.format(at);

export function showTimes(within) {
  for (const element of within.querySelectorAll("time[data-time]")) {
    const at = Date.parse(element.dateTime);
    if (!element.dataset.local) {
      element.title = `${exact.format(at)} (${element.dateTime})`;
      element.dataset.local = "yes";
    }
    const text = { exact: () => moment.format(at), local: () => local(at), relative: () => relative(at) }[element.dataset.time]();
    if (element.textContent !== text) {
      element.textContent = text;
    }
  }
}

// showZone says which zone the times on the page are in, since most of them only say it when one points at them.
function showZone() {
  const element = document.querySelector("[data-zone]");
  if (element) {
    const short = exact.formatToParts().find((part) => part.type === "timeZoneName").value;
    const name = exact.resolvedOptions().timeZone;
    element.textContent = `Times are in ${short}${name === short ? "" : ` (${name})`}.`;
  }
}

export function keepTimes() {
  showZone();
  showTimes(document);
  setInterval(() => document.hidden || showTimes(document), everySecond);
}
