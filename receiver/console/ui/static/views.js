// Views that this browser keeps: a name, and the path and parameters of a page. Pure functions.

export const VIEWS_MAX = 50;
export const KEY = "views"; // in the storage of the browser
export const OLD_KEY = "searches"; // saved searches of former versions: parameters of /search

// Only the path of a page: a text of another program must not become the address of another site.
const isView = (view) => typeof view?.name === "string" && /^\/(?![\/\\])/.test(view.url ?? "");

const listOf = (text) => {
  try {
    const found = JSON.parse(text ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
};

// The views of a stored text, and the searches that a former version stored.
export function parseViews(text, oldText) {
  const old = listOf(oldText).filter((search) => typeof search === "string").map((search) => `/search?${search}`);
  return [...listOf(text).filter(isView), ...old.map((url) => ({ name: nameOf(url), url }))];
}

// The list with the view at its beginning, without another of its name; the oldest over the limit are dropped.
export const withView = (views, view) =>
  [view, ...views.filter((other) => other.name !== view.name)].slice(0, VIEWS_MAX);

// The name of a view without one: what it filters.
export function nameOf(url) {
  const [path, query] = url.split("?");
  const parameters = new URLSearchParams(query);
  const parts = ["project", "deployment"].filter((name) => parameters.get(name));
  const texts = [...parts.map((name) => `${name}=${parameters.get(name)}`), parameters.get("filter") ?? parameters.get("q"), parameters.get("selection")];
  return texts.filter(Boolean).join(" ") || (path === "/search" ? "every trace" : path);
}
