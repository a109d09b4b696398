// Frame of every page: keyboard shortcuts, theme, density and time zone.

import { element } from "./elements.js";

const CHOICES = {
  theme: { label: "Theme", choices: ["system", "light", "dark"] },
  density: { label: "Rows", choices: ["normal", "compact"] },
};
const PREFIX_MS = 1500; // time in which the second key has to follow `g`

const remembered = (key) => {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return ""; // storage may be forbidden
  }
};

const remember = (key, value) => {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Without storage, the choice lasts for this page only.
  }
};

// Show a choice on its button, and apply it to the page; the first choice has no attribute.
function applyChoice(name, chosen) {
  if (chosen) document.documentElement.dataset[name] = chosen;
  else delete document.documentElement.dataset[name];
  const { label, choices } = CHOICES[name];
  const button = document.getElementById(name);
  button.textContent = `${label}: ${chosen || choices[0]}`;
  button.hidden = false;
}

function nextChoice(name) {
  const choices = ["", ...CHOICES[name].choices.slice(1)];
  const chosen = choices[(choices.indexOf(remembered(name)) + 1) % choices.length];
  remember(name, chosen);
  applyChoice(name, chosen);
}

const pad = (number, width = 2) => String(number).padStart(width, "0");

// The local time in the form that the server chose for UTC, which begins with a year, a month or an hour.
function localText(element) {
  const at = new Date(element.dateTime ?? element.dataset.time);
  const utc = element.dataset.utc;
  const day = `${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const date = /^\d\d:/.test(utc) ? "" : /^\d{4}-/.test(utc) ? `${at.getFullYear()}-${day}` : day;
  if (!utc.includes(":")) return date;
  const seconds = /:\d\d:\d\d/.test(utc) ? `:${pad(at.getSeconds())}` : "";
  const fraction = /\.\d{3}$/.test(utc) ? `.${pad(at.getMilliseconds(), 3)}` : "";
  return `${date} ${pad(at.getHours())}:${pad(at.getMinutes())}${seconds}${fraction}`.trim();
}

function applyZone(zone) {
  for (const element of document.querySelectorAll("time[datetime], text[data-time]")) {
    element.dataset.utc ??= element.textContent;
    element.textContent = zone === "local" ? localText(element) : element.dataset.utc;
  }
  const button = document.getElementById("zone");
  button.textContent = zone === "local" ? "Local time" : "UTC";
  button.hidden = false;
}

export const applyChosenZone = () => applyZone(remembered("zone"));

function nextZone() {
  const zone = remembered("zone") === "local" ? "utc" : "local";
  remember("zone", zone);
  applyZone(zone);
}

const ofPage = [];

// Add keys of the page to the list of keyboard shortcuts: pairs of keys and text.
export const addShortcuts = (...pairs) => ofPage.push(...pairs);

function shortcuts() {
  const pages = [...document.querySelectorAll("header nav [data-key]")];
  return [
    ["?", "show this list"],
    [/Mac|iP/.test(navigator.platform) ? "⌘ K" : "Ctrl K", "go to a page, service, operation, project, deployment, trace or search"],
    [/Mac|iP/.test(navigator.platform) ? "⌘ V" : "Ctrl V", "search for the text of the clipboard, such as the message of an error"],
    ["/", "go to the first field of the page"],
    ["j, k", "select the next or previous row"],
    ["Enter", "open the selected row"],
    ["t", "show the numbers of a chart as a table"],
    ...ofPage,
    ...pages.map((page) => [`g ${page.dataset.key}`, page.textContent]),
  ];
}

function showShortcuts() {
  let dialog = document.getElementById("shortcuts");
  if (!dialog) {
    const list = element("dl");
    for (const [keys, text] of shortcuts()) list.append(element("dt", "", element("kbd", "", keys)), element("dd", "", text));
    const close = element("button", "", "Close");
    close.addEventListener("click", () => dialog.close());
    dialog = element("dialog", { id: "shortcuts", ariaLabel: "Keyboard shortcuts" }, element("h2", "", "Keyboard"), list, close);
    document.body.append(dialog);
  }
  if (!dialog.open) dialog.showModal();
}

function moveSelection(step) {
  const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.checkVisibility());
  if (!rows.length) return;
  const current = rows.findIndex((row) => row.getAttribute("aria-selected") === "true");
  const next = Math.max(0, Math.min(rows.length - 1, current < 0 ? 0 : current + step));
  rows[current]?.removeAttribute("aria-selected");
  rows[next].setAttribute("aria-selected", "true");
  rows[next].querySelector("a")?.focus({ preventScroll: true });
  rows[next].scrollIntoView({ block: "nearest" });
}

// A table that scrolls sideways and has no link can be focused, because keys scroll only the focused element.
function focusWideTables() {
  for (const table of document.querySelectorAll("table")) {
    const isScrolled = table.scrollWidth > table.clientWidth && !table.querySelector("a, button");
    if (isScrolled) table.tabIndex = 0;
    else table.removeAttribute("tabindex");
  }
}

let prefixAt = -PREFIX_MS;

// Whether a key is the second key of `g KEY`, which opens a page.
export const opensPage = (event) => event.timeStamp - prefixAt < PREFIX_MS;

function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable], dialog")) return;
  if (opensPage(event)) {
    prefixAt = -PREFIX_MS;
    const page = document.querySelector(`header nav [data-key="${CSS.escape(event.key)}"]`);
    if (page) page.click();
    return;
  }
  const actions = {
    "?": showShortcuts,
    "/": () => document.querySelector("main :is(input:not([type=hidden]), select, textarea)")?.focus(),
    j: () => moveSelection(1),
    k: () => moveSelection(-1),
    t: () => document.querySelectorAll("details.numbers").forEach((part) => (part.open = !part.open)),
    g: () => (prefixAt = event.timeStamp),
  };
  if (!(event.key in actions)) return;
  event.preventDefault();
  actions[event.key]();
}

for (const name of Object.keys(CHOICES)) {
  applyChoice(name, remembered(name));
  document.getElementById(name).addEventListener("click", () => nextChoice(name));
}
applyChosenZone();
document.getElementById("zone").addEventListener("click", nextZone);
document.getElementById("keys").addEventListener("click", showShortcuts);
document.getElementById("keys").hidden = false;
document.addEventListener("keydown", onKey);
// A click outside of a menu closes it, and so does Escape.
addEventListener("pointerdown", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && document.querySelector("details.menu[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});
// A narrow window scrolls the pages.
document.querySelector("header nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
focusWideTables();
addEventListener("resize", focusWideTables);
