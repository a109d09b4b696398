// Waterfall of a trace: a treegrid with only the visible rows in the page, and an overview of all spans.

import { element } from "./elements.js";
import { addShortcuts, opensPage } from "./frame.js";
import { drawOverview } from "./overview.js";
import { showLinking, showLinkingTrouble, showSpan, showTrouble } from "./panel.js";
import { fillMarks, fillPath, newRow, setBar } from "./rows.js";
import { collapsedBelow, durationText, endsOf, levelsOf, placeAfter, rowsOf, search, visiblePlaces } from "./tree.js";

const ROW_PX = document.documentElement.dataset.density === "compact" ? 22 : 28;
const MARGIN_ROWS = 8; // rows above and below the window, so that scrolling shows no gap
const COLLAPSE_ABOVE = 100_000; // larger traces begin with three levels
const LEVELS_SHOWN = 3;
const INDENT_LEVELS_MAX = 30;
const HUES = 12;
const FIND_DELAY_MS = 200; // wait for a pause in typing before the request
const SHORTCUTS = [
  ["← →", "collapse or expand the selected span, or go to its parent or first child"],
  ["e", "select the next error"],
  ["n p", "select the next or the previous match of the text to find"],
  ["m", "mark the selected span; with a marked span: compare both"],
  ["c", "show or hide the critical path"],
  ["f", "show only the selected span and those below it, or all"],
  [".", "copy the id of the selected span"],
];

// One of the hues of the palette, the same for a service on every page.
function hueOf(service) {
  let hash = 0;
  for (const character of service) hash = (hash * 31 + character.codePointAt(0)) >>> 0;
  return hash % HUES;
}

class Waterfall {
  constructor(root, trace) {
    this.root = root;
    this.trace = trace;
    this.url = root.dataset.outline.replace(/\/outline$/, "/span/");
    this.matchesUrl = root.dataset.outline.replace(/\/outline$/, "/matches");
    trace.levels = levelsOf(trace.parent);
    trace.ends = endsOf(trace.parent);
    this.hues = trace.services.map(hueOf);
    this.errors = new Set(trace.errors);
    this.collapsed = trace.parent.length > COLLAPSE_ABOVE ? collapsedBelow(trace, LEVELS_SHOWN) : new Set();
    this.focus = -1;
    this.matches = null;
    this.isOnlyMatches = false;
    this.compared = -1;
    this.isCriticalShown = true;
    this.chosen = Math.max(0, trace.id.indexOf(root.dataset.chosen));
    this.pool = [];
    this.build();
    this.update();
    this.reveal(this.chosen);
    if (root.dataset.marks) this.markSpans(root.dataset.marks);
    this.request = new AbortController();
    this.showLinking(trace.id[this.chosen]);
  }

