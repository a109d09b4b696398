// Destinations of the palette: the matches of the typed text with their URLs. Pure functions, without the page.

import { valueText } from "./terms.js";

export const SHOWN_MAX = 12;

const TRACE_ID = /^[0-9a-f]{32}$/;

// The URL of a page with the time range, project and deployment of this page, unless parameters override them.
function linkTo(path, query, parameters) {
  const page = new URLSearchParams(query);
  const found = new URLSearchParams();
  for (const name of ["project", "deployment", "since", "until"]) if (page.get(name)) found.set(name, page.get(name));
  for (const [name, value] of Object.entries(parameters)) found.set(name, value);
  const text = found.toString();
  return text ? `${path}?${text}` : path;
}

const searchFor = (field, value, query) => linkTo("/search", query, { filter: `${field}=${valueText(value, false)}` });

// Kind → the URL of a value, in the order of the kinds.
const LINKS = {
  project: (value, query) => {
    const page = new URLSearchParams(query);
    // A deployment belongs to one project.
    page.delete("deployment");
    return linkTo("/services", page, { project: value });
  },
  deployment: (value, query) => linkTo("/services", query, { deployment: value }),
  service: (value, query) => searchFor("service", value, query),
  operation: (value, query) => searchFor("operation", value, query),
};

export const destinationsOf = (kind, values, query) =>
  values.filter(Boolean).map((value) => ({ kind, text: value, url: LINKS[kind](value, query) }));

const KINDS = ["page", "view", ...Object.keys(LINKS)];

// The distinct destinations of several lists, in an order that does not depend on the order of arrival.
export function merged(...lists) {
  const found = new Map(lists.flat().map((each) => [`${each.kind} ${each.url}`, each]));
  return [...found.values()].sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind));
}

// A trace id in any spelling: in capitals, as a UUID, within white space. Empty for another text.
export function traceIdOf(typed) {
  const plain = typed.trim().toLowerCase().replaceAll("-", "");
  return TRACE_ID.test(plain) ? plain : "";
}

// A filter may be words of any text: the search page reports what is not a filter.
function searchOf(text, query) {
  return { kind: "search", text: `search for ${text}`, url: linkTo("/search", query, { filter: text }) };
}

// The matches of the text: names that begin with it, then names that contain it; last a search for it.
export function destinationsFor(typed, known, query) {
  const text = typed.trim();
  const traceId = traceIdOf(text);
  if (traceId) return [{ kind: "trace", text: traceId, url: `/trace/${traceId}` }];
  if (!text) return known.slice(0, SHOWN_MAX);
  const places = known.map((each) => ({ each, at: each.text.toLowerCase().indexOf(text.toLowerCase()) }));
  const found = [...places.filter(({ at }) => at === 0), ...places.filter(({ at }) => at > 0)];
  return [...found.slice(0, SHOWN_MAX - 1).map(({ each }) => each), searchOf(text, query)];
}
