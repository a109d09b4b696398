// Panel of the selected span on the page of a trace.

import { element } from "./elements.js";

function definitions(items) {
  const list = element("dl");
  for (const [key, value] of items) list.append(element("dt", "", key), element("dd", "", value || "–"));
  return list;
}

// The panel of a span, as the template of the page renders it.
export function showSpan(span) {
  const group = (title, items) => (items.length ? [element("h3", "", title), definitions(items)] : []);
  const byKey = (map) => Object.entries(map).sort(([left], [right]) => (left < right ? -1 : 1));
  const events = span.events.flatMap((event) => [
    element("h3", "", `${event.name} `, element("span", "dim", `after ${event.after}`)),
    definitions(byKey(event.attributes)),
  ]);
  const links = span.links.map((link) => {
    const anchor = element("a", "id", link.trace_id);
    anchor.href = `/trace/${encodeURIComponent(link.trace_id)}?span=${encodeURIComponent(link.span_id)}`;
    return element("p", "", "Linked to ", anchor);
  });
  document
    .getElementById("span")
    .replaceChildren(
      element("h2", "", span.name || "(no name)"),
      definitions(Object.entries(span.fields)),
      ...group("Attributes", byKey(span.attributes)),
      ...group("Resource", byKey(span.resource)),
      ...events,
      ...links,
    );
}

export function showTrouble(error) {
  const text = element("p", "trouble", `The span cannot be shown: ${error.message}. Select it again to retry.`);
  document.getElementById("span").replaceChildren(text);
}
