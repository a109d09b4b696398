// Tests of the spans of repeated responses that the page shows.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Arrivals } from "../../../receiver/console/ui/static/arrivals.js";

const row = (key, received_ms = 100_000) => ({ key, received_ms });
const keys = (rows) => rows.map((each) => each.key);
const made = (more = {}) => new Arrivals({ rowsMax: 3, overlapMs: 1_000, ...more });

test("a row is shown once, for any overlap of the responses", () => {
  const arrivals = made({ shown: [row("a")] });

  assert.deepEqual(keys(arrivals.take([row("b"), row("a")])), ["b"]);
  assert.deepEqual(keys(arrivals.take([row("c"), row("b"), row("a")])), ["c"]);
});

test("the next response begins before the newest row, for rows that become readable late", () => {
  const arrivals = made({ shown: [row("a", 50_000)] });

  assert.equal(arrivals.afterMs, 49_000);
  arrivals.take([row("b", 60_000)]);
  assert.equal(arrivals.afterMs, 59_000);
  arrivals.take([]);
  assert.equal(arrivals.afterMs, 59_000);
});

test("a cut response without a known row leaves a gap, until enough responses overlap", () => {
  const arrivals = made({ shown: [row("a")] });
  const gaps = (names, isCut) => {
    arrivals.take([...names].map((name) => row(name)), isCut);
    return arrivals.hasGap;
  };

  assert.equal(gaps("za", true), false);
  assert.equal(gaps("dc", true), true);
  for (let count = 0; count < 9; count += 1) assert.equal(gaps("dc", true), true);
  assert.equal(gaps("dc", true), false);
  assert.equal(gaps("fe", false), false);
});

test("rows that arrive during a pause are shown, newest first, when it ends", () => {
  const arrivals = made();

  assert.deepEqual(arrivals.toggle(), []);
  assert.deepEqual(arrivals.take([row("a")]), []);
  assert.deepEqual(arrivals.take([row("b"), row("a")]), []);
  assert.deepEqual(keys(arrivals.toggle()), ["b", "a"]);
  assert.deepEqual(arrivals.take([row("b"), row("a")]), []);
});

test("a long pause keeps no more rows than the page", () => {
  const arrivals = made();
  arrivals.toggle();

  for (const key of "abcdef") arrivals.take([row(key)]);

  assert.deepEqual(keys(arrivals.toggle()), ["f", "e", "d"]);
});
