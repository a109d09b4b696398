"""Random filters, and an evaluator in plain Python that shares no code with the receiver's compiler."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

from receiver.console.queries.filters.filter import (
    Anchored,
    And,
    Attribute,
    Comparison,
    Exists,
    Filter,
    HasSpan,
    Intrinsic,
    Not,
    Operator,
    Or,
    Scope,
    TraceAnd,
    TraceFilter,
    TraceNot,
    TraceOr,
    Wildcard,
)
from tests.support.filter_writers import as_text
from tests.support.random_filters import (
    KEYS,
    NOW_S,
    NUMBER,
    REGEXES,
    VALUES,
    Matches,
    Span,
    by_size,
    has_error,
    is_root,
    maps_of,
    regex_matches,
    summary_of,
)

Form = Literal["text", "json", "traceql"]
"""A form of filters; each can express only some trees."""
SPANS_ONLY: Literal["spans"] = "spans"
"""The one-line form of a filter of spans, which has no fields of the trace."""
AnyForm = Form | Literal["spans"]

COLUMN_OF = {
    "service": "ServiceName",
    "operation": "SpanName",
    "project": "ProjectId",
    "deployment": "DeploymentId",
    "status-message": "StatusMessage",
    "scope:name": "ScopeName",
    "trace": "TraceId",
}
IN_TRACEQL = (
    "operation",
    "status-message",
    "scope:name",
    "trace",
    "event:name",
    "status",
    "kind",
    "duration",
)
CONTENTS: tuple[str | Wildcard, ...] = ("", "web", "É", "HI", "%C", "a_b", "5", "\\", Wildcard(("A", "I/")))
"""Parts of texts, also in the other case of their letters."""
DURATIONS_NS = (1, 1_500_000, 250_000_000, 3_600 * 10**9)
EQUALITY: tuple[Operator, ...] = ("=", "!=")
SIZE: tuple[Operator, ...] = ("<", "<=", ">", ">=")


def random_filter(rng: random.Random) -> tuple[str, Matches]:
    """Return a filter of spans in one line, and the same as a function."""
    tree = random_tree(rng, SPANS_ONLY)
    return as_text(tree, rng), lambda span: span_matches(tree, span, ())


def random_tree(rng: random.Random, form: AnyForm, depth: int = 0) -> Filter:
    """Return a condition on spans that the form can express."""
    kind = rng.choice(["term"] * 3 + ["and", "or", "not"] if depth < 3 else ["term"])
    if kind == "term":
        return random_term(rng, form)
    if kind == "not":
        return Not(random_tree(rng, form, depth + 1))
    parts = tuple(random_tree(rng, form, depth + 1) for _ in range(rng.choice([2, 3])))
    return And(parts) if kind == "and" else Or(parts)


def random_trace_tree(rng: random.Random, form: Form, depth: int = 0) -> TraceFilter:
    """Return a condition on traces that the form can express."""
    kinds = ["and", "or", *(["not"] if form != "traceql" else [])]
    kind = rng.choice(["set"] * 2 + kinds if depth < 2 else ["set"])
    if kind == "set":
        return HasSpan(And(()) if rng.random() < 0.05 else random_tree(rng, form, 1))
    if kind == "not":
        return TraceNot(random_trace_tree(rng, form, depth + 1))
    parts = tuple(random_trace_tree(rng, form, depth + 1) for _ in range(2))
    return TraceAnd(parts) if kind == "and" else TraceOr(parts)


def random_term(rng: random.Random, form: AnyForm) -> Filter:
    if form != "spans" and rng.random() < 0.12:
        return random_trace_term(rng, form)
    if rng.random() < 0.5:
        return random_attribute_term(rng, form)
    names = ["event:name", "status", "kind", "duration", "root", "has-error", "text:all", *COLUMN_OF]
    name = rng.choice([name for name in names if form != "traceql" or name in IN_TRACEQL])
    field = Intrinsic(name)
    words = {
        "status": ["Unset", "Ok", "Error"],
        "kind": ["Server", "Client", "Producer"],
        "root": ["1", ""],
        "has-error": ["1", ""],
    }
    if name in words:
        return Comparison(field, rng.choice(EQUALITY), rng.choice(words[name]))
    if name == "duration":
        return Comparison(field, rng.choice(EQUALITY + SIZE), rng.choice(DURATIONS_NS))
    if name == "text:all":
        return Comparison(field, "=", rng.choice(CONTENTS))
    return random_text_term(rng, field, form)


def random_trace_term(rng: random.Random, form: Form) -> Filter:
    names = ["trace:duration", "trace:service", "trace:name"]
    name = rng.choice(names if form == "traceql" else [*names, "trace:spans", "trace:errors"])
    if name == "trace:duration":
        return Comparison(Intrinsic(name), rng.choice(SIZE), rng.choice([3 * 10**9, 1_200 * 10**9, 2**63]))
    if name in ("trace:spans", "trace:errors"):
        return Comparison(Intrinsic(name), rng.choice(EQUALITY + SIZE), rng.choice([0, 1, 3, 5]))
    return random_text_term(rng, Intrinsic(name), form)


def random_text_term(rng: random.Random, field: Intrinsic | Attribute, form: AnyForm) -> Comparison:
    kind = rng.choice(["text", "wildcard", "regex"] if form != "traceql" else ["text", "regex"])
    if kind == "text":
        return Comparison(field, rng.choice(EQUALITY), rng.choice(VALUES))
    if kind == "wildcard":
        parts = rng.choice([("", ""), ("/api/", ""), ("", "a", ""), ("w", "b"), ('"', "%_\\*")])
        return Comparison(field, rng.choice(EQUALITY), Wildcard(parts))
    regex = rng.choice(REGEXES)
    is_anchored = form == "traceql" or (form == "json" and rng.random() < 0.5)
    operator: Operator = rng.choice(("=~", "!~"))
    return Comparison(field, operator, Anchored(regex) if is_anchored else regex)


def random_attribute_term(rng: random.Random, form: AnyForm) -> Filter:
    scopes: list[Scope] = ["", "span", "resource", "event", "link", "instrumentation", "scope"]
    attribute = Attribute(rng.choice(scopes if form != "traceql" else scopes[:-1]), rng.choice(KEYS))
    return random_attribute_test(rng, attribute, form)


def random_attribute_test(rng: random.Random, attribute: Attribute, form: AnyForm) -> Comparison | Exists:
    kind = rng.choice(["exists", "size", "text", "text"])
    if kind == "exists":
        return Exists(attribute)
    if kind == "text":
        return random_text_term(rng, attribute, form)
    if form in ("json", "traceql") and rng.random() < 0.3:
        return Comparison(attribute, rng.choice(EQUALITY), rng.choice([499.5, 0.5]))
    return Comparison(attribute, rng.choice(SIZE), rng.choice([500.0, -3.0, 499.5]))


def traces_that_match(spans: Sequence[Span], tree: TraceFilter) -> dict[str, dict[str, Any]]:
    """Return the summaries of the traces that match in the last hour."""
    since_ns = (NOW_S - 3_600) * 10**9
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_trace[span["TraceId"]].append(span)
    return {
        trace_id: summary_of(trace)
        for trace_id, trace in by_trace.items()
        if (recent := [span for span in trace if span["start_ns"] >= since_ns])
        and trace_matches(tree, recent, trace)
    }


def trace_matches(tree: TraceFilter, recent: Sequence[Span], trace: Sequence[Span]) -> bool:
    match tree:
        case HasSpan(part):
            return any(span_matches(part, span, trace) for span in recent)
        case TraceNot(part):
            return not trace_matches(part, recent, trace)
        case TraceAnd(parts):
            return all(trace_matches(part, recent, trace) for part in parts)
        case TraceOr(parts):
            return any(trace_matches(part, recent, trace) for part in parts)


def span_matches(tree: Filter, span: Span, trace: Sequence[Span]) -> bool:
    match tree:
        case Not(part):
            return not span_matches(part, span, trace)
        case And(parts):
            return all(span_matches(part, span, trace) for part in parts)
        case Or(parts):
            return any(span_matches(part, span, trace) for part in parts)
        case Exists(Attribute(scope, key)):
            return any(key in found for found in maps_of(span, scope, key))
        case Comparison(Attribute(scope, key)):
            return any(value_matches(tree, found[key]) for found in maps_of(span, scope, key) if key in found)
        case Comparison(Intrinsic(name)):
            return any(value_matches(contained(tree), value) for value in values_of(name, span, trace))
    raise AssertionError


def texts_of(span: Span) -> list[str]:
    maps = [span[f"{scope}Attributes"] for scope in ("Span", "Resource", "Scope")] + span["Events.Attributes"]
    values = [value for each in maps for value in each.values()]
    return [span["SpanName"], span["StatusMessage"], *span["Events.Name"], *values]


def contained(comparison: Comparison) -> Comparison:
    """Return a comparison with `text:all` as one with texts in lower case that contain its value."""
    wanted = comparison.value
    if comparison.field != Intrinsic("text:all"):
        return comparison
    parts = wanted.parts if isinstance(wanted, Wildcard) else (str(wanted),)
    return Comparison(comparison.field, "=", Wildcard(("", *(part.lower() for part in parts), "")))


def values_of(name: str, span: Span, trace: Sequence[Span]) -> list[Any]:
    if name in COLUMN_OF:
        return [span[COLUMN_OF[name]]]
    if name == "event:name":
        return list(span["Events.Name"])
    if name == "text:all":
        return [text.lower() for text in texts_of(span)]
    if name.startswith("trace:"):
        start_ns = min(other["start_ns"] for other in trace)
        duration_ns = max(other["start_ns"] + other["Duration"] for other in trace) - start_ns
        return [duration_ns if name == "trace:duration" else summary_of(trace)[name.removeprefix("trace:")]]
    flags = {"root": is_root, "has-error": has_error}
    if name in flags:
        return ["1" if flags[name](span) else ""]
    return [span[{"status": "StatusCode", "kind": "SpanKind", "duration": "Duration"}[name]]]


def value_matches(comparison: Comparison, value: Any) -> bool:  # noqa: ANN401 - a text or a number
    wanted, operator = comparison.value, comparison.operator
    if isinstance(wanted, float):
        if NUMBER.fullmatch(value) is None:
            return False
        value = float(value)
    if operator in SIZE:
        assert isinstance(wanted, int | float)
        return by_size(operator, value, wanted)
    if isinstance(wanted, Wildcard):
        return wildcard_matches(wanted.parts, value) != (operator == "!=")
    if operator in ("=~", "!~"):
        if isinstance(wanted, Anchored):
            regex = wanted.regex.replace("$", r"\Z")
            return (re.fullmatch(regex, value, re.DOTALL) is not None) == (operator == "=~")
        return regex_matches(str(wanted), value) == (operator == "=~")
    return bool(value == wanted) != (operator == "!=")


def wildcard_matches(parts: Sequence[str], text: str) -> bool:
    """Match from the left: the first place of each part leaves the most for the next."""
    first, *middle, last = parts
    if not text.startswith(first):
        return False
    at = len(first)
    for part in middle:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return len(text) - len(last) >= at and text.endswith(last)
