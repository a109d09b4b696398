"""Filter as JSON: `{"all": [{"field": "service", "op": "=", "value": "web"}, ...]}`.

    filter     = {"all": [filter, ...]} | {"any": [filter, ...]} | {"not": filter} | comparison
    comparison = {"field": NAME,                  "op": OPERATOR, "value": VALUE}
               | {"attribute": KEY, "scope": ..., "op": OPERATOR, "value": VALUE}
               | {"attribute": KEY, "scope": ..., "op": "exists"}
    traces     = filter | {"span": filter} | {"all": [traces, ...]} | {"any": ...} | {"not": traces}

`"wildcard": "GET *"` in place of `"value"` has the stars of the one-line form; `"anchored": true` makes a
regular expression match the whole text. Messages give the path in the document and never repeat its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from receiver.console.queries.filters.filter import (
    ALIASES,
    INTRINSICS,
    And,
    Attribute,
    Exists,
    Filter,
    HasSpan,
    Intrinsic,
    Not,
    Operator,
    Or,
    TraceAnd,
    TraceFilter,
    TraceNot,
    TraceOr,
)
from receiver.console.queries.filters.filter_values import (
    DEPTH_MAX,
    JSON_CHARACTERS_MAX,
    OPERATORS,
    REGEX,
    SCOPES,
    TERMS_MAX,
    Place,
    Value,
    anchored,
    check_text,
    check_trace_terms,
    comparison,
    meant,
    reject_trace_fields,
    unusable_character,
)
from receiver.errors import InvalidFilter

_JSON = re.compile(r'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:', re.DOTALL)
"""Beginning of an object: never valid in the one-line form, where an operator follows a quoted key."""
_GROUPS: Final = ("all", "any", "not", "span")
_KEYS: Final = frozenset({"field", "attribute", "scope", "op", "value", "wildcard", "anchored"})

Node = TypeVar("Node")


def is_json(text: str) -> bool:
    """Return whether the text of a filter is JSON."""
    return _JSON.match(text) is not None


def parse_json_filter(text: str) -> TraceFilter:
    """Parse a filter of traces."""
    found = _Reader().traces(_document(text), "$", 0)
    check_trace_terms(found)
    return found


def parse_json_span_filter(text: str) -> Filter:
    """Parse a filter of spans."""
    document = _document(text)
    if _has_spanset(document, 0):
        raise _error("$", "a spanset makes a condition on traces; expected a condition on spans")
    found = _Reader().spans(document, "$", 0)
    reject_trace_fields(found)
    return found


def _document(text: str) -> object:
    check_text(text, JSON_CHARACTERS_MAX)
    try:
        # The standard library and not a faster one: only it reports duplicate keys, of which a reader would
        # keep the last and ignore a condition without an error.
        document: object = json.loads(
            text, object_pairs_hook=_without_duplicates, parse_constant=_reject_constant
        )
    except json.JSONDecodeError as error:
        raise InvalidFilter("the JSON is not well-formed", column=error.pos + 1) from error
    # The text may nest deeper than the interpreter's stack before any depth is checked.
    except RecursionError as error:
        raise InvalidFilter(f"the filter nests deeper than {DEPTH_MAX} levels", path="$") from error
    return document


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidFilter("an object has a key twice", path="$")
    return found


def _reject_constant(_text: str) -> NoReturn:
    raise InvalidFilter("NaN and Infinity are not JSON", path="$")


class _Reader:
    """Recursive descent over the document."""

    def __init__(self) -> None:
        self._terms = 0

    def traces(self, node: object, path: str, depth: int) -> TraceFilter:
        if not _has_spanset(node, depth):
            return HasSpan(self.spans(node, path, depth))
        key, inside = _group(node, path, depth)
        if key == "span":
            return HasSpan(self.spans(inside, f"{path}.span", depth + 1))
        if key == "not":
            return TraceNot(self._in_braces(inside, f"{path}.not", depth + 1))
        parts = _each(inside, f"{path}.{key}", depth, self._in_braces)
        return TraceAnd(parts) if key == "all" else TraceOr(parts)

    def _in_braces(self, node: object, path: str, depth: int) -> TraceFilter:
        if not _has_spanset(node, depth):
            raise _error(path, 'a condition on spans is beside a spanset; put it in {"span": ...}')
        return self.traces(node, path, depth)

    def spans(self, node: object, path: str, depth: int) -> Filter:
        if not isinstance(node, dict) or not any(key in node for key in _GROUPS):
            return self._comparison(node, path)
        key, inside = _group(node, path, depth)
        if key == "span":
            raise _error(path, "a spanset inside a condition on spans")
        if key == "not":
            return Not(self.spans(inside, f"{path}.not", depth + 1))
        parts = _each(inside, f"{path}.{key}", depth, self.spans)
        # An empty `all` matches every span, like an empty filter. An empty `any` would match none, unnoticed.
        if key == "any" and not parts:
            raise _error(f"{path}.any", "the list is empty; expected at least a single condition")
        return And(parts) if key == "all" else Or(parts)

    def _comparison(self, node: object, path: str) -> Filter:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise _error(path, f"the filter has over {TERMS_MAX} comparisons")
        found = _object(node, path)
        field = _field(found, path)
        if found.get("op") == "exists" and isinstance(field, Attribute):
            if not found.keys() <= {"attribute", "scope", "op"}:
                raise _error(path, "exists takes no value")
            return Exists(field)
        return _compared(found, field, path)


def _has_spanset(node: object, depth: int) -> bool:
    """Return whether the condition is on traces. False below the depth limit, where reading it raises."""
    if not isinstance(node, dict) or depth > DEPTH_MAX:
        return False
    inside = [node.get("not"), *(part for key in ("all", "any") for part in _list(node.get(key)))]
    # Each level searches its part of the document again. The limits of length and depth bound the cost.
    return "span" in node or any(_has_spanset(part, depth + 1) for part in inside)


def _list(node: object) -> list[object]:
    return node if isinstance(node, list) else []


def _group(node: object, path: str, depth: int) -> tuple[str, object]:
    """Return the only key of a group, and its value."""
    if depth > DEPTH_MAX:
        raise _error("$", f"the filter nests deeper than {DEPTH_MAX} levels")
    found = _object(node, path)
    if len(found) != 1:
        raise _error(path, "all, any, not and span are the only key of their object")
    return next(iter(found.items()))


def _each(node: object, path: str, depth: int, read: Callable[[object, str, int], Node]) -> tuple[Node, ...]:
    if not isinstance(node, list):
        raise _error(path, "expected a list of conditions")
    return tuple(read(part, f"{path}[{place}]", depth + 1) for place, part in enumerate(node))


def _object(node: object, path: str) -> dict[str, Any]:
    if not isinstance(node, dict):
        raise _error(path, "expected an object, such as a condition with field, op and value")
    for key in node:
        if key not in _KEYS and key not in _GROUPS:
            hint = meant(key, [*_KEYS, *_GROUPS]) or f"expected some of {', '.join(sorted(_KEYS))}"
            raise _error(path, f"unknown key; {hint}")
    return node


def _field(node: dict[str, Any], path: str) -> Intrinsic | Attribute:
    if ("field" in node) == ("attribute" in node):
        raise _error(path, "expected either field or attribute")
    if "attribute" in node:
        key = _text(node["attribute"], f"{path}.attribute")
        text = _text(node.get("scope", ""), f"{path}.scope")
        scope = next((scope for scope in SCOPES if scope == text), None)
        if not key or (text and scope is None):
            raise _error(path, f"expected an attribute with a key, and a scope of {', '.join(SCOPES)}")
        return Attribute(scope or "", key)
    if "scope" in node:
        raise _error(f"{path}.scope", "only an attribute has a scope")
    name = _text(node["field"], f"{path}.field")
    known = ALIASES.get(name, name)
    if known not in INTRINSICS:
        hint = meant(name.lower(), [*INTRINSICS, *ALIASES]) or "expected a field such as service or status."
        raise _error(f"{path}.field", f'unknown field; {hint} An attribute is {{"attribute": KEY}}')
    return Intrinsic(known)


def _compared(node: dict[str, Any], field: Intrinsic | Attribute, path: str) -> Filter:
    if ("value" in node) == ("wildcard" in node):
        raise _error(path, "expected either value or wildcard")
    operator = _operator(node.get("op"), f"{path}.op")
    is_wildcard = "wildcard" in node
    if is_wildcard and operator not in ("=", "!="):
        raise _error(f"{path}.op", "a wildcard takes = or !=")
    value = _value(
        node["wildcard"] if is_wildcard else node["value"], f"{path}.value", is_wildcard=is_wildcard
    )
    found = comparison(field, operator, value, Place(path=f"{path}.op"))
    is_anchored = node.get("anchored", False)
    # Not by truth: the text "false" would anchor the expression.
    if not isinstance(is_anchored, bool) or (is_anchored and operator not in REGEX):
        raise _error(f"{path}.anchored", "expected true or false beside =~ or !~")
    return anchored(found) if is_anchored else found


def _operator(text: object, path: str) -> Operator:
    for operator in OPERATORS:
        if operator == text:
            return operator
    raise _error(path, "expected an operator: = != < <= > >= =~ !~, or exists with an attribute")


def _value(node: object, path: str, *, is_wildcard: bool) -> Value:
    # Before the numbers: `bool` is a subclass of `int`.
    if isinstance(node, bool):
        return Value(str(node).lower(), Place(path=path), is_exact=True)
    if isinstance(node, int | float):
        return Value(repr(node), Place(path=path), is_exact=True, is_number=True)
    return Value(_text(node, path), Place(path=path), is_exact=not is_wildcard)


def _text(node: object, path: str) -> str:
    if not isinstance(node, str):
        raise _error(path, "expected a text")
    # `check_text` saw the document, where an escape such as \u0000 is plain ASCII.
    if unusable_character(node) is not None:
        raise _error(path, "the text has a NUL character or is not UTF-8")
    return node


def _error(path: str, problem: str) -> InvalidFilter:
    return InvalidFilter(problem, path=path)
