"""Page of a trace: a summary of its time and errors, its spans as a waterfall, and the details of a span."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import urlencode

import orjson
from markupsafe import Markup

from receiver.console.api.source import Row, SourceWithSql
from receiver.console.queries.limits import decimal_number
from receiver.console.queries.traces.trace_model import Span, Trace, start_ns_of, trace_of
from receiver.console.queries.traces.traces import LINKING_AFTER_S, LINKING_BEFORE_S, normalized_trace_id
from receiver.console.ui import numbers
from receiver.console.ui.charts.svg import tag
from receiver.console.ui.long_texts import cut, with_cut_texts
from receiver.console.ui.page import Context
from receiver.console.ui.pages.deployment_events import time_axis, trace_events
from receiver.console.ui.pages.trace_views import MARKS, VIEWS, group_key_of, marked, view_of
from receiver.console.ui.view import View
from receiver.sizes import counted

ROWS_MAX = 200
"""Maximum number of spans in the table of a page without its script; other spans are behind links.

The script replaces the table, so a longer table only delays it."""
BAR_WIDTH: Final = 400
DEPTH_SHOWN_MAX = 30
"""Deeper spans are not indented further."""
MESSAGES_MAX = 3
"""Maximum number of different error messages in the sentence."""

LINKING_SEARCHED: Final = (
    f"from {LINKING_BEFORE_S // 3_600} h before this trace to {LINKING_AFTER_S // 3_600} h after it"
)


class Line(NamedTuple):
    """A span as a row of the waterfall."""

    span: Span
    indent: str
    bar: Markup
    notes: list[str]


async def build(view: View) -> Context:
    """Return the summary of the trace, its spans from row `row` on, and the span `span`."""
    trace_id = normalized_trace_id(view.parts["id"])
    show = view.one_of("show", VIEWS, VIEWS[0])
    context = await view.source.outline(
        trace_id, lambda rows: _overview(rows, view), group_key_of(view.query)
    )
    if context is None:
        return {"trace": None, "trace_id": trace_id, "status": HTTPStatus.NOT_FOUND}
    context |= {"trace_id": trace_id, "show": show, "hides_spans": await view.source.hides_spans(trace_id)}
    if show != VIEWS[0]:
        return context
    # The script of the page requests it at once, and must not read the trace again.
    view.source.prepare(trace_id, partial(outline_body, context["trace"]))
    return {**context, **await _waterfall(view, trace_id, context)}


async def _waterfall(view: View, trace_id: str, context: Context) -> Context:
    """Return the details of the chosen span, and the events of its deployments."""
    chosen = context["chosen"].row
    stored = await view.source.span(trace_id, chosen["SpanId"])
    # The span may expire between both queries.
    events = await trace_events(view, trace_id, context["trace"])
    return {
        "details": details(with_cut_texts(stored or chosen)),
        "linking": await linking(view.source, trace_id, chosen["SpanId"])
        if "linking" in view.query
        else None,
        "events": events,
        "time_axis": time_axis(context["trace"], events),
    }


async def linking(source: SourceWithSql, trace_id: str, span_id: str) -> Context:
    """Return the spans that link to a span, and in which time they were searched."""
    answer = await source.linking(trace_id, span_id)
    return {"spans": with_cut_texts(answer.rows), "is_cut": answer.is_cut, "searched": LINKING_SEARCHED}


def _overview(rows: list[Row], view: View) -> Context:
    trace, query = trace_of(rows), view.query
    if view_context := view_of(trace, query, view.path):
        return {"trace": trace, "sentence": sentence(trace), **view_context}
    marks = marked(trace, query)
    matches = frozenset(marks or ())
    first = first_row(query, len(trace.spans))
    if matches and "row" not in query:
        first = next(index for index, span in enumerate(trace.spans) if span.row["SpanId"] in matches)
    return {
        "matches": None if marks is None else matches,
        "marks": urlencode({name: query[name] for name in MARKS if name in query}),
        "trace": trace,
        "sentence": sentence(trace),
        "lines": [_line(trace, span) for span in islice(trace.spans, first, first + ROWS_MAX)],
        "first": first,
        "rows_max": ROWS_MAX,
        "chosen": next((span for span in trace.spans if span.row["SpanId"] == query.get("span")), trace.root),
    }


def sentence(trace: Trace) -> str:
    """Return a sentence with the duration of the trace, its longest operation and its errors."""
    times: Counter[tuple[str, str]] = Counter()
    for span in trace.spans:
        if span.critical:
            times[span.row["ServiceName"], span.row["SpanName"]] += span.critical_ns
    # The root may have no duration.
    times.setdefault((trace.root.row["ServiceName"], trace.root.row["SpanName"]), 0)
    (service, name), longest_ns = times.most_common(1)[0]
    text = f"{_duration(trace.end_ns - trace.start_ns)} in {numbers.count(len(trace.spans))} spans"
    if longest_ns:
        share = numbers.percent(longest_ns / times.total())
        text += f"; {_duration(longest_ns)} of it in {cut(service)} {cut(name)} ({share})"
    failed = [span for span in trace.spans if span.is_error]
    if failed:
        messages = dict.fromkeys(cut(span.row["StatusMessage"]) or "no message" for span in failed)
        text += f"; {counted(len(failed), 'error')}: {', '.join(islice(messages, MESSAGES_MAX))}"
    return text


def details(row: Row) -> Context:
    """Return all stored fields of a span, in groups."""
    return {
        "name": row["SpanName"],
        "fields": {
            "service": row["ServiceName"],
            "kind": row["SpanKind"],
            "status": f"{row['StatusCode']} {row['StatusMessage']}".strip(),
            "start": row["Timestamp"],
            "duration": _duration(row["Duration"]),
            "span": row["SpanId"],
            "parent": row["ParentSpanId"],
            "project": row["ProjectId"],
            "deployment": row["DeploymentId"],
        },
        "attributes": row.get("SpanAttributes", {}),
        "resource": row.get("ResourceAttributes", {}),
        "events": list(_events(row)),
        "links": [
            {"trace_id": trace_id, "span_id": span_id}
            for trace_id, span_id in zip(
                row.get("Links.TraceId", ()), row.get("Links.SpanId", ()), strict=True
            )
        ],
    }


def first_row(query: Mapping[str, str], row_count: int) -> int:
    """Return the index of the first row of the table, from the page's parameter `row`."""
    row = decimal_number(query.get("row", ""), len(str(row_count)))
    return row if row is not None and row < row_count else 0


