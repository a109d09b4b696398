// Tests of the list of saved searches.
import assert from "node:assert/strict";
import { test } from "node:test";

import { linkOf, nameOf, parseSearches, SEARCHES_MAX, searchOf, withSearch } from "../../../receiver/console/ui/static/searches.js";

test("a text that is not a list of searches is an empty list", () => {
  for (const text of ["", "{", "null", "7", '{"a":1}', "[1,null]"]) assert.deepEqual(parseSearches(text), []);
  assert.deepEqual(parseSearches('["filter=a",1]'), ["filter=a"]);
});

test("a search is saved without its time range, and opens in the range of the page", () => {
  const search = searchOf("?since=x&filter=a%26b%3D1&project=p&until=y&sort=spans");
  assert.equal(search, "filter=a%26b%3D1&project=p");
  assert.equal(nameOf(search), "project=p a&b=1");
  assert.equal(linkOf(search, "?filter=z&since=1&until=2"), "/search?filter=a%26b%3D1&project=p&since=1&until=2");
});

test("a search that was saved with its filter as q keeps its name", () => {
  assert.equal(nameOf("project=p&q=a%26b%3D1"), "project=p a&b=1");
});

test("a search is in the list once, the last saved first", () => {
  assert.deepEqual(withSearch(["filter=a", "filter=b"], "filter=b"), ["filter=b", "filter=a"]);
});

test("the list has a maximum length", () => {
  const full = Array.from({ length: SEARCHES_MAX }, (_, place) => `filter=${place}`);
  const longer = withSearch(full, "filter=new");
  assert.equal(longer.length, SEARCHES_MAX);
  assert.equal(longer[0], "filter=new");
});

test("a search without a filter has a name", () => {
  assert.equal(nameOf(""), "every trace");
});
