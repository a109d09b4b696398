// Visible spans of a trace: pure functions over columns, without the page.
//
// A trace is an object of columns in the order of its tree: every span precedes its children. The place of
// a span is its index in the columns.

// The level of each span; the top has level 1.
export function levelsOf(parent) {
  const levels = new Uint16Array(parent.length);
  for (let place = 0; place < parent.length; place++) levels[place] = parent[place] < 0 ? 1 : levels[parent[place]] + 1;
  return levels;
}

// The place after the last span of each span's subtree.
export function endsOf(parent) {
  const ends = new Int32Array(parent.length);
  for (let place = parent.length - 1; place >= 0; place--) {
    ends[place] = Math.max(ends[place], place + 1);
    if (parent[place] >= 0) ends[parent[place]] = Math.max(ends[parent[place]], ends[place]);
  }
  return ends;
}

// The visible places: inside the focused subtree, below no collapsed span, and, if a filter is set, on the
// path to a match.
export function visiblePlaces(trace, { collapsed, focus, matches }) {
  const shown = [];
  const last = focus < 0 ? trace.parent.length : trace.ends[focus];
  const wanted = matches && withAncestors(trace.parent, matches);
  for (let place = Math.max(0, focus); place < last; ) {
    if (!wanted || wanted[place]) shown.push(place);
    place = collapsed.has(place) ? trace.ends[place] : place + 1;
  }
  return shown;
}

// The row of each place; -1 if it is not visible.
export function rowsOf(shown, total) {
  const rows = new Int32Array(total).fill(-1);
  shown.forEach((place, row) => (rows[place] = row));
  return rows;
}

function withAncestors(parent, matches) {
  const wanted = new Uint8Array(parent.length);
  for (let place = parent.length - 1; place >= 0; place--) {
    if (matches.has(place)) wanted[place] = 1;
    if (wanted[place] && parent[place] >= 0) wanted[parent[place]] = 1;
  }
  return wanted;
}

// The next of some places after (or, with a step of -1, before) a place; the first follows the last.
export function placeAfter(places, place, step) {
  const ordered = [...places].sort((left, right) => (left - right) * step);
  return ordered.find((each) => (each - place) * step > 0) ?? ordered[0];
}

// The places whose service, name or id contains the text.
export function search(trace, text) {
  const needle = text.trim().toLowerCase();
  if (!needle) return null;
  const has = (texts) => texts.map((each) => each.toLowerCase().includes(needle));
  const services = has(trace.services);
  const names = has(trace.names);
  const found = new Set();
  for (let place = 0; place < trace.parent.length; place++) {
    if (services[trace.service[place]] || names[trace.name[place]] || trace.id[place].includes(needle)) found.add(place);
  }
  return found;
}

// Every span with children at a level or below: collapsing them shows the levels above.
export function collapsedBelow(trace, level) {
  const found = new Set();
  for (let place = 0; place < trace.parent.length; place++) {
    if (trace.levels[place] >= level && trace.ends[place] > place + 1) found.add(place);
  }
  return found;
}

const UNITS = [
  [86_400e9, "d"],
  [3_600e9, "h"],
  [60e9, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
];

// A duration as the server writes it: three digits and a unit.
export function durationText(nanoseconds) {
  for (const [size, unit] of UNITS) {
    if (nanoseconds >= size) {
      const count = nanoseconds / size;
      const text = count >= 100 ? Math.round(count).toLocaleString("en") : String(Number(count.toPrecision(3)));
      return `${text} ${unit}`;
    }
  }
  return `${Math.round(nanoseconds)} ns`;
}
