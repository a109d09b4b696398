// Saved searches: a menu beside the filter that saves, lists and deletes them. They stay in this browser.

import { element } from "./elements.js";
import { KEY, linkOf, nameOf, parseSearches, searchOf, withSearch } from "./searches.js";

const stored = () => parseSearches(localStorage.getItem(KEY) ?? "[]");

function change(menu, searches) {
  localStorage.setItem(KEY, JSON.stringify(searches));
  show(menu);
}

function show(menu) {
  const searches = stored();
  const save = element("button", { type: "button", textContent: "Save this search" });
  save.addEventListener("click", () => change(menu, withSearch(stored(), searchOf(location.search))));
  const items = searches.map((search) => {
    const name = nameOf(search);
    const remove = element("button", { type: "button", className: "quiet", textContent: "Delete" });
    remove.setAttribute("aria-label", `Delete ${name}`);
    remove.addEventListener("click", () => change(menu, stored().filter((other) => other !== search)));
    return element("li", {}, element("a", { href: linkOf(search, location.search), textContent: name }), remove);
  });
  menu.replaceChildren(
    element("summary", { textContent: `Saved (${searches.length})` }),
    element("ul", {}, element("li", {}, save), ...items),
  );
}

const form = document.getElementById("filter")?.form;
if (form) {
  const menu = element("details", { className: "menu", id: "saved" });
  try {
    show(menu);
    form.append(menu);
  } catch {
    // Storage may be forbidden; then nothing can be saved.
  }
}
