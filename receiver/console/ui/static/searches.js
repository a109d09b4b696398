// The stored list of saved searches: a search is the query of a URL without its time range. Pure functions.

export const SEARCHES_MAX = 50;
export const KEY = "searches"; // in the storage of the browser

// The searches of a stored text. A text that this page did not write is an empty list.
export function parseSearches(text) {
  try {
    const found = JSON.parse(text);
    return Array.isArray(found) ? found.filter((search) => typeof search === "string") : [];
  } catch {
    return [];
  }
}

// The part of a page's URL that is saved.
export function searchOf(query) {
  const kept = new URLSearchParams(query);
  for (const name of ["since", "until", "sort"]) kept.delete(name);
  kept.sort();
  return kept.toString();
}

// The list with the search at its beginning, without duplicates; the oldest searches over the limit are dropped.
export const withSearch = (searches, search) =>
  [search, ...searches.filter((other) => other !== search)].slice(0, SEARCHES_MAX);

// A search as the list shows it.
export function nameOf(search) {
  const parameters = new URLSearchParams(search);
  const parts = ["project", "deployment"].filter((name) => parameters.get(name));
  const texts = [...parts.map((name) => `${name}=${parameters.get(name)}`), parameters.get("filter") ?? parameters.get("q"), parameters.get("selection")];
  return texts.filter(Boolean).join(" ") || "every trace";
}

// The URL of a search in the time range of the page.
export function linkOf(search, query) {
  const page = new URLSearchParams(query);
  const parameters = new URLSearchParams(search);
  for (const name of ["since", "until"]) if (page.get(name)) parameters.set(name, page.get(name));
  return `/search?${parameters}`;
}
