"""Deployment events on pages: the lines of a build log around its errors, and the requests of a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from receiver.console.api.source import Row
from receiver.console.queries.filters.filter_values import attribute_text
from receiver.console.queries.traces.trace_model import Trace, start_ns_of
from receiver.console.ui.charts.svg import tag
from receiver.console.ui.event_refresh import FetchState
from receiver.console.ui.filter_text import all_of
from receiver.console.ui.view import View, instant, term

CONTEXT_LINES: Final = 2
DEPLOYMENTS_MAX: Final = 2
WAIT_S: Final = 1.0
"""Time for which the page of a trace waits for a fetch."""
AROUND_S: Final = 10.0
"""Time before and after a trace in which events are shown beside it."""
BUILT_BEFORE_S: Final = 90 * 86_400.0
"""Maximum age of a build, at the time of a trace, whose log is read."""
REQUESTS_MAX: Final = 5
NEAR_MAX: Final = 100
LOG_LINES_MAX: Final = 1_000
AXIS_PX: Final = 20
"""Height of the time axis with marks of events."""


class TraceEvents(NamedTuple):
    """Events of a deployment that are shown beside a trace."""

    deployment: str
    link: str
    fetch: FetchState
    requests: Sequence[Row]
    """Events of the requests whose ids the spans have."""
    near: Sequence[Row]
    """Other events at the time of the trace that are not requests."""
    build: Sequence[Row]
    """Lines of the build log around its errors and warnings, if a span failed."""


def around_errors(lines: Sequence[Row]) -> list[Row]:
    """Return the lines with an error or on standard error (where tools warn), and the lines around them."""
    indices = {
        index
        for error, line in enumerate(lines)
        if line["is_error"] or line["type"] == "stderr"
        for index in range(error - CONTEXT_LINES, error + CONTEXT_LINES + 1)
    }
    return [line for index, line in enumerate(lines) if index in indices]


async def trace_events(view: View, trace_id: str, trace: Trace) -> list[TraceEvents]:
    """Return the events beside a trace. A deployment without stored events is left out."""
    spans = Counter(span.row["DeploymentId"] for span in trace.spans)
    del spans[""]
    deployment_events = [
        await _of_deployment(view, trace_id, trace, deployment)
        for deployment, _ in spans.most_common(DEPLOYMENTS_MAX)
    ]
    return [
        each
        for each in deployment_events
        if each.fetch.status in {"failed", "running"} or each.requests or each.near or each.build
    ]


def time_axis(trace: Trace, events: Sequence[TraceEvents]) -> Markup:
    """Return marks of the events at the time of the trace, each a link to its row; empty without events.

    The rows get the anchors of the links.
    """
    rows = [row for shown in events for row in (*shown.requests, *shown.near)]
    marks = []
    for index, row in enumerate(rows):
        row["anchor"] = f"event-{index}"
        at_ns = start_ns_of(row["time"].removesuffix("Z"))
        if trace.start_ns <= at_ns <= trace.end_ns:
            marks.append(_mark(row, (at_ns - trace.start_ns) / max(1, trace.end_ns - trace.start_ns)))
    if not marks:
        return Markup()
    line = tag("rect", y=AXIS_PX / 2, width="100%", height=1, class_="axis-line")
    title = "Events of the deployment over the time of the trace; crosses are errors"
    return tag(
        "svg", line, *marks, id="axis", class_="events-axis", width="100%", height=AXIS_PX,
        role="group", aria_label=title,
    )  # fmt: skip


def _mark(row: Row, position: float) -> Markup:
    middle = AXIS_PX / 2
    about = (
        f"{'error, ' if row['is_error'] else ''}{row['kind']} at {row['time'][11:23]}: {row['text'][:200]}"
    )
    # A cross for an error and a dot for another event; a transparent square makes both easy to point at.
    square = tag("rect", x=-middle, width=AXIS_PX, height=AXIS_PX, class_="reach")
    shape = (
        tag("path", d=f"M-4 {middle - 4}l8 8m0 -8l-8 8", class_="cross")
        if row["is_error"]
        else tag("circle", cx=0, cy=middle, r=4)
    )
    inner = tag("svg", tag("title", about), square, shape, x=f"{position * 100:.3f}%")
    return tag("a", inner, href=f"#{row['anchor']}", aria_label=about)


async def _of_deployment(view: View, trace_id: str, trace: Trace, deployment: str) -> TraceEvents:
    begin_s, end_s = trace.start_ns / 1e9, trace.end_ns / 1e9
    fetch = await view.facts.refresh_events(deployment, WAIT_S, view.projects)
    times = {"since": instant(begin_s - AROUND_S), "until": instant(end_s + AROUND_S)}
    near = (await view.ask("deployment-events", deployment=deployment, **times, limit=str(NEAR_MAX))).rows
    requests = await _requests(view, trace_id, deployment, times) if near else []
    is_failed = any(span.is_error for span in trace.spans)
    joined = {row["id"] for row in requests}
    return TraceEvents(
        deployment,
        view.deployment_link(deployment, since=instant(begin_s - 3_600), until=instant(end_s + 3_600)),
        fetch,
        requests,
        [row for row in near if row["kind"] != "request" and row["id"] not in joined],
        await _build_errors(view, deployment, begin_s) if is_failed else [],
    )


async def _requests(view: View, trace_id: str, deployment: str, times: dict[str, str]) -> list[Row]:
    """Return the events with a request id that a span of the trace has in an attribute."""
    keys = view.facts.settings.platform.events.request_attributes
    if not keys:
        return []
    has_id = " OR ".join(f"{attribute_text('span', key)} exists" for key in keys)
    filters = all_of(term("trace", trace_id), has_id)
    spans = await view.ask("spans", filter=filters, **times, limit=str(NEAR_MAX))
    ids = dict.fromkeys(
        _id_in(value) for row in spans.rows for key in keys if (value := row["SpanAttributes"].get(key, ""))
    )
    rows: dict[str, Row] = {}
    for request in list(ids)[:REQUESTS_MAX]:
        answer = await view.ask(
            "deployment-events", deployment=deployment, request=request, **times, limit=str(NEAR_MAX)
        )
        rows |= {row["id"]: row for row in answer.rows}
    return sorted(rows.values(), key=lambda row: row["time"])


def _id_in(value: str) -> str:
    """Return the id in an attribute; the attribute of a header is an array."""
    return value.removeprefix('["').removesuffix('"]')


async def _build_errors(view: View, deployment: str, begin_s: float) -> list[Row]:
    answer = await view.ask(
        "deployment-events",
        deployment=deployment,
        kind="build",
        since=instant(max(0.0, begin_s - BUILT_BEFORE_S)),
        until=instant(begin_s),
        limit=str(LOG_LINES_MAX),
    )
    return around_errors(answer.rows)
