// The term of a filter that is being typed, and how it is completed. Pure functions, without the page.

const LAST = /(?:^|(?<=[\s({-]))([A-Za-z_][\w.:/-]*|)(?:(!=|=)("(?:[^"\\]|\\.)*|[^\s()"{}]*))?$/;
const QUOTED = /"(?:[^"\\]|\\.)*("|$)/g;
const PLAIN_KEY = /^[A-Za-z_][\w.:/-]*$/;
const PLAIN_VALUE = /^[\w./:@,+%[\]-]+$/;

// The term at the end of the text: its start and its parts; `operator` is empty while a field is typed. `null`
// if no term can be there, such as after a value in quotation marks.
export function lastTerm(text) {
  const match = LAST.exec(text);
  if (!match) return null;
  // Words of a quoted text are no fields: only the value of this term may have an open quotation mark.
  const open = [...text.matchAll(QUOTED)].find((quoted) => !quoted[1]);
  if (open && open.index !== match.index + (match[1] + (match[2] ?? "")).length) return null;
  return { start: match.index, field: match[1], operator: match[2] ?? "", value: match[3] ?? "" };
}

// A text within quotation marks of a filter, with escapes: a star would be a wildcard.
export const escapedText = (value) => value.replace(/[\\"*]/g, "\\$&");

// A value in the notation of filters: spaces need quotation marks.
export function valueText(value, isQuoted) {
  const escaped = escapedText(value);
  return PLAIN_VALUE.test(value) && !isQuoted ? escaped : `"${escaped}"`;
}

// Attributes as terms that lack a value. A key with a dot needs no scope, unless the scope is typed.
export function keyTerms(rows, typed) {
  const isScoped = /^(span|resource)\./.test(typed);
  const names = rows.map(({ scope, key }) => (key.includes(".") && !isScoped ? key : `${scope}.${key}`));
  return [...new Set(names)].filter((name) => PLAIN_KEY.test(name)).map((name) => `${name}=`);
}

// The operators of a field that is typed completely.
export function operatorTerms(names, field) {
  const first = names.find((name) => field && name.replace(/[=>]$/, "") === field);
  if (!first) return [];
  return [first, ...["=", "!=", "=~", ">", "<", " exists"].map((operator) => field + operator).filter((term) => term !== first)];
}

// The candidates that begin with the typed text, then those that contain it, without the typed text itself.
export function matching(candidates, typed, most) {
  const wanted = typed.toLowerCase();
  const found = [...new Set(candidates)].filter((text) => text !== typed);
  const begins = found.filter((text) => text.toLowerCase().startsWith(wanted));
  const contains = found.filter((text) => !begins.includes(text) && text.toLowerCase().includes(wanted));
  return [...begins, ...contains].slice(0, most);
}

// The query that lists the values of a field: its parameters, and the property of its lines. `null` if there is none.
export function valuesQuestion(field, fields) {
  if (field === "service" || field === "trace:service") return { path: "services", property: "service" };
  if (field === "project" || field === "deployment") return { path: "deployments", property: field };
  if (field === "operation" || field === "name") {
    return { path: "red", parameters: { by: "operation", spans: "all" }, property: "group" };
  }
  if (fields.includes(field)) return null;
  const key = field.replace(/^(span|resource)\./, "");
  return { path: "attributes", parameters: { key }, property: "value" };
}
