"""Writers of filter trees in every form, the inverse of the receiver's parsers."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from receiver.console.queries.filters.filter import (
    INTRINSICS,
    WORDS,
    Anchored,
    And,
    Attribute,
    Comparison,
    Exists,
    Filter,
    HasSpan,
    Intrinsic,
    Not,
    Or,
    TraceAnd,
    TraceFilter,
    TraceNot,
    TraceOr,
    Wildcard,
)

PLAIN = re.compile(r"[a-z]\w*(\.\w+)*")
TRACEQL_NAME = {
    "operation": ("name", "span:name"),
    "status": ("status", "span:status"),
    "status-message": ("statusMessage", "span:statusMessage"),
    "kind": ("kind", "span:kind"),
    "duration": ("duration", "span:duration"),
    "trace:duration": ("traceDuration", "trace:duration"),
    "trace:name": ("rootName", "trace:rootName"),
    "trace:service": ("rootServiceName", "trace:rootService"),
    "trace": ("trace:id",),
    "event:name": ("event:name",),
    "scope:name": ("instrumentation:name",),
}


def word_of(field: Intrinsic | Attribute, value: object) -> str | None:
    """Return the word for a stored value, if the field has words."""
    words = WORDS.get(INTRINSICS[field.name], {}) if isinstance(field, Intrinsic) else {}
    return next((word for word, stored in words.items() if stored == value), None)


def backslashed(text: str, characters: str) -> str:
    return "".join(f"\\{char}" if char in characters else char for char in text)


def as_text(tree: Filter | TraceFilter, rng: random.Random) -> str:
    """Write the one-line form."""
    text = ""
    match tree:
        case HasSpan(part):
            text = "{}" if part == And(()) else f"{{{as_text(part, rng)}}}"
        case Not(part) | TraceNot(part):
            text = f"{rng.choice(['-', 'NOT '])}({as_text(part, rng)})"
        case And(parts) | Or(parts) | TraceAnd(parts) | TraceOr(parts):
            joints = {
                And: [" ", " AND "],
                Or: [" OR "],
                TraceAnd: [" && ", " AND ", " "],
                TraceOr: [" || ", " or "],
            }
            text = rng.choice(joints[type(tree)]).join(f"({as_text(part, rng)})" for part in parts)
        case Exists(attribute):
            text = f"{text_name(attribute)} exists"
        case Comparison(field, operator):
            text = f"{text_name(field)}{rng.choice(['', ' '])}{operator}{text_value(tree)}"
    return text


def text_name(field: Intrinsic | Attribute) -> str:
    if isinstance(field, Intrinsic):
        return field.name
    is_plain = PLAIN.fullmatch(field.key) and (field.scope or "." in field.key)
    key = field.key if is_plain else f'"{backslashed(field.key, chr(92) + chr(34))}"'
    return f"{field.scope}.{key}" if field.scope else key


def text_value(comparison: Comparison) -> str:
    value = comparison.value
    if isinstance(value, Wildcard):
        return '"' + "*".join(backslashed(part, '\\"*') for part in value.parts) + '"'
    if isinstance(value, str):
        word = word_of(comparison.field, value)
        escaped = '"' if "~" in comparison.operator else '\\"*'
        return word or f'"{backslashed(value, escaped)}"'
    is_duration = isinstance(comparison.field, Intrinsic) and "duration" in comparison.field.name
    return f"{value}ns" if is_duration else repr(value)


def as_json(tree: Filter | TraceFilter, rng: random.Random) -> str:
    """Write JSON."""
    return json.dumps(document(tree, is_whole=True), ensure_ascii=rng.random() < 0.5)


def document(tree: Filter | TraceFilter, *, is_whole: bool = False) -> dict[str, Any]:
    match tree:
        case HasSpan(part):
            return document(part) if is_whole else {"span": document(part)}
        case Not(part) | TraceNot(part):
            return {"not": document(part)}
        case And(parts) | TraceAnd(parts):
            return {"all": [document(part) for part in parts]}
        case Or(parts) | TraceOr(parts):
            return {"any": [document(part) for part in parts]}
        case Exists(attribute):
            return {**json_field(attribute), "op": "exists"}
        case Comparison(field, operator):
            return {**json_field(field), "op": operator, **json_value(tree)}


def json_field(field: Intrinsic | Attribute) -> dict[str, str]:
    if isinstance(field, Intrinsic):
        return {"field": field.name}
    return {"attribute": field.key, **({"scope": field.scope} if field.scope else {})}


def json_value(comparison: Comparison) -> dict[str, Any]:
    value = comparison.value
    if isinstance(value, Wildcard):
        return {"wildcard": "*".join(backslashed(part, '\\"*') for part in value.parts)}
    if isinstance(value, Anchored):
        return {"value": value.regex, "anchored": True}
    if isinstance(comparison.field, Intrinsic) and "duration" in comparison.field.name:
        return {"value": f"{value}ns"}
    return {"value": word_of(comparison.field, value) or value}


def as_traceql(tree: Filter | TraceFilter, rng: random.Random) -> str:
    """Write TraceQL."""
    text = ""
    match tree:
        case HasSpan(part):
            text = "{}" if part == And(()) else f"{{ {as_traceql(part, rng)} }}"
        case Not(Exists(attribute)):
            text = f"{traceql_name(attribute, rng)} = nil"
        case Not(part):
            text = f"!({as_traceql(part, rng)})"
        case And(parts) | Or(parts) | TraceAnd(parts) | TraceOr(parts):
            joint = "&&" if isinstance(tree, And | TraceAnd) else "||"
            text = rng.choice([f" {joint} ", joint]).join(f"({as_traceql(part, rng)})" for part in parts)
        case Exists(attribute):
            text = f"{traceql_name(attribute, rng)} != nil"
        case Comparison(field, operator):
            text = f"{traceql_name(field, rng)} {operator} {traceql_value(tree, rng)}"
    return text


def traceql_name(field: Intrinsic | Attribute, rng: random.Random) -> str:
    if isinstance(field, Intrinsic):
        return rng.choice(TRACEQL_NAME[field.name])
    is_plain = PLAIN.fullmatch(field.key) and rng.random() < 0.5
    return f"{field.scope}." + (field.key if is_plain else f'"{backslashed(field.key, chr(92) + chr(34))}"')


def traceql_value(comparison: Comparison, rng: random.Random) -> str:
    value = comparison.value
    if isinstance(comparison.field, Intrinsic) and "duration" in comparison.field.name:
        return f"{value}ns"
    text = value.regex if isinstance(value, Anchored) else value
    if not isinstance(text, str):
        return repr(text)
    if word := word_of(comparison.field, text):
        return word
    if "`" not in text and rng.random() < 0.5:
        return f"`{text}`"
    return json.dumps(text, ensure_ascii=rng.random() < 0.5)
