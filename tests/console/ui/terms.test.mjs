// Tests of the completion of a filter.
import assert from "node:assert/strict";
import { test } from "node:test";

import { keyTerms, lastTerm, operatorTerms, matching, valueText, valuesQuestion } from "../../../receiver/console/ui/static/terms.js";

test("the last term of a filter is found with its parts", () => {
  const term = (text) => Object.values(lastTerm(text) ?? {});
  assert.deepEqual(term(""), [0, "", "", ""]);
  assert.deepEqual(term("service=web http.ro"), [12, "http.ro", "", ""]);
  assert.deepEqual(term("(service=web OR -status!=er"), [17, "status", "!=", "er"]);
  assert.deepEqual(term('operation="GET /c'), [0, "operation", "=", '"GET /c']);
});

test("no term ends in a closed quotation", () => {
  assert.equal(lastTerm('operation="GET /cart"'), null);
});

test("values with spaces are quoted, and a star or a quotation mark loses its meaning", () => {
  assert.equal(valueText("web-1", false), "web-1");
  assert.equal(valueText("web-1", true), '"web-1"');
  assert.equal(valueText("GET /cart", false), '"GET /cart"');
  assert.equal(valueText('a*"\\', false), '"a\\*\\"\\\\"');
});

test("a key without a dot has its scope, and a key that needs quotation marks is left out", () => {
  const rows = [
    { scope: "span", key: "http.route" },
    { scope: "resource", key: "http.route" },
    { scope: "span", key: "tenant" },
    { scope: "span", key: "my key" },
  ];
  assert.deepEqual(keyTerms(rows, "ht"), ["http.route=", "span.tenant="]);
  assert.deepEqual(keyTerms(rows, "span."), ["span.http.route=", "resource.http.route=", "span.tenant="]);
});

test("texts that begin with the typed text come first, up to the limit", () => {
  assert.deepEqual(matching(["db.route", "Route", "route", "web"], "route", 9), ["Route", "db.route"]);
  assert.deepEqual(matching(["a1", "a2", "a3", "a1"], "a", 2), ["a1", "a2"]);
});

test("values are queried if a query lists them", () => {
  const fields = ["service", "duration"];
  assert.equal(valuesQuestion("duration", fields), null);
  assert.equal(valuesQuestion("service", fields).path, "services");
  assert.deepEqual(valuesQuestion("span.tenant", fields).parameters, { key: "tenant" });
});

test("a word within a quoted text is no term, but a value in quotation marks is", () => {
  assert.equal(lastTerm('"connection ref'), null);
  assert.equal(lastTerm('timeout "card serv'), null);
  assert.equal(lastTerm("timeout serv").field, "serv");
  assert.equal(lastTerm('"card declined" serv').field, "serv");
  assert.equal(lastTerm('timeout http.route="/api ').value, '"/api ');
});

test("a field that is typed completely has its operators", () => {
  assert.deepEqual(operatorTerms(["service=", "duration>"], "duration").slice(0, 3), ["duration>", "duration=", "duration!="]);
  assert.deepEqual(operatorTerms(["service="], "servic"), []);
});
