// The sample payload: checked as one types. Its form, which post.js posts, saves it and sends it as a test.
import { succeed } from "./failures.js";

const maxBytes = 512 * 1024;

export function watchSample() {
  const form = document.querySelector("[data-sample]");
  if (!form) {
    return;
  }
  const area = form.elements.sample;
  const said = form.querySelector("[data-sample-said]");
  const [test, save, format, unsaved] = ["[data-send-test]", "[data-save-sample]", "[data-format-sample]", "[data-unsaved]"].map((s) => form.querySelector(s));
  const past = form.querySelector("[data-run-past]"); // of a node with a sender
  let saved = area.value;

  const say = (text, bad) => {
    succeed(said, text);
    said.classList.toggle("bad", Boolean(bad));
  };
  const check = () => {
    const wrong = area.value.trim() === "" ? "" : whatIsWrong(area.value);
    const empty = area.value.trim() === "";
    unsaved.classList.toggle("on", area.value !== saved);
    area.setAttribute("aria-invalid", String(wrong !== ""));
    test.disabled = save.disabled = empty || wrong !== "";
    if (past) {
      past.disabled = test.disabled;
    }
    format.disabled = empty || wrong !== "";
    const verb = test.dataset.verb;
    test.textContent = area.value === saved ? verb : "Save and " + verb[0].toLowerCase() + verb.slice(1);
    say(wrong || (empty ? "None yet. A test and Run again need one." : area.value === saved ? "" : "Valid JSON, not saved yet."), wrong);
  };
  form.addEventListener("answered", ({ detail }) => {
    const theirs = detail.form?.elements.sample;
    if (detail.saved) {
      saved = detail.values.get("sample").replaceAll("\r\n", "\n");
    } else if (theirs?.hasAttribute("data-stored")) {
      saved = area.defaultValue = theirs.value;
    }
    check();
    if (theirs?.matches("[aria-invalid=true]")) {
      area.setAttribute("aria-invalid", "true"); // what the browser accepts may still be refused
    }
  });

  // What is only here would be lost: the browser asks first.
  window.addEventListener("beforeunload", (event) => {
    if (area.value !== saved) {
      event.preventDefault();
    }
  });
  area.addEventListener("input", check);
  format.addEventListener("click", () => {
    area.value = pretty(area.value);
    check();
  });
  format.hidden = false;
  if (!said.matches(".bad")) { // else the page says why the form was refused
    check();
  }
}

// whatIsWrong says it with line and column; "": nothing.
export function whatIsWrong(text) {
  const size = new TextEncoder().encode(text).length;
  if (size > maxBytes) {
    return `Too long: ${Math.ceil(size / 1024)} KB of at most ${maxBytes / 1024} KB.`;
  }
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    const place = placeOf(error.message, text) ?? placeOfToken(text);
    const reason = error.message.replace(/^JSON\.parse: |( in JSON)? at (position|line) .*$|, (\.\.\.)?".*is not valid JSON$/gs, "");
    return "Not JSON: " + (place ? `line ${place.line}, column ${place.column}: ` : "") + reason;
  }
}

// placeOf reads the place out of an error message: browsers name it in different ways, or
// not at all when the text ends too early.
function placeOf(message, text) {
  const named = /line (\d+) column (\d+)/.exec(message);
  if (named) {
    return { line: Number(named[1]), column: Number(named[2]) };
  }
  const position = /position (\d+)/.exec(message);
  if (!position && !/end|unterminated/i.test(message)) {
    return undefined;
  }
  return lineAndColumn(text.slice(0, position ? Number(position[1]) : text.trimEnd().length));
}

// placeOfToken finds the token that JSON.parse does not expect where its message names no place:
// a text that ends before it fails in another way.
function placeOfToken(text) {
  const holdsIt = (length) => {
    try {
      JSON.parse(text.slice(0, length));
      return false;
    } catch (error) {
      return /^Unexpected token/.test(error.message);
    }
  };
  let [without, including] = [0, text.length];
  if (!holdsIt(including)) {
    return undefined;
  }
  while (including - without > 1) {
    const middle = Math.floor((without + including) / 2);
    [without, including] = holdsIt(middle) ? [without, middle] : [middle, including];
  }
  return lineAndColumn(text.slice(0, without));
}

function lineAndColumn(before) {
  const lines = before.split("\n");
  return { line: lines.length, column: lines.at(-1).length + 1 };
}

// pretty indents by the text itself: JSON.parse would round long numbers.
function pretty(text) {
  let out = "", depth = 0;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  tokens.forEach((token, i) => {
    const line = () => "\n" + "  ".repeat(depth);
    if (token === "{" || token === "[") {
      const empty = tokens[i + 1] === "}" || tokens[i + 1] === "]";
      depth++;
      out += token + (empty ? "" : line());
    } else if (token === "}" || token === "]") {
      depth--;
      out += (tokens[i - 1] === "{" || tokens[i - 1] === "[" ? "" : line()) + token;
    } else if (token === ",") {
      out += "," + line();
    } else {
      out += token === ":" ? ": " : token;
    }
  });
  return out;
}
