"""Expected table row of a span, with the columns and formats of the OpenTelemetry ClickHouse exporter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from trace_drain_testing.load.traffic import Attributes, Resource, Span, Value

_KINDS = {1: "Internal", 2: "Server", 3: "Client"}
_CODES = {0: "Unset", 1: "Ok", 2: "Error"}


def wrong_columns(
    row: dict[str, Any], resource: Resource, span: Span, trace_start: bytes, base_ns: int
) -> list[str]:
    """Return the columns in which a stored row differs from the sent span."""
    expected = expected_row(resource, span, trace_start, base_ns)
    return [name for name, value in expected.items() if row.get(name) != value]


def expected_row(resource: Resource, span: Span, trace_start: bytes, base_ns: int) -> dict[str, Any]:
    """Return the columns of the row and their expected values."""
    events = [span.event] if span.event else []
    return {
        "TraceId": (trace_start + span.trace_end).hex(),
        "SpanId": span.span_id.hex(),
        "ParentSpanId": span.parent_id.hex(),
        "Timestamp": time_text(base_ns + span.start_ns),
        "Duration": span.end_ns - span.start_ns,
        "SpanName": span.name,
        "SpanKind": _KINDS[span.kind],
        "ServiceName": resource.service,
        "ResourceAttributes": _texts(resource.attributes),
        "ScopeName": resource.scope[0],
        "ScopeVersion": resource.scope[1],
        "SpanAttributes": _texts(span.attributes),
        "StatusCode": _CODES[span.status],
        "StatusMessage": span.message,
        "Events.Timestamp": [time_text(base_ns + event.at_ns) for event in events],
        "Events.Name": [event.name for event in events],
        "Events.Attributes": [_texts(event.attributes) for event in events],
        "Links.TraceId": [],
    }


def time_text(time_ns: int) -> str:
    """Return the time as ClickHouse prints DateTime64(9) in UTC."""
    seconds, fraction = divmod(time_ns, 10**9)
    return f"{_date(seconds)}.{fraction:09}"


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _texts(attributes: Attributes) -> dict[str, str]:
    return {key: _text(value) for key, value in attributes.items()}


def _text(value: Value) -> str:
    """Return the stored text of a value; whole floats have no fraction."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case _:
            return str(value)
