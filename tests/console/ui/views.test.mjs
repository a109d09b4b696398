// Tests of the views that a browser keeps.
import assert from "node:assert/strict";
import { test } from "node:test";

import { nameOf, parseViews, VIEWS_MAX, withView } from "../../../receiver/console/ui/static/views.js";

const view = (name, url = "/search") => ({ name, url });

test("a text that is not a list of views is an empty list", () => {
  for (const text of [null, "", "{", "null", "7", '{"a":1}', "[1,null]"]) assert.deepEqual(parseViews(text, text), []);
});

test("a view whose address is not a path of this receiver is dropped", () => {
  const urls = ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "", "/search?filter=a"];
  assert.deepEqual(parseViews(JSON.stringify(urls.map((url) => view("a", url)))), [view("a", "/search?filter=a")]);
});

test("searches that a former version saved are views", () => {
  assert.deepEqual(parseViews(null, '["filter=a%26b%3D1&project=p",1]'), [view("project=p a&b=1", "/search?filter=a%26b%3D1&project=p")]);
});

test("a view replaces the one of its name, and the oldest over the maximum is dropped", () => {
  assert.deepEqual(withView([view("a"), view("b")], view("b", "/errors")), [view("b", "/errors"), view("a")]);
  const full = Array.from({ length: VIEWS_MAX }, (_, place) => view(`${place}`));
  assert.equal(withView(full, view("new")).length, VIEWS_MAX);
});

test("a view without a name has that of its parameters or of its page", () => {
  assert.equal(nameOf("/search?project=p&q=a%26b%3D1"), "project=p a&b=1");
  assert.equal(nameOf("/search"), "every trace");
  assert.equal(nameOf("/errors?since=1h"), "/errors");
});
