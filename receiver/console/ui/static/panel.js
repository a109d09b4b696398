// Panel of the selected span on the page of a trace.

import { addCopyButtons } from "./copy.js";
import { element } from "./elements.js";

const IDS = ["span", "parent", "project", "deployment"];

function definitions(items) {
  const list = element("dl");
  for (const [key, value] of items) {
    const text = element("span", "", value || "–");
    if (IDS.includes(key)) text.dataset.copy = value;
    list.append(element("dt", "", key), element("dd", "", text));
  }
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
      element("div", { id: "linking" }),
    );
  addCopyButtons(document.getElementById("span"));
}

// The spans that link to the span of the panel, which is not replaced while they are searched.
export async function showLinking(url, signal) {
  const place = document.getElementById("linking");
  place.replaceChildren(element("p", "dim", "Searching the spans that link to it…"));
  const answer = await fetch(url, { signal });
  if (!answer.ok) throw new Error(`the receiver answered ${answer.status}`);
  const { spans, is_cut: isCut, searched } = await answer.json();
  const lines = spans.map((span) => {
    const anchor = element("a", "", `${span.service || "(no service)"} ${span.name || "(no name)"}`);
    anchor.href = `/trace/${encodeURIComponent(span.trace_id)}?span=${encodeURIComponent(span.span_id)}`;
    return element("p", "", anchor, " ", element("span", "dim", `${span.start.slice(5, 19).replace("T", " ")} UTC`));
  });
  const cut = isCut ? "Only the first are shown. " : "";
  place.replaceChildren(
    element("h3", "", "Linked from"),
    ...(lines.length ? lines : [element("p", "", "No span links to it.")]),
    element("p", "note", `${cut}Searched: spans that started ${searched}.`),
  );
}

export function showLinkingTrouble(error) {
  const text = `The spans that link to it cannot be shown: ${error.message}. Select the span again to retry.`;
  document.getElementById("linking").replaceChildren(element("p", "trouble", text));
}

export function showTrouble(error) {
  const text = element("p", "trouble", `The span cannot be shown: ${error.message}. Select it again to retry.`);
  document.getElementById("span").replaceChildren(text);
}