  build() {
    this.overview = element("canvas", { className: "overview", role: "img", ariaLabel: "All spans over time, errors red" });
    this.filter = element("input", { placeholder: "find in this trace", ariaLabel: "Find a text in the spans of this trace" });
    this.count = element("span", { className: "dim", role: "status" });
    this.only = element("input", { type: "checkbox" });
    const button = (text, action) => {
      const made = element("button", { className: "quiet", type: "button" }, text);
      made.addEventListener("click", action);
      return made;
    };
    const tools = element(
      "div",
      "line",
      this.filter,
      button("Next match (n)", () => this.nextMatch(1)),
      button("Previous (p)", () => this.nextMatch(-1)),
      element("label", "", this.only, " only matches"),
      button("Collapse", () => this.collapseBelow(2)),
      button("Expand", () => this.expandAll()),
      button("Next error (e)", () => this.nextError()),
      button("Critical path (c)", () => this.toggleCritical()),
      button("Whole trace", () => this.setFocus(-1)),
      button("Compare (m)", () => this.compare()),
      this.count,
    );
    this.space = element("div", "space");
    const about = { role: "treegrid", ariaLabel: "Spans of the trace", ariaColCount: "3" };
    this.grid = element("div", { className: "grid", tabIndex: 0, ...about }, this.space);
    const axis = document.getElementById("axis");
    document.getElementById("rows").replaceChildren(tools, this.overview, ...(axis ? [axis] : []), this.grid);
    this.grid.addEventListener("scroll", () => this.schedule());
    // In the capturing phase, so that a key of the trace is not handled as a key of every page.
    document.addEventListener("keydown", (event) => this.onKey(event), { capture: true });
    addShortcuts(...SHORTCUTS);
    this.grid.addEventListener("click", (event) => this.onClick(event));
    this.filter.addEventListener("input", () => this.find(this.filter.value));
    this.filter.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.nextMatch(event.shiftKey ? -1 : 1);
    });
    this.only.addEventListener("change", () => this.showOnlyMatches(this.only.checked));
    addEventListener("resize", () => this.schedule());
  }

  schedule() {
    this.scheduled ??= requestAnimationFrame(() => {
      this.scheduled = undefined;
      this.draw({ isScrolled: true });
    });
  }

  // Compute the visible rows after a change of the filter, the focus or the collapsed spans.
  update() {
    this.shown = visiblePlaces(this.trace, {
      collapsed: this.collapsed,
      focus: this.focus,
      matches: this.isOnlyMatches ? this.matches : null,
    });
    this.rowOf = rowsOf(this.shown, this.trace.parent.length);
    this.space.style.setProperty("--row", `${ROW_PX}px`);
    this.space.style.height = `${this.shown.length * ROW_PX}px`;
    this.grid.setAttribute("aria-rowcount", this.shown.length);
    const total = this.trace.parent.length;
    const found = this.matches ? `${this.matches.size.toLocaleString("en")} match, ` : "";
    this.count.textContent = `${found}${this.shown.length.toLocaleString("en")} of ${total.toLocaleString("en")} spans shown`;
    this.draw();
    this.drawOverview();
  }

  // Row `n` always has the element `n` modulo their number, so that scrolling fills only the rows that appear.
  draw({ isScrolled = false } = {}) {
    const first = Math.max(0, Math.floor(this.grid.scrollTop / ROW_PX) - MARGIN_ROWS);
    const count = Math.ceil(this.grid.clientHeight / ROW_PX) + 2 * MARGIN_ROWS;
    const isFilled = isScrolled && this.pool.length === count;
    while (this.pool.length < count) this.pool.push(newRow(this.space));
    while (this.pool.length > count) this.pool.pop().line.remove();
    for (let index = first; index < first + count; index++) {
      const row = this.pool[index % count];
      if (isFilled && row.index === index) continue;
      row.index = index;
      row.line.hidden = index >= this.shown.length;
      if (!row.line.hidden) this.fill(row, this.shown[index], index);
    }
    if (this.rowOf[this.chosen] < 0) this.grid.removeAttribute("aria-activedescendant");
    else this.grid.setAttribute("aria-activedescendant", `span-${this.chosen}`);
  }

  fill(row, place, index) {
    const { trace } = this;
    const { line } = row;
    const hasChildren = trace.ends[place] > place + 1;
    const isError = this.errors.has(place);
    line.id = `span-${place}`;
    line.dataset.place = place;
    line.style.transform = `translateY(${index * ROW_PX}px)`;
    line.setAttribute("aria-rowindex", index + 1);
    line.setAttribute("aria-level", trace.levels[place]);
    line.setAttribute("aria-selected", place === this.chosen);
    if (hasChildren) line.setAttribute("aria-expanded", !this.collapsed.has(place));
    else line.removeAttribute("aria-expanded");
    line.classList.toggle("failed", isError);
    line.classList.toggle("match", this.matches?.has(place) ?? false);
    row.twisty.textContent = hasChildren ? (this.collapsed.has(place) ? "▸" : "▾") : "";
    row.mark.textContent = isError ? "✕ error" : "";
    row.service.textContent = trace.services[trace.service[place]] || "(no service)";
    row.name.textContent = trace.names[trace.name[place]] || "(no name)";
    row.note.textContent = trace.notes[place] ? `(${trace.notes[place].join(", ")})` : "";
    row.label.style.paddingLeft = `${Math.min(trace.levels[place] - 1, INDENT_LEVELS_MAX) * 12}px`;
    row.took.textContent = durationText(trace.took[place]);
    row.bar.className = `bar hue${this.hues[trace.service[place]]}`;
    setBar(row.bar, trace.start[place], trace.took[place], trace.duration);
    fillPath(row.path, this.isCriticalShown ? (trace.critical[place] ?? []) : [], trace.duration);
    fillMarks(row.marks, trace.events[place] ?? [], trace.duration);
  }

  // After the rows are on the screen, because the user waits for the rows.
  drawOverview() {
    this.awaited ??= requestAnimationFrame(() =>
      setTimeout(() => {
        this.awaited = undefined;
        drawOverview(this.overview, this.trace, this.shown, this.errors);
      }),
    );
  }

  reveal(place) {
    const row = this.rowOf[place];
    if (row < 0) return;
    const top = row * ROW_PX;
    const { scrollTop, clientHeight } = this.grid;
    if (top < scrollTop) this.grid.scrollTop = top;
    else if (top + ROW_PX > scrollTop + clientHeight) this.grid.scrollTop = top + ROW_PX - clientHeight;
  }

  choose(place) {
    this.chosen = place;
    for (let above = this.trace.parent[place]; above >= 0; above = this.trace.parent[above]) this.collapsed.delete(above);
    if (this.rowOf[place] < 0) {
      this.focus = -1;
      this.isOnlyMatches = this.only.checked = false;
      this.update();
    }
    this.reveal(place);
    this.draw();
    this.showDetails(this.trace.id[place]);
    const url = new URL(location.href);
    url.searchParams.set("span", this.trace.id[place]);
    history.replaceState(null, "", url);
  }

  async showDetails(id) {
    this.request?.abort();
    this.request = new AbortController();
    try {
      const answer = await fetch(this.url + encodeURIComponent(id), { signal: this.request.signal });
      if (!answer.ok) throw new Error(`the receiver answered ${answer.status}`);
      showSpan(await answer.json());
    } catch (error) {
      if (error.name !== "AbortError") showTrouble(error);
      return;
    }
    await this.showLinking(id);
  }

  async showLinking(id) {
    const { signal } = this.request;
    try {
      await new Promise((resolve) => setTimeout(resolve, FIND_DELAY_MS));
      if (!signal.aborted) await showLinking(`${this.url}${encodeURIComponent(id)}/linking`, signal);
    } catch (error) {
      if (error.name !== "AbortError") showLinkingTrouble(error);
    }
  }

  // Compare the selected span with the one that was marked before, each with the spans below it.
  compare() {
    const { chosen, compared, trace } = this;
    if (compared >= 0 && compared !== chosen) {
      const query = new URLSearchParams([["trace", this.url.split("/")[2]], ["span", trace.id[compared]], ["span", trace.id[chosen]]]);
      location.assign(`/traces/compare?${query}`);
      return;
    }
    this.compared = compared === chosen ? -1 : chosen;
    this.count.textContent = this.compared < 0 ? "No span is marked." : "Marked. Select another span, then press Compare again.";
  }

  move(step) {
    const row = Math.max(0, this.rowOf[this.chosen]);
    const next = Math.max(0, Math.min(this.shown.length - 1, row + step));
    if (this.shown.length) this.choose(this.shown[next]);
  }

  toggle(place, isCollapsed) {
    if (this.trace.ends[place] <= place + 1) return;
    if (isCollapsed) this.collapsed.add(place);
    else this.collapsed.delete(place);
    this.update();
  }

  collapseOrGoUp() {
    const { chosen, trace } = this;
    if (trace.ends[chosen] > chosen + 1 && !this.collapsed.has(chosen)) this.toggle(chosen, true);
    else if (trace.parent[chosen] >= 0) this.choose(trace.parent[chosen]);
  }

  expandOrGoDown() {
    if (this.collapsed.has(this.chosen)) this.toggle(this.chosen, false);
    else if (this.trace.ends[this.chosen] > this.chosen + 1) this.choose(this.chosen + 1);
  }

  collapseBelow(level) {
    this.collapsed = collapsedBelow(this.trace, level);
    this.update();
  }

  expandAll() {
    this.collapsed = new Set();
    this.update();
  }

  nextError() {
    const { errors } = this.trace;
    if (errors.length) this.choose(placeAfter(errors, this.chosen, 1));
  }

  nextMatch(step) {
    if (this.matches?.size) this.choose(placeAfter(this.matches, this.chosen, step));
  }

  showOnlyMatches(isOnly) {
    this.isOnlyMatches = isOnly;
    this.update();
    this.reveal(this.chosen);
  }

  toggleCritical() {
    this.isCriticalShown = !this.isCriticalShown;
    this.draw();
  }

  setFocus(place) {
    this.focus = place;
    this.update();
    this.reveal(this.chosen);
  }

  // Add the spans with these ids to the matches.
  addMatches(found) {
    const ids = new Set(found);
    this.trace.id.forEach((id, place) => ids.has(id) && this.matches.add(place));
    this.update();
  }

  // The spans of a frame or a group, which another view of the trace links to.
  async markSpans(marks) {
    const answer = await fetch(`${this.matchesUrl}?${marks}`);
    if (!answer.ok) return;
    this.matches = new Set();
    this.addMatches(await answer.json());
    const [first] = this.matches;
    if (first !== undefined) this.reveal(first);
  }

  // Names and ids are found at once, all other texts by the receiver. Nothing is hidden.
  async find(text) {
    this.finding?.abort();
    const { signal } = (this.finding = new AbortController());
    this.matches = search(this.trace, text);
    this.update();
    if (!this.matches) return;
    try {
      await new Promise((resolve) => setTimeout(resolve, FIND_DELAY_MS));
      if (signal.aborted) return;
      const answer = await fetch(`${this.matchesUrl}?${new URLSearchParams({ text: text.trim() })}`, { signal });
      if (!answer.ok) throw new Error(`the receiver answered ${answer.status}`);
      this.addMatches(await answer.json());
    } catch (error) {
      if (error.name !== "AbortError") this.count.textContent = `Only names and ids were searched: ${error.message}.`;
    }
  }

  onClick(event) {
    const line = event.target.closest("[data-place]");
    if (!line) return;
    const place = Number(line.dataset.place);
    if (event.target.closest(".twisty")) this.toggle(place, !this.collapsed.has(place));
    else this.choose(place);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || opensPage(event)) return;
    if (event.target.closest("input, textarea, select, dialog")) return;
    const page = Math.max(1, Math.floor(this.grid.clientHeight / ROW_PX) - 1);
    const ofTrace = {
      j: () => this.move(1),
      k: () => this.move(-1),
      e: () => this.nextError(),
      n: () => this.nextMatch(1),
      p: () => this.nextMatch(-1),
      c: () => this.toggleCritical(),
      m: () => this.compare(),
      f: () => this.setFocus(this.focus === this.chosen ? -1 : this.chosen),
      "/": () => this.filter.focus(),
      ".": () => navigator.clipboard?.writeText(this.trace.id[this.chosen]),
    };
    // Outside of the tree these keys scroll the page.
    const ofGrid = {
      ArrowDown: () => this.move(1),
      ArrowUp: () => this.move(-1),
      PageDown: () => this.move(page),
      PageUp: () => this.move(-page),
      Home: () => this.move(-this.shown.length),
      End: () => this.move(this.shown.length),
      ArrowLeft: () => this.collapseOrGoUp(),
      ArrowRight: () => this.expandOrGoDown(),
    };
    const action = ofTrace[event.key] ?? (event.target === this.grid ? ofGrid[event.key] : undefined);
    if (!action) return;
    event.preventDefault();
    action();
  }
}

const root = document.getElementById("trace");
if (root) {
  const answer = await fetch(root.dataset.outline);
  // Without a response the table of the server stays.
  if (answer.ok) {
    const waterfall = new Waterfall(root, await answer.json());
    performance.mark("waterfall-drawn");
    root.waterfall = waterfall;
  }
}
