"""Random spans and filters, with an evaluator in plain Python that shares no code with the receiver."""

from __future__ import annotations

import json
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from receiver.engine.store import Store

Span = dict[str, Any]
Matches = Callable[[Span], bool]
Written = tuple[str, Matches]
"""A filter as text, and the same as a function."""

TRACES = 900
NOW_S = int(time.time())
TEXTS = (
    "web",
    "cart",
    "",
    "a_b%c",
    "a\\b",
    'say "hi"',
    "{f0:String}",
    "' OR 1=1 --",
    "*",
    "été\n",
    "GET /api/1",
)
VALUES = (*TEXTS, "500", "499.5", "-3", "1e3", "+5", ".5", "5.", "NaN", " 5", "0x10", "/api/users/7", "/api/")
KEYS = ("http.route", "n.x", "k", "odd key'\"\\")
REGEXES = ("^a", "[0-9]+$", "b|c", ".", "^$", "é", "/api/.*", "(?i)WEB", '"hi"')
WILDCARDS = ("*", "/api/*", "*a*", "*b%*", "*_b*", "w*b", "a\\*", "**")
CONTENTS = ("", "web", "é", "hi", "api/", "%c", "a_b", "5", "c*t", "/*/1", "\\*")
"""Parts of texts, in lower case, with wildcards."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def attributes(rng: random.Random) -> dict[str, str]:
    return {key: rng.choice(VALUES) for key in KEYS if rng.random() < 0.4}


def random_span(rng: random.Random, number: int) -> Span:
    """Return a random row: in eight of nine cases of the last hour."""
    events = [
        (rng.choice(["exception", "retry", ""]), attributes(rng)) for _ in range(rng.choice([0, 0, 1, 2]))
    ]
    start_ns = (NOW_S - rng.randrange(1, 4_050)) * 10**9 + rng.randrange(10**9)
    return {
        "start_ns": start_ns,
        "TraceId": f"{rng.randrange(TRACES):032x}",
        "SpanId": f"{number:016x}",
        "ParentSpanId": rng.choice(["", "00000000000000aa"]),
        "ServiceName": rng.choice(TEXTS),
        "SpanName": rng.choice(TEXTS),
        "ProjectId": rng.choice(["prj_1", "prj_2"]),
        "DeploymentId": rng.choice(["dpl_1", ""]),
        "SpanKind": rng.choice(["Server", "Client", "Internal"]),
        "StatusCode": rng.choice(["Unset", "Ok", "Error"]),
        "StatusMessage": rng.choice(TEXTS),
        "Duration": rng.choice([0, 1, 999, 1_500_000, 250_000_000, 3 * 10**9, 2**63 + 1]),
        "SpanAttributes": attributes(rng),
        "ResourceAttributes": attributes(rng),
        "ScopeAttributes": attributes(rng),
        "ScopeName": rng.choice(TEXTS),
        "Events.Timestamp": [0] * len(events),
        "Events.Name": [name for name, _ in events],
        "Events.Attributes": [items for _, items in events],
        "Links.TraceId": [""],
        "Links.SpanId": [""],
        "Links.TraceState": [""],
        "Links.Attributes": [attributes(rng)],
    }


def as_row(span: Span) -> str:
    seconds, nanoseconds = divmod(span["start_ns"], 10**9)
    started = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    columns = {name: value for name, value in span.items() if name != "start_ns"}
    return json.dumps({**columns, "Timestamp": f"{started}.{nanoseconds:09d}"})


def insert(store: Store, spans: Iterable[Span]) -> None:
    """Insert the spans, if there are any."""
    if rows := "\n".join(map(as_row, spans)):
        store.command(f"INSERT INTO otel_traces FORMAT JSONEachRow\n{rows}")


def quoted(text: str, *, keep: str = "") -> str:
    """Return the text as a quoted value; a regular expression and a wildcard keep some characters."""
    return '"' + "".join(f"\\{char}" if char in '\\"*' and char not in keep else char for char in text) + '"'


def wildcard_matches(pattern: str, text: str) -> bool:
    parts = re.findall(r"\\\*|.", pattern, re.DOTALL)
    regex = "".join(".*" if part == "*" else re.escape(part[-1]) for part in parts)
    return re.fullmatch(regex, text, re.DOTALL) is not None


def regex_matches(pattern: str, text: str) -> bool:
    return re.search(pattern.replace("$", r"\Z"), text, re.DOTALL) is not None


def random_text_test(rng: random.Random) -> tuple[str, Callable[[str], bool]]:
    """Return an operator with its value, and whether a text matches it."""
    kind, is_negated = rng.choice(["text", "wildcard", "regex"]), rng.random() < 0.3
    if kind == "text":
        text = rng.choice(VALUES)
        return f"{'!=' if is_negated else '='}{quoted(text)}", lambda value: (value == text) != is_negated
    if kind == "wildcard":
        pattern = rng.choice(WILDCARDS)
        written = quoted(pattern, keep="*\\")
        return (
            f"{'!=' if is_negated else '='}{written}",
            lambda value: wildcard_matches(pattern, value) != is_negated,
        )
    regex = rng.choice(REGEXES)
    return (
        f"{'!~' if is_negated else '=~'}{quoted(regex, keep='*' + chr(92))}",
        lambda value: regex_matches(regex, value) != is_negated,
    )


def by_size(operator: str, left: float, right: float) -> bool:
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator]


def random_attribute_test(rng: random.Random) -> tuple[str, Callable[[str], bool]]:
    if rng.random() < 0.6:
        return random_text_test(rng)
    operator, limit = rng.choice(["<", "<=", ">", ">="]), rng.choice(["500", "-3", "4.995e2", "0"])

    def matches(value: str) -> bool:
        return NUMBER.fullmatch(value) is not None and by_size(operator, float(value), float(limit))

    return f"{operator}{limit}", matches


def random_attribute(rng: random.Random) -> Written:
    scope = rng.choice(["", "span", "resource", "event", "link", "scope", "instrumentation"])
    key = rng.choice(KEYS if scope else ["http.route", "n.x"])
    name = key if "." in key or key == "k" else quoted(key, keep="*")
    test, is_wanted = (" exists", bool) if rng.random() < 0.2 else random_attribute_test(rng)
    if test == " exists":
        is_wanted = lambda _value: True  # noqa: E731 - a test of a value, as the others

    def matches(span: Span) -> bool:
        return any(is_wanted(found[key]) for found in maps_of(span, scope, key) if key in found)

    return f"{scope}.{name}{test}" if scope else f"{name}{test}", matches


def maps_of(span: Span, scope: str, key: str) -> list[dict[str, str]]:
    if scope in ("event", "link"):
        return list(span[f"{scope.title()}s.Attributes"])
    if scope:
        columns = {"span": "SpanAttributes", "resource": "ResourceAttributes"}
        return [span[columns.get(scope, "ScopeAttributes")]]
    return [span["SpanAttributes"] if key in span["SpanAttributes"] else span["ResourceAttributes"]]


def random_intrinsic(rng: random.Random) -> Written:
    column_of = {
        "service": "ServiceName",
        "name": "SpanName",
        "operation": "SpanName",
        "project": "ProjectId",
        "deployment": "DeploymentId",
        "status-message": "StatusMessage",
        "scope:name": "ScopeName",
    }
    field = rng.choice([*column_of, "event:name", "status", "kind", "duration", "root", "has-error"])
    if field in column_of:
        test, is_wanted = random_text_test(rng)
        return f"{field} {test}", lambda span: is_wanted(span[column_of[field]])
    if field == "event:name":
        test, is_wanted = random_text_test(rng)
        return f"{field}{test}", lambda span: any(map(is_wanted, span["Events.Name"]))
    return random_word_test(rng, field)


def random_content(rng: random.Random) -> Written:
    """Return a search in all texts of a span, whatever the case of letters."""
    text, is_negated = rng.choice(CONTENTS), rng.random() < 0.3

    def matches(span: Span) -> bool:
        return any(wildcard_matches(f"*{text}*", each.lower()) for each in texts_of(span)) != is_negated

    written = quoted(rng.choice([text, text.upper()]), keep="*\\")
    return f"text:all{'!=' if is_negated else '='}{written}", matches


def texts_of(span: Span) -> list[str]:
    maps = [span[f"{scope}Attributes"] for scope in ("Span", "Resource", "Scope")] + span["Events.Attributes"]
    names = [span["SpanName"], span["StatusMessage"], *span["Events.Name"]]
    return [*names, *(value for each in maps for value in each.values())]


def random_word_test(rng: random.Random, field: str) -> Written:
    if field == "duration":
        operator = rng.choice(["<", "<=", ">", ">="])
        text, limit = rng.choice(
            [("1ns", 1), ("1.5ms", 1_500_000), ("250ms", 250_000_000), ("1h", 3_600 * 10**9)]
        )
        return f"duration{operator}{text}", lambda span: by_size(operator, span["Duration"], limit)
    if field == "root":
        return rng.choice([("root", is_root), ("root=false", lambda span: not is_root(span))])
    if field == "has-error":
        return rng.choice([("has-error", has_error), ("has-error != true", lambda span: not has_error(span))])
    word = rng.choice(["Unset", "Ok", "Error"] if field == "status" else ["Server", "Client", "Producer"])
    column = "StatusCode" if field == "status" else "SpanKind"
    if rng.random() < 0.5:
        return f"{field}={word.lower()}", lambda span: span[column] == word
    return f"{field}!={word.upper()}", lambda span: span[column] != word


def is_root(span: Span) -> bool:
    return not span["ParentSpanId"]


def has_error(span: Span) -> bool:
    return span["StatusCode"] == "Error" or "exception" in span["Events.Name"]


def random_filter(rng: random.Random, depth: int = 0) -> Written:
    kind = rng.choice(["term"] * 2 + ["and", "or", "not"] if depth < 3 else ["term"])
    if kind == "term":
        return rng.choice([random_attribute, random_intrinsic, random_content])(rng)
    if kind == "not":
        text, matches = random_filter(rng, depth + 1)
        return f"{rng.choice(['-', 'NOT ', 'not '])}({text})", lambda span: not matches(span)
    parts = [random_filter(rng, depth + 1) for _ in range(rng.choice([2, 3]))]
    joint = f" {rng.choice(['AND ', '']) if kind == 'and' else 'or '}"
    text = joint.join(text if kind == "and" and " or " not in text else f"({text})" for text, _ in parts)
    quantifier = all if kind == "and" else any
    return f"({text})", lambda span: quantifier(matches(span) for _, matches in parts)


def expected_summaries(spans: Sequence[Span], matches: Matches) -> dict[str, dict[str, Any]]:
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_trace[span["TraceId"]].append(span)
    since_ns = (NOW_S - 3_600) * 10**9
    wanted = {span["TraceId"] for span in spans if span["start_ns"] >= since_ns and matches(span)}
    return {trace_id: summary_of(by_trace[trace_id]) for trace_id in wanted}


def summary_of(trace: Sequence[Span]) -> dict[str, Any]:
    first = min(trace, key=lambda span: (not is_root(span), span["start_ns"], span["SpanId"]))
    start_ns = min(span["start_ns"] for span in trace)
    seconds, nanoseconds = divmod(start_ns, 10**9)
    started = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return {
        "trace_id": first["TraceId"],
        "service": first["ServiceName"],
        "name": first["SpanName"],
        "deployment": first["DeploymentId"],
        "start": f"{started}.{nanoseconds:09d}Z",
        "duration_ms": (max(span["start_ns"] + span["Duration"] for span in trace) - start_ns) / 1e6,
        "spans": len(set(map(identity_of, trace))),
        "errors": len({identity_of(span) for span in trace if span["StatusCode"] == "Error"}),
    }


def identity_of(span: Span) -> tuple[object, ...]:
    """Return what two copies of a span have in common. Client and server of a call may share the span id."""
    names = ("SpanId", "ParentSpanId", "ServiceName", "SpanName", "SpanKind", "start_ns", "Duration")
    return tuple(span[name] for name in names)
