// Tests of the functions that decide which spans of a trace are visible.
import assert from "node:assert/strict";
import { test } from "node:test";

import { collapsedBelow, durationText, endsOf, levelsOf, placeAfter, search, visiblePlaces } from "../../../receiver/console/ui/static/tree.js";

// 0
// ├─ 1
// │  └─ 2
// └─ 3
// 4
const parent = [-1, 0, 1, 0, -1];
const trace = {
  parent,
  levels: levelsOf(parent),
  ends: endsOf(parent),
  services: ["web", "Db"],
  names: ["GET /", "SELECT"],
  service: [0, 1, 1, 0, 0],
  name: [0, 1, 1, 0, 0],
  id: ["a1", "b2", "c3", "d4", "e5"],
};
const shown = (more) => visiblePlaces(trace, { collapsed: new Set(), focus: -1, matches: null, ...more });

test("levels and ends of subtrees follow the parents", () => {
  assert.deepEqual([...trace.levels], [1, 2, 3, 2, 1]);
  assert.deepEqual([...trace.ends], [4, 3, 3, 4, 5]);
});

test("a collapsed span hides its subtree and nothing else", () => {
  assert.deepEqual(shown({ collapsed: new Set([1]) }), [0, 1, 3, 4]);
  assert.deepEqual(shown({ collapsed: new Set([0]) }), [0, 4]);
});

test("a focused span is shown with its subtree only", () => {
  assert.deepEqual(shown({ focus: 1 }), [1, 2]);
  assert.deepEqual(shown({ focus: 4 }), [4]);
});

test("a filter shows the matches and the spans above them", () => {
  assert.deepEqual(shown({ matches: search(trace, "db") }), [0, 1, 2]);
  assert.deepEqual(shown({ matches: search(trace, "e5") }), [4]);
  assert.deepEqual(shown({ matches: search(trace, "nothing") }), []);
  assert.equal(search(trace, "  "), null);
});

test("the place after the last one is the first", () => {
  const matches = new Set([3, 1]);
  const steps = (from, step) => placeAfter(matches, from, step);
  assert.deepEqual([steps(0, 1), steps(1, 1), steps(3, 1)], [1, 3, 1]);
  assert.deepEqual([steps(4, -1), steps(3, -1), steps(1, -1)], [3, 1, 3]);
  assert.equal(placeAfter(new Set(), 0, 1), undefined);
});

test("collapsing below a level shows the levels above it", () => {
  assert.deepEqual(shown({ collapsed: collapsedBelow(trace, 1) }), [0, 4]);
  assert.deepEqual(shown({ collapsed: collapsedBelow(trace, 2) }), [0, 1, 3, 4]);
});

test("a chain of 50,000 spans is no deeper than the arrays", () => {
  const chain = Array.from({ length: 50_000 }, (_, place) => place - 1);
  assert.equal(levelsOf(chain).at(-1), 50_000);
  assert.equal(endsOf(chain)[0], 50_000);
});

test("durations have three digits and a unit", () => {
  const texts = [0, 500, 250_000, 290.4e6, 1.21e9, 150e9, 7_200e9].map(durationText);
  assert.deepEqual(texts, ["0 ns", "500 ns", "250 µs", "290 ms", "1.21 s", "2.5 min", "2 h"]);
});
