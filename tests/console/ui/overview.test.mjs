// Tests of the overview of a trace.

import assert from "node:assert/strict";
import { test } from "node:test";
import { sectionsOf } from "../../../receiver/console/ui/static/overview.js";

const trace = { duration: 100, start: [0, 50, 99], took: [100, 20, 0] };

test("each span has a row, and an instant is a pixel wide", () => {
  const found = sectionsOf(trace, [0, 1, 2], new Set(), 10, 3);

  assert.deepEqual(
    found.map((section) => [section.row, section.left, section.width]),
    [[0, 0, 10], [1, 5, 2], [2, 9, 1]],
  );
});

test("an error is visible among the spans of its row", () => {
  const found = sectionsOf(trace, [0, 1, 2], new Set([1]), 10, 1);

  assert.deepEqual(
    found.map((section) => [section.left, section.width, section.isFailed]),
    [[0, 5, false], [5, 2, true], [7, 3, false]],
  );
});

test("the number of sections depends on the pixels, not on the spans", () => {
  const count = 200_000;
  const many = { duration: count, start: Array.from({ length: count }, (_, place) => place), took: Array(count).fill(1) };

  const found = sectionsOf(many, many.start, new Set(), 100, 32);

  assert.equal(found.length, 32);
  assert.equal(found.at(-1).row, 31);
});
