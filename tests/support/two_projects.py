"""Spans of a user's project and of another one, whose texts all contain a marker."""

from __future__ import annotations

from typing import Any, Final

from tests.support.random_filters import NOW_S, Span
from tests.support.rollups import MIDNIGHT_S

MARKER: Final = "zzother"
"""Part of every text of the other project's spans."""
ODD_PROJECT: Final = "prj '\\{mine} %s"
"""A project whose id has characters that SQL quotes."""
MINE, SHARED, OTHERS = "a" * 32, "ab" * 16, "ac" * 16
"""Traces: of the user's project, of both projects, and of the other project."""
ROOT, CALLED, HIDDEN, HIDDEN_CALL = (f"{number:016x}" for number in range(1, 5))


def span_of(trace_id: str, span_id: str, parent: str, texts: str, **more: Any) -> Span:  # noqa: ANN401 - any column
    return {
        "start_ns": (MIDNIGHT_S + 7_200) * 10**9,
        "ReceivedAt": f"{MIDNIGHT_S + 7_201}.000",
        "TraceId": trace_id,
        "SpanId": span_id,
        "ParentSpanId": parent,
        "TraceState": f"{texts}=1",
        "ServiceName": "web",
        "SpanName": f"{texts} GET",
        "SpanKind": "Server",
        "ProjectId": f"prj_{texts}",
        "DeploymentId": "dpl_1",
        "Drain": texts,
        "Duration": 1_000_000,
        "StatusCode": "Error",
        "StatusMessage": f"{texts} failed",
        "ScopeName": texts,
        "SpanAttributes": {"http.route": f"/{texts}", f"{texts}.key": texts, "common": texts},
        "ResourceAttributes": {"service.name": "web", "host.name": texts, f"{texts}.resource": texts},
        "Events.Timestamp": [f"{MIDNIGHT_S + 7_200}.000000000"],
        "Events.Name": [texts],
        "Events.Attributes": [{"exception.type": texts, "exception.message": f"{texts} broke"}],
        "Links.TraceId": [OTHERS if texts == MARKER else MINE],
        "Links.SpanId": [ROOT],
        "Links.TraceState": [texts],
        "Links.Attributes": [{f"{texts}.link": texts}],
        **more,
    }


def spans() -> list[Span]:
    """Return spans of both projects: the same deployments and services, and a trace of both."""
    found = [
        span_of(SHARED, ROOT, "", "mine"),
        span_of(SHARED, CALLED, ROOT, "mine", ServiceName="mine db"),
        span_of(SHARED, HIDDEN, ROOT, MARKER),
        span_of(SHARED, HIDDEN_CALL, HIDDEN, MARKER, ServiceName=f"{MARKER} db"),
        # A call from a service of the other project, which the map of services joins.
        span_of(SHARED, f"{5:016x}", HIDDEN_CALL, "mine"),
        span_of(MINE, ROOT, "", "mine"),
        span_of(OTHERS, ROOT, "", MARKER),
        span_of(OTHERS, CALLED, ROOT, MARKER, ServiceName=f"{MARKER} db"),
        span_of(OTHERS, HIDDEN, ROOT, MARKER, DeploymentId=f"dpl_{MARKER}"),
        span_of("ad" * 16, ROOT, "", "odd", ProjectId=ODD_PROJECT),
    ]
    for number in range(60):
        texts = "mine" if number % 2 else MARKER
        found.append(
            span_of(
                f"{number + 1:032x}",
                ROOT,
                "",
                texts,
                start_ns=(MIDNIGHT_S + number * 600) * 10**9,
                ReceivedAt=f"{MIDNIGHT_S + number * 600 + 1}.000",
                DeploymentId="dpl_1" if number < 30 else "dpl_2",
                StatusCode="Error" if number > 20 else "Unset",
                SpanAttributes={"common": texts, "tier": f"{texts} {number < 30}"},
            )
        )
    now = {"start_ns": NOW_S * 10**9, "ReceivedAt": f"{NOW_S}.000"}
    return [*found, *(span_of("ae" * 16, ROOT, "", texts, **now) for texts in (MARKER, "mine"))]
