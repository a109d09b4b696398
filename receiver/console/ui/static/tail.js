// Arriving spans: queries every second the spans received since the last response; Space pauses.

import { addCopyButtons } from "./copy.js";
import { Arrivals } from "./arrivals.js";
import { element } from "./elements.js";
import { addShortcuts, applyChosenZone } from "./frame.js";

const POLL_MS = 1000;
const body = document.getElementById("arrivals");
const state = document.getElementById("tail-state");
const pause = document.getElementById("pause");
const nothing = document.getElementById("nothing");

addShortcuts(["Space", "pause or resume"]);

const arrivals = new Arrivals({
  rowsMax: Number(body.dataset.rowsMax),
  overlapMs: Number(body.dataset.overlapMs),
  shown: [...body.rows].map((row) => ({ key: row.dataset.key, received_ms: Number(row.dataset.receivedMs) })),
});

function linkTo(row, className, text) {
  const link = element("a", className, text);
  link.href = `/trace/${encodeURIComponent(row.trace_id)}`;
  return link;
}

function idOf(row) {
  const id = linkTo(row, "id", row.trace_id.slice(0, 8));
  id.title = id.dataset.copy = row.trace_id;
  return element("td", "", id);
}

function rowOf(row) {
  const time = element("time", "", row.received.slice(11, 23));
  time.dateTime = row.received;
  time.title = `${row.received.slice(0, 23).replace("T", " ")} UTC`;
  const heading = element("th", "", element("span", "dim", row.service), " ", linkTo(row, "", row.name));
  heading.scope = "row";
  return element(
    "tr",
    "",
    element("td", "", time),
    heading,
    element("td", "number", row.duration),
    element("td", "text", ...(row.error ? [element("span", "error", `✕ ${row.error}`)] : [])),
    element("td", "", row.project),
    idOf(row),
  );
}

function show(rows) {
  if (rows.length) {
    const added = rows.map(rowOf);
    added.forEach(addCopyButtons);
    body.prepend(...added);
    while (body.rows.length > arrivals.rowsMax) body.rows[body.rows.length - 1].remove();
    nothing.hidden = true;
    applyChosenZone();
  }
  const count = arrivals.waiting.length;
  pause.textContent = arrivals.isPaused ? (count ? `Resume: ${count} new` : "Resume") : "Pause";
}

function announce(text) {
  if (state.textContent !== text) state.textContent = text;
}

function addressOf(afterMs) {
  const query = new URLSearchParams(location.search);
  query.set("after", String(afterMs));
  return `/tail/rows?${query}`;
}

async function poll() {
  try {
    if (!document.hidden) {
      const answer = await fetch(addressOf(arrivals.afterMs), { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(String(answer.status));
      const { rows, is_cut: isCut } = await answer.json();
      show(arrivals.take(rows, isCut));
      announce(
        arrivals.hasGap
          ? "More spans arrive than are shown here: use a narrower filter."
          : `${arrivals.isPaused ? "Paused" : "Live"}, updated every second. Space pauses and resumes.`,
      );
    }
  } catch {
    announce("The receiver does not answer. Retrying.");
  }
  setTimeout(poll, POLL_MS);
}

const toggle = () => show(arrivals.toggle());

pause.hidden = false;
pause.addEventListener("click", toggle);
document.addEventListener("keydown", (event) => {
  if (event.key !== " " || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, button, a, dialog")) return;
  event.preventDefault(); // Space would scroll
  toggle();
});
poll();
