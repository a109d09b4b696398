// Palette (Ctrl K or Cmd K): a dialog with a field that opens a page, a stored name, a trace or a search.

import { destinationsFor, destinationsOf, merged } from "./destinations.js";
import { element, selectOption } from "./elements.js";
import { ownViews, sharedViews } from "./saved.js";

const LINES_MAX = 1000; // limit of lines in a query
const TEXT_MAX = 4096; // characters of a filter

const query = location.search;

const pages = () =>
  [...document.querySelectorAll("header nav [data-key]")].map((link) => ({
    kind: "page",
    text: link.textContent,
    url: link.href,
  }));

const asDestinations = (views) => views.map(({ name, url }) => ({ kind: "view", text: name, url }));

async function linesOf(path, parameters) {
  const page = new URLSearchParams(query);
  const wanted = new URLSearchParams({ ...parameters, limit: LINES_MAX });
  for (const name of ["since", "until"]) if (page.get(name)) wanted.set(name, page.get(name));
  const answer = await fetch(`/api/v1/${path}?${wanted}`);
  // The last line is the mark of the end.
  return answer.ok ? (await answer.text()).trim().split("\n").slice(0, -1).map((line) => JSON.parse(line)) : [];
}

// The stored names, each list as soon as it arrives.
function storedNames(add) {
  const ask = (names) => names.then(add).catch(() => {});
  const of = (kind, values) => destinationsOf(kind, values, query);
  ask(sharedViews().then(asDestinations));
  ask(
    fetch("/choices")
      .then((answer) => answer.json())
      .then((lists) => Object.entries(lists).flatMap(([kind, list]) => of(kind, list.map(({ value }) => value)))),
  );
  ask(linesOf("services", {}).then((rows) => of("service", rows.map((row) => row.service))));
  ask(linesOf("red", { by: "operation", spans: "all" }).then((rows) => of("operation", rows.map((row) => row.group))));
}

function palette() {
  const input = element("input", {
    type: "text",
    autocomplete: "off",
    spellcheck: false,
    maxLength: TEXT_MAX,
    placeholder: "page, service, operation, project, deployment, trace id or search",
    role: "combobox",
    ariaLabel: "Page, service, operation, project, deployment, trace id or search",
    ariaAutoComplete: "list",
    ariaExpanded: "true",
  });
  const list = element("ul", { id: "destinations", role: "listbox", ariaLabel: "Destinations" });
  input.setAttribute("aria-controls", list.id);
  const dialog = element(
    "dialog",
    { id: "palette", ariaLabel: "Go to" },
    input,
    list,
    element("p", { className: "dim", textContent: "Arrow keys to move, Enter to go, Escape to close. A pasted trace id leads to the trace." }),
  );

  let known = [];
  let shown = [];
  let active = 0;
  let hasMoved = false;

  const go = (place) => shown[place] && location.assign(shown[place].url);
  const activate = (place) => {
    active = place;
    selectOption(input, list, place);
  };
  const option = ({ kind, text }, place) => {
    const made = element("li", { id: `destination-${place}`, role: "option" }, element("span", "", text), element("span", "kind", kind));
    made.addEventListener("click", () => go(place));
    return made;
  };
  const show = () => {
    // Names that arrive after the user has moved the selection must not change the target of Enter.
    const before = hasMoved ? shown[active]?.url : undefined;
    shown = destinationsFor(input.value, known, query);
    list.replaceChildren(...shown.map(option));
    activate(Math.max(0, shown.findIndex(({ url }) => url === before)));
  };

  const begin = () => {
    hasMoved = false;
    show();
  };

  input.addEventListener("input", begin);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      hasMoved = true;
      activate((active + step + shown.length) % shown.length);
    }
    else if (event.key === "Enter") go(active);
    else return;
    event.preventDefault();
  });
  // A click beside the dialog is a click on the dialog element, which includes the backdrop.
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  return () => {
    known = [...pages(), ...asDestinations(ownViews())];
    input.value = "";
    begin();
    dialog.showModal();
    storedNames((names) => {
      known = merged(known, names);
      show();
    });
  };
}

let open = null;

function toggle() {
  const dialog = document.getElementById("palette");
  if (dialog?.open) {
    dialog.close();
    return;
  }
  open ??= palette();
  open();
}

document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
  event.preventDefault();
  toggle();
});
// A text that is pasted beside the fields is searched: the message of an error, an id, a filter.
document.addEventListener("paste", (event) => {
  if (event.target.closest?.("input, textarea, select, dialog")) return;
  const text = event.clipboardData.getData("text/plain").replace(/\s+/g, " ").trim().slice(0, TEXT_MAX);
  if (text) location.assign(destinationsFor(text, [], query).at(-1).url);
});
const button = document.getElementById("go");
button.addEventListener("click", toggle);
button.hidden = false;
