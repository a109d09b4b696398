// Menu of saved views: lists those of the receiver and those of this browser, and saves this page in the browser.

import { element } from "./elements.js";
import { KEY, nameOf, OLD_KEY, parseViews, withView } from "./views.js";

// Storage may be forbidden; then the browser has no view.
export function ownViews() {
  try {
    return parseViews(localStorage.getItem(KEY), localStorage.getItem(OLD_KEY));
  } catch {
    return [];
  }
}

export async function sharedViews() {
  const answer = await fetch("/api/v1/views");
  return answer.ok ? (await answer.json()).views : [];
}

function store(views) {
  localStorage.setItem(KEY, JSON.stringify(views));
  localStorage.removeItem(OLD_KEY);
}

const linkTo = ({ name, url }) => element("a", { href: url, textContent: name });

function ownItem(view, show) {
  const remove = element("button", { type: "button", className: "quiet", textContent: "Delete", ariaLabel: `Delete ${view.name}` });
  remove.addEventListener("click", () => {
    store(ownViews().filter(({ name }) => name !== view.name));
    show();
  });
  return element("li", {}, linkTo(view), remove);
}

function saveItem(show) {
  const url = location.pathname + location.search;
  const name = element("input", { maxLength: 80, value: nameOf(url), size: 16, ariaLabel: "Name of the view" });
  const form = element("form", {}, name, element("button", { textContent: "Save in this browser" }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    store(withView(ownViews(), { name: name.value.trim() || nameOf(url), url }));
    show();
  });
  return element("li", {}, form);
}

const menu = document.getElementById("views");
if (menu) {
  const list = menu.querySelector("ul");
  const links = [...list.children];
  let shared = [];
  const show = () => {
    const own = ownViews().map((view) => ownItem(view, show));
    list.replaceChildren(...links, ...shared.map((view) => element("li", {}, linkTo(view))), saveItem(show), ...own);
  };
  menu.addEventListener("toggle", async () => {
    if (!menu.open) return;
    show();
    shared = await sharedViews().catch(() => []);
    show();
  });
}