def _events(row: Row) -> Iterator[Row]:
    start_ns = start_ns_of(row["Timestamp"])
    columns = (row.get(f"Events.{column}", ()) for column in ("Timestamp", "Name", "Attributes"))
    for timestamp, name, attributes in zip(*columns, strict=True):
        after = _duration(start_ns_of(timestamp) - start_ns)
        yield {"after": after, "name": name, "attributes": attributes}


def outline_body(trace: Trace) -> bytes:
    """Return the spans as JSON, for the script that draws them."""
    return orjson.dumps(columns(trace), option=orjson.OPT_NON_STR_KEYS)


def columns(trace: Trace) -> dict[str, object]:
    """Return the spans as columns, for the script that draws them. Times are nanoseconds since the start."""
    index_of = {id(span): index for index, span in enumerate(trace.spans)}
    services: dict[str, int] = {}
    names: dict[str, int] = {}
    rows = [span.row for span in trace.spans]
    return {
        "duration": trace.end_ns - trace.start_ns,
        "id": [row["SpanId"] for row in rows],
        "parent": [index_of[id(span.parent)] if span.parent else -1 for span in trace.spans],
        "start": [span.start_ns - trace.start_ns for span in trace.spans],
        "took": [span.end_ns - span.start_ns for span in trace.spans],
        "self": [span.self_ns for span in trace.spans],
        "service": [services.setdefault(row["ServiceName"], len(services)) for row in rows],
        "name": [names.setdefault(row["SpanName"], len(names)) for row in rows],
        "services": [cut(service) for service in services],
        "names": [cut(name) for name in names],
        "errors": [index for index, span in enumerate(trace.spans) if span.is_error],
        "events": {
            index: [[at_ns - trace.start_ns, is_exception] for at_ns, is_exception in events]
            for index, span in enumerate(trace.spans)
            if (events := span.row.get("EventMarks"))
        },
        "critical": {
            index: [[start - trace.start_ns, end - start] for start, end in span.critical]
            for index, span in enumerate(trace.spans)
            if span.critical
        },
        "notes": {index: notes for index, span in enumerate(trace.spans) if (notes := _notes(trace, span))},
    }


def indentation(depth: int) -> str:
    """Return the space before the name of a span."""
    return "\u2003" * min(depth, DEPTH_SHOWN_MAX)


def _line(trace: Trace, span: Span) -> Line:
    return Line(span, indentation(span.depth), _bar(trace, span), _notes(trace, span))


def _bar(trace: Trace, span: Span) -> Markup:
    """Return the bar of a span, with its sections of the critical path darker."""
    scale = BAR_WIDTH / max(1, trace.end_ns - trace.start_ns)

    def section(start_ns: int, end_ns: int, kind: str) -> Markup:
        left = (start_ns - trace.start_ns) * scale
        # A bar thinner than a pixel would be invisible.
        return tag("rect", x=left, y=2, width=max(1.0, (end_ns - start_ns) * scale), height=12, class_=kind)

    def event(at_ns: int, *, is_exception: bool) -> Markup:
        top, size, kind = (0, 16, "event exception") if is_exception else (9, 5, "event")
        return tag("rect", x=(at_ns - trace.start_ns) * scale - 1, y=top, width=2, height=size, class_=kind)

    kind = "bar span error" if span.is_error else "bar span"
    return timing(
        section(span.start_ns, span.end_ns, kind),
        *(section(start_ns, end_ns, "critical") for start_ns, end_ns in span.critical),
        *(event(at_ns, is_exception=is_exc) for at_ns, is_exc in span.row.get("EventMarks", ())),
    )


def timing(*bars: Markup) -> Markup:
    """Return the bars of a row, `BAR_WIDTH` wide; the table scales them to its column."""
    size = {"viewBox": f"0 0 {BAR_WIDTH} 16", "preserveAspectRatio": "none"}
    return tag("svg", *bars, class_="timing", **size, aria_hidden="true")


def _notes(trace: Trace, span: Span) -> list[str]:
    notes = []
    if span in trace.cyclic:
        notes.append("its parent is below it")
    elif span.is_orphan:
        notes.append("parent not stored")
    if span.skew_ns:
        notes.append(f"starts {_duration(span.skew_ns)} before its parent")
    if span.copies > 1:
        notes.append(f"stored {span.copies} times")
    return notes


def _duration(nanoseconds: int) -> str:
    return numbers.duration(nanoseconds / 1e6)
