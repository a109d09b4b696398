"""Random spans, and the summaries of their traces in plain Python."""

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


def regex_matches(pattern: str, text: str) -> bool:
    return re.search(pattern.replace("$", r"\Z"), text, re.DOTALL) is not None


def by_size(operator: str, left: float, right: float) -> bool:
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator]


def maps_of(span: Span, scope: str, key: str) -> list[dict[str, str]]:
    if scope in ("event", "link"):
        return list(span[f"{scope.title()}s.Attributes"])
    if scope:
        columns = {"span": "SpanAttributes", "resource": "ResourceAttributes"}
        return [span[columns.get(scope, "ScopeAttributes")]]
    return [span["SpanAttributes"] if key in span["SpanAttributes"] else span["ResourceAttributes"]]


def is_root(span: Span) -> bool:
    return not span["ParentSpanId"]


def has_error(span: Span) -> bool:
    return span["StatusCode"] == "Error" or "exception" in span["Events.Name"]


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
