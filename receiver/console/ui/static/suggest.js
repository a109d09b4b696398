// Completion of a filter while it is typed: fields, keys of attributes and stored values, as a combobox with a list.

import { element, selectOption } from "./elements.js";
import { keyTerms, lastTerm, matching, operatorTerms, valueText, valuesQuestion } from "./terms.js";

const SHOWN_MAX = 12;
const LINES_MAX = 1000; // limit of lines in a query
const AFTER_MS = 120; // pause in typing before the receiver is queried

const answers = new Map();

async function linesOf(path, parameters = {}) {
  const { since, until } = document.getElementById("filter").form.elements;
  const range = { since: since.value, ...(until && { until: until.value }) };
  const url = `/api/v1/${path}?${new URLSearchParams({ ...parameters, ...range, limit: LINES_MAX })}`;
  if (!answers.has(url)) {
    const answer = await fetch(url);
    const lines = answer.ok ? (await answer.text()).trim().split("\n") : [];
    // The last line is the mark of the end.
    answers.set(url, lines.slice(0, -1).map((line) => JSON.parse(line)));
  }
  return answers.get(url);
}

// The completions of a term: each with its text and, if it is a stored key or value, its number of spans.
async function candidatesFor(term, known) {
  const fields = known.map((text) => text.replace(/[=>].*$/, ""));
  if (!term.operator) {
    const rows = term.field ? await linesOf("attributes") : [];
    const names = [...known.filter((text) => !/=./.test(text)), ...keyTerms(rows, term.field)];
    const spans = new Map(rows.flatMap((row) => keyTerms([row], term.field).map((name) => [name, row.spans])));
    const texts = [...operatorTerms(names, term.field), ...matching(names, term.field, SHOWN_MAX)];
    return [...new Set(texts)].slice(0, SHOWN_MAX).map((text) => ({ text, spans: spans.get(text) }));
  }
  const begin = term.field + term.operator;
  const words = known.filter((text) => text.startsWith(`${term.field}=`) && text.length > term.field.length + 1);
  const spans = new Map(words.map((text) => [text.slice(term.field.length + 1), undefined]));
  const question = words.length ? null : valuesQuestion(term.field, fields);
  if (question) {
    const isQuoted = term.value.startsWith('"');
    for (const row of await linesOf(question.path, question.parameters)) {
      const value = row[question.property] && valueText(row[question.property], isQuoted);
      if (value) spans.set(value, (spans.get(value) ?? 0) + row.spans);
    }
  }
  return matching([...spans.keys()], term.value, SHOWN_MAX).map((value) => ({ text: begin + value, spans: spans.get(value) }));
}

function combobox(input) {
  const known = input.dataset.known.split(" ");
  const list = element("ul", { id: "suggestions", hidden: true, role: "listbox", ariaLabel: "Completions of the filter" });
  // Outside of the label, because its text is the name of the input.
  input.form.append(list);
  list.style.left = `${input.offsetLeft}px`;
  Object.assign(input, { role: "combobox", ariaAutoComplete: "list", ariaExpanded: "false" });
  input.setAttribute("aria-controls", list.id);

  let active = -1;
  let asked = 0;
  let timer = 0;

  const close = () => {
    asked += 1;
    clearTimeout(timer);
    list.hidden = true;
    list.replaceChildren();
    input.setAttribute("aria-expanded", "false");
    activate(-1);
  };
  const activate = (place) => {
    active = place;
    selectOption(input, list, place);
  };
  const accept = (text) => {
    const typed = input.value.slice(0, input.selectionStart);
    const rest = input.value.slice(input.selectionStart);
    const term = lastTerm(typed);
    close();
    if (!term) return;
    const isWhole = !/[=><~]$/.test(text);
    const begin = typed.slice(0, term.start) + text + (isWhole && !rest.startsWith(" ") ? " " : "");
    input.value = begin + rest;
    input.setSelectionRange(begin.length, begin.length);
    if (!isWhole) suggest();
  };
  const option = ({ text, spans }, place) => {
    const count = spans === undefined ? [] : [element("span", "kind", `${spans.toLocaleString("en")} ${spans === 1 ? "span" : "spans"}`)];
    const made = element("li", { id: `suggestion-${place}`, role: "option", ariaSelected: "false" }, element("span", "", text), " ", ...count);
    made.dataset.text = text;
    // Before the input loses the focus, because that would close the list.
    made.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      accept(text);
    });
    return made;
  };
  const suggest = async () => {
    const number = ++asked;
    const term = lastTerm(input.value.slice(0, input.selectionStart));
    const found = term ? await candidatesFor(term, known).catch(() => []) : [];
    // The user has typed more, or has left the field.
    if (number !== asked || document.activeElement !== input) return;
    list.replaceChildren(...found.map(option));
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(found.length > 0));
    activate(-1);
  };

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(suggest, AFTER_MS);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const count = list.children.length;
    if (event.key === "ArrowDown" && !count) suggest();
    else if (event.key === "ArrowDown") activate((active + 1) % count);
    else if (event.key === "ArrowUp" && count) activate((active <= 0 ? count : active) - 1);
    else if (event.key === "Escape" && count) close();
    else if ((event.key === "Enter" || event.key === "Tab") && active >= 0) accept(list.children[active].dataset.text);
    else return;
    event.preventDefault();
  });
}

// Before the page is left, its filter is checked: an error is shown under the field, and the page stays.
function check(input) {
  const error = element("p", { className: "faulty", id: "filter-error", hidden: true, role: "alert" });
  input.form.after(error);
  const show = ({ message, column }) => {
    const text = input.value;
    const mark = element("mark", { textContent: text.slice(column - 1, column) || "\u00a0" });
    const parts = column ? [text.slice(0, column - 1), mark, text.slice(column), element("br", {}), " ".repeat(column - 1), "^ "] : [];
    error.replaceChildren(...parts, element("span", { className: "error words", textContent: message }));
    error.hidden = false;
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", error.id);
    input.focus();
    if (column) input.setSelectionRange(column - 1, column - 1);
  };
  input.addEventListener("input", () => {
    error.hidden = true;
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  });
  input.form.addEventListener("submit", async (event) => {
    event.preventDefault();
    // Without an answer, the page itself shows the error.
    const found = await fetch(`/filter/check?${new URLSearchParams({ filter: input.value })}`)
      .then((answer) => (answer.ok ? answer.json() : {}))
      .catch(() => ({}));
    // Not `requestSubmit`, which would check again.
    if (found.message) show(found);
    else input.form.submit();
  });
}

const filter = document.getElementById("filter");
if (filter) {
  combobox(filter);
  check(filter);
}
