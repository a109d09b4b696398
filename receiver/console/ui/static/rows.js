// Rows of the waterfall: their elements, bars, sections of the critical path, and events.

import { element } from "./elements.js";
import { durationText } from "./tree.js";

// Append an empty row, which is filled again and again while the trace is scrolled.
export function newRow(container) {
  const twisty = element("span", "twisty");
  const mark = element("span", "error");
  const service = element("span", "service");
  const name = element("span", "name");
  const note = element("span", "warning");
  const label = element("div", "label", twisty, mark, service, name, note);
  const took = element("div", "took");
  const bar = element("div", "bar");
  const path = element("div", "path");
  const marks = element("div", "marks");
  const line = element("div", { className: "row", role: "row" }, label, took, element("div", "time", bar, path, marks));
  for (const cell of line.children) cell.setAttribute("role", "gridcell");
  container.append(line);
  return { line, twisty, mark, service, name, note, label, took, bar, path, marks };
}

export function setBar(bar, start, took, duration) {
  const scale = 100 / Math.max(1, duration);
  bar.style.left = `${start * scale}%`;
  bar.style.width = `max(1px, ${took * scale}%)`;
}

export function fillPath(container, sections, duration) {
  while (container.children.length < sections.length) container.append(element("div", "critical"));
  [...container.children].forEach((section, index) => {
    section.hidden = index >= sections.length;
    if (index < sections.length) setBar(section, ...sections[index], duration);
  });
}

// Exceptions are crosses, other events dots.
export function fillMarks(container, events, duration) {
  while (container.children.length < events.length) container.append(element("div"));
  [...container.children].forEach((mark, index) => {
    mark.hidden = index >= events.length;
    if (mark.hidden) return;
    const [at, isException] = events[index];
    mark.className = isException ? "event exception" : "event";
    mark.textContent = isException ? "✕" : "";
    mark.title = `${isException ? "exception" : "event"} at ${durationText(Math.abs(at))}`;
    mark.style.left = `${(at * 100) / Math.max(1, duration)}%`;
  });
  if (!events.length) return container.removeAttribute("role");
  container.setAttribute("role", "img");
  const exceptions = events.filter(([, isException]) => isException).length;
  container.setAttribute("aria-label", `${events.length} events, ${exceptions} of them exceptions`);
}
