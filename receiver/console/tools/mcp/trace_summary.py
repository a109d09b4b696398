"""Summary of a trace for a reader with little space: failed spans and the critical path first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from receiver.console.api.source import Row
from receiver.console.queries.traces.trace_model import Span, Trace
from receiver.console.tools.mcp.result import length_of, visible

SERVICES_MAX: Final = 5
NAME_CHARACTERS_MAX: Final = 60
"""Limits of the services in the head, and of its names; the head is never left out, so it must be short."""
_NS_PER_MS: Final = 1e6


def head(trace: Trace, clean: Callable[[str], str] = str) -> Row:
    """Return the facts about the whole trace. `clean`: replaces secrets in names before they are cut."""
    services = Counter(span.row["ServiceName"] for span in trace.spans)
    largest = services.most_common(SERVICES_MAX)
    return {
        "start": trace.root.row["Timestamp"],
        "duration_ms": (trace.end_ns - trace.start_ns) / _NS_PER_MS,
        "spans_stored": len(trace.spans),
        "errors": sum(span.is_error for span in trace.spans),
        "service_count": len(services),
        "services": [{"service": _short(clean(name)), "spans": count} for name, count in largest],
        "project": _short(clean(trace.root.row.get("ProjectId", ""))),
        "deployment": _short(clean(trace.root.row.get("DeploymentId", ""))),
    }


def rows(trace: Trace) -> list[Row]:
    """Return a row for each span: errors first, then the spans on the critical path, then the others."""
    return [_row(trace, span, part) for part, span in _by_importance(trace)]


def details(stored: Row, characters_max: int) -> Row:
    """Return the events and attributes of a span that fit, events first: exceptions explain a failure."""
    events = zip(stored["Events.Name"], stored["Events.Attributes"], strict=True)
    parts: list[tuple[str, Row]] = [
        *(("events", {"name": name, "attributes": attributes}) for name, attributes in events),
        *(("attributes", {key: value}) for key, value in stored["SpanAttributes"].items()),
    ]
    shown: dict[str, list[Row]] = {"events": [], "attributes": []}
    for place, (kind, part) in enumerate(parts):
        characters_max -= length_of(part)
        if characters_max < 0:
            return {**shown, "details_left_out": len(parts) - place}
        shown[kind].append(part)
    return dict(shown)


def _short(name: str) -> str:
    return visible(name, NAME_CHARACTERS_MAX)


def _by_importance(trace: Trace) -> Iterator[tuple[str, Span]]:
    failed = [span for span in trace.spans if span.is_error]
    # A span that fails without a failed child is where the failure began; its callers repeat it.
    failed.sort(key=lambda span: (any(child.has_error_below for child in span.children), span.start_ns))
    yield from (("error", span) for span in failed)
    others = [span for span in trace.spans if not span.is_error]
    # `sort` is stable: the other spans keep the order of the tree.
    others.sort(key=lambda span: -span.critical_ns)
    yield from (("critical path" if span.critical else "other", span) for span in others)


def _row(trace: Trace, span: Span, part: str) -> Row:
    row = {
        "part": part,
        "span_id": span.row["SpanId"],
        "parent_span_id": span.row["ParentSpanId"],
        "service": span.row["ServiceName"],
        "name": span.row["SpanName"],
        "kind": span.row["SpanKind"],
        "after_ms": (span.start_ns - trace.start_ns) / _NS_PER_MS,
        "duration_ms": (span.end_ns - span.start_ns) / _NS_PER_MS,
        "self_ms": span.self_ns / _NS_PER_MS,
        "critical_ms": span.critical_ns / _NS_PER_MS,
    }
    if span.row["StatusMessage"]:
        row["message"] = span.row["StatusMessage"]
    if span.copies > 1:
        row["copies"] = span.copies
    return row
