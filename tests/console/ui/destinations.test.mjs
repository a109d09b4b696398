// Tests of the destinations of the palette.
import assert from "node:assert/strict";
import { test } from "node:test";

import { destinationsFor, destinationsOf, merged, SHOWN_MAX, traceIdOf } from "../../../receiver/console/ui/static/destinations.js";

const TIMES = "since=2026-01-31T10%3A00Z&until=2026-01-31T11%3A00Z";
const PAGE = `?q=a&deployment=dpl_1&project=prj_1&${TIMES}`;

test("a trace id in any spelling opens the trace", () => {
  const id = "0123456789abcdef0123456789abcdef";
  for (const typed of [id, ` ${id.toUpperCase()}\n`, "01234567-89ab-cdef-0123-456789abcdef"]) {
    assert.deepEqual(destinationsFor(typed, [], PAGE), [{ kind: "trace", text: id, url: `/trace/${id}` }]);
  }
  assert.equal(traceIdOf("0123"), "");
});

test("a name opens its spans in the project and the time range of the page", () => {
  const [service] = destinationsOf("service", ['a "b"* c'], PAGE);
  const parameters = new URL(service.url, "http://h").searchParams;
  assert.equal(parameters.get("filter"), 'service="a \\"b\\"\\* c"');
  assert.equal(parameters.get("project"), "prj_1");
  assert.equal(parameters.get("until"), "2026-01-31T11:00Z");
  assert.equal(destinationsOf("deployment", ["dpl_2"], PAGE)[0].url, `/services?project=prj_1&deployment=dpl_2&${TIMES}`);
  assert.equal(destinationsOf("project", ["prj_2"], PAGE)[0].url, `/services?project=prj_2&${TIMES}`);
  assert.deepEqual(destinationsOf("service", [""], PAGE), []);
});

test("names that begin with the text come first, and a search for it last", () => {
  const known = ["a web", "Web", "cart"].map((text) => ({ kind: "service", text, url: text }));
  const found = destinationsFor(" wEb ", known, "");
  assert.deepEqual(found.map(({ text }) => text), ["Web", "a web", "search for wEb"]);
  assert.equal(new URL(found[2].url, "http://h").searchParams.get("filter"), "wEb");
  assert.equal(destinationsFor("", known, "").length, 3);
});

test("lists are merged in the order of their kinds, and a repeated destination is in the list once", () => {
  const at = (kind, url) => ({ kind, text: url, url });
  const pages = [at("page", "/b"), at("page", "/a")];
  const found = merged(pages, [at("operation", "/o")], [at("service", "/s")], [at("operation", "/o")]);
  assert.deepEqual(found.map(({ url }) => url), ["/b", "/a", "/s", "/o"]);
});

test("a text with an operator is a filter", () => {
  const [found] = destinationsFor("status=error", [], "");
  assert.deepEqual(found, { kind: "search", text: "search for status=error", url: "/search?filter=status%3Derror" });
});

test("no more destinations are shown than the maximum", () => {
  const known = Array.from({ length: 50 }, (_, place) => ({ kind: "service", text: `s${place}`, url: "" }));
  assert.equal(destinationsFor("s", known, "").length, SHOWN_MAX);
  assert.equal(destinationsFor("", known, "").length, SHOWN_MAX);
});
