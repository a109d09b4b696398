// Tests of the geometry of the heatmap.
import assert from "node:assert/strict";
import { test } from "node:test";

import { cellsBetween, parametersOf, rectangleOf } from "../../../receiver/console/ui/static/grid.js";

// 10 intervals of a minute and 3 rows; the page begins 20 s after its first interval.
const grid = {
  left: 20,
  width: 120,
  height: 30,
  columns: 10,
  begin: 1_800_000_000,
  step: 60,
  bounds: ["1ms", "2ms", "4ms", "8ms"],
  since: "2027-01-15T08:00:20.000Z",
  until: "2027-01-15T08:10:00.000Z",
};

test("a rectangle covers the cells that it touches, in whichever direction it was drawn", () => {
  const cells = { columns: [1, 3], rows: [0, 1] };
  assert.deepEqual(cellsBetween(grid, [35, 11], [55, 29]), cells);
  assert.deepEqual(cellsBetween(grid, [55, 29], [35, 11]), cells);
  assert.deepEqual(rectangleOf(grid, cells), { x: 30, y: 10, width: 30, height: 20 });
});

test("a rectangle that leaves the chart ends at its edge", () => {
  assert.deepEqual(cellsBetween(grid, [-50, -50], [999, 999]), { columns: [0, 9], rows: [0, 2] });
});

test("cells become a time range and durations", () => {
  assert.deepEqual(parametersOf(grid, { columns: [1, 2], rows: [0, 1] }), {
    since: "2027-01-15T08:01:00.000Z",
    until: "2027-01-15T08:03:00.000Z",
    selection: "duration>=1ms duration<4ms",
  });
});

test("the time range stays within the page's, and the slowest row has no end", () => {
  assert.deepEqual(parametersOf(grid, { columns: [0, 0], rows: [2, 2] }), {
    since: "2027-01-15T08:00:20.000Z",
    until: "2027-01-15T08:01:00.000Z",
    selection: "duration>=4ms",
  });
});

test("a chart without durations has a row, and selects a time range only", () => {
  const times = { ...grid, bounds: null };
  const cells = cellsBetween(times, [35, 2], [55, 29]);
  assert.deepEqual(cells, { columns: [1, 3], rows: [0, 0] });
  assert.deepEqual(rectangleOf(times, cells), { x: 30, y: 0, width: 30, height: 30 });
  assert.deepEqual(parametersOf(times, cells), { since: "2027-01-15T08:01:00.000Z", until: "2027-01-15T08:04:00.000Z" });
});
