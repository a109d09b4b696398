"""Spans that call each other across hours and days, and the service map in plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from receiver.console.queries.aggregates.proven_hours import proven_calls
from receiver.console.queries.rollup.tables import HOUR_NS
from receiver.engine.store import Store
from tests.support.answers import ask
from tests.support.hostile_filters import RecordingStore
from tests.support.random_filters import NOW_S, Matches, Span
from tests.support.rollups import DAY_S, FROM_NS, HOUR_S, MIDNIGHT_S, TO_NS, span_at

HALF_BUCKET = 2 ** (1 / 32) - 1
STEPS_S = (0, 1, 1, 60, 1_800, 1_800, 5_400, 3 * HOUR_S, -30, -90)
"""How long after its caller a call starts. A negative time is the difference of two clocks."""
EACH_SPAN: Matches = lambda _span: True  # noqa: E731 - a constant
FILTERS: dict[str, Matches] = {
    "": EACH_SPAN,
    "project=prj_1 -service=web": lambda span: span["ProjectId"] == "prj_1" and span["ServiceName"] != "web",
    "kind=server deployment=dpl_1": lambda span: (
        span["SpanKind"] == "Server" and span["DeploymentId"] == "dpl_1"
    ),
    "name=cart": lambda span: span["SpanName"] == "cart",
}
SPANS_ONLY = "name=cart"
"""The filter by what rows of the rollup lack."""


def call(rng: random.Random, number: int, caller: Span | None, start_s: int, received_s: float = 0) -> Span:
    """Return a span of the trace of its caller; without a caller, the first one of a trace."""
    return span_at(rng, number, start_s, received_s or start_s + rng.random()) | {
        "TraceId": caller["TraceId"] if caller else f"{number:032x}",
        "ParentSpanId": caller["SpanId"] if caller else "",
        "ServiceName": rng.choice(["web", "cart", "", "mail"]),
    }


def call_spans(rng: random.Random, count: int = 600) -> list[Span]:
    spans: list[Span] = []
    for number in range(count):
        callers = [span for span in spans[-8:] if rng.random() < 0.3]
        caller = callers[0] if callers else None
        began_s = rng.randrange(MIDNIGHT_S - DAY_S, NOW_S)
        start_s = caller["start_ns"] // 10**9 + rng.choice(STEPS_S) if caller else began_s
        spans.append(call(rng, number, caller, start_s))
    # Spans that two senders sent.
    return [*spans, *rng.sample(spans, 40)]


def expected_edges(
    spans: Sequence[Span], bounds: tuple[int, int], matches: Matches
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the edges of a range over three hours."""
    callers, calls = defaultdict(set), defaultdict[tuple[str, str], dict[Any, Span]](dict)
    for span in spans:
        callers[span["TraceId"], span["SpanId"]].add((span["start_ns"], span["ServiceName"]))
    for span in spans:
        is_call = span["SpanKind"] in {"Server", "Consumer"} and span["ParentSpanId"]
        if not is_call or not bounds[0] <= span["start_ns"] < bounds[1] or not matches(span):
            continue
        hour = span["start_ns"] // HOUR_NS
        for started_ns, service in callers[span["TraceId"], span["ParentSpanId"]]:
            is_found = (hour - 1) * HOUR_NS <= started_ns < (hour + 1) * HOUR_NS + 60 * 10**9
            if is_found and service != span["ServiceName"]:
                identity = (
                    hour,
                    span["SpanId"],
                    span["ParentSpanId"],
                    span["Duration"],
                    span["StatusCode"] == "Error",
                )
                calls[service, span["ServiceName"]][identity] = span
    return {edge: _measured(list(called.values())) for edge, called in calls.items()}


def _measured(called: Sequence[Span]) -> dict[str, Any]:
    durations = sorted(span["Duration"] / 1e6 for span in called)
    errors = sum(span["StatusCode"] == "Error" for span in called)
    percentiles = {"p50_ms": durations[len(called) // 2], "p95_ms": durations[int(len(called) * 0.95)]}
    return {
        "calls": len(called),
        "errors": errors,
        "error_rate": errors / len(called),
        **{
            name: value and pytest.approx(value, rel=HALF_BUCKET + 1e-9)
            for name, value in percentiles.items()
        },
    }


def assert_equal(
    store: Store,
    spans: Sequence[Span],
    bounds: tuple[int, int] = (FROM_NS, TO_NS),
    filters: Sequence[str] = tuple(FILTERS),
    *,
    hours_min: int = 0,
) -> None:
    """Compare the answers with plain Python; the answers read at least this many hours of the rollup."""
    recording: Any = RecordingStore(store)
    times = {"since": _utc(bounds[0]), "until": _utc(bounds[1])}
    for text in filters:
        recording.statements.clear()
        found = ask(recording, "service-map", filter=text, **times)
        expected = expected_edges(spans, bounds, FILTERS[text])

        assert {(row.pop("client"), row.pop("server")): row for row in found} == expected, text
        is_read = any("ClientName AS client" in statement for statement in recording.statements)
        assert is_read == (text != SPANS_ONLY and bool(hours_of(store, bounds))), text
    assert len(hours_of(store, bounds)) >= hours_min


def hours_of(store: Store, bounds: tuple[int, int] = (FROM_NS, TO_NS)) -> set[int]:
    """Return the hours of a range that the rollup answers."""
    return {*proven_calls(store, *bounds).slots}


def _utc(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat()
