"""Encoders of deliveries, protobuf and JSON, with marks for the trace ids and times of each request.

Protobuf is encoded by OpenTelemetry's library, JSON as SDKs write it: hex ids, times as decimal strings.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from trace_drain_testing.load.traffic import Attributes, Resource, Span, SpanEvent, Value

START_MARK = bytes.fromhex("f3a1c5977be2d0")
"""Placeholder of the start of a trace id, which all traces of a request share."""
TIME_MARK = 0xD7C3_A95E
"""Upper half of a time's placeholder; the lower half is its index."""
JSON_TIME_MARK = 8_642_097_531 * 10**9
"""Placeholder of a time in JSON: decimal, with nine digits for the index."""
FLAGS = 0x101


class Marks:
    def __init__(self, base: int) -> None:
        self._base = base
        self.offsets_ns: list[int] = []

    def time(self, offset_ns: int) -> int:
        """Return the placeholder for one time."""
        self.offsets_ns.append(offset_ns)
        return self._base + len(self.offsets_ns) - 1


class Encoding(NamedTuple):
    """Functions that encode bodies, and that find and replace their marks."""

    content_type: str
    body: Callable[[Sequence[Resource]], tuple[bytes, list[int]]]
    """Returns the marked body, and the offset for each time mark."""
    start_mark: bytes
    start: Callable[[bytes], bytes]
    """Encodes the start of a trace id."""
    time_mark: re.Pattern[bytes]
    time_index: Callable[[bytes], int]
    """Returns the index of a time mark."""
    time: Callable[[int], bytes]
    """Encodes a time; as long as its mark."""


def protobuf_body(resources: Sequence[Resource]) -> tuple[bytes, list[int]]:
    marks = Marks(TIME_MARK << 32)
    request = ExportTraceServiceRequest()
    for resource in resources:
        resource_spans = request.resource_spans.add()
        resource_spans.resource.attributes.extend(_pairs(resource.attributes))
        scope = resource_spans.scope_spans.add()
        scope.scope.name, scope.scope.version = resource.scope
        scope.spans.extend(_protobuf_span(span, marks) for span in resource.spans)
    return request.SerializeToString(), marks.offsets_ns


def _protobuf_span(span: Span, marks: Marks) -> trace_pb2.Span:
    events = [_protobuf_event(span.event, marks)] if span.event else []
    return trace_pb2.Span(
        trace_id=(span.trace_start or START_MARK) + span.trace_end,
        span_id=span.span_id,
        parent_span_id=span.parent_id,
        flags=FLAGS,
        name=span.name,
        kind=trace_pb2.Span.SpanKind.ValueType(span.kind),
        start_time_unix_nano=marks.time(span.start_ns),
        end_time_unix_nano=marks.time(span.end_ns),
        attributes=_pairs(span.attributes),
        events=events,
        status=trace_pb2.Status(
            code=trace_pb2.Status.StatusCode.ValueType(span.status), message=span.message
        ),
    )


def _protobuf_event(event: SpanEvent, marks: Marks) -> trace_pb2.Span.Event:
    return trace_pb2.Span.Event(
        time_unix_nano=marks.time(event.at_ns), name=event.name, attributes=_pairs(event.attributes)
    )


def _pairs(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(**_any_value(value))) for key, value in attributes.items()]


def _any_value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"bool_value": value}
        case int():
            return {"int_value": value}
        case float():
            return {"double_value": value}
        case _:
            return {"string_value": value}


def json_body(resources: Sequence[Resource]) -> tuple[bytes, list[int]]:
    return json_body_of(resources, dict)


def json_body_of(
    resources: Sequence[Resource], spelled: Callable[[dict[str, Any]], dict[str, Any]]
) -> tuple[bytes, list[int]]:
    """Encode as JSON in a dialect: `spelled` returns a span as the sender writes it."""
    marks = Marks(JSON_TIME_MARK)
    document = {
        "resourceSpans": [
            {
                "resource": {"attributes": _json_pairs(resource.attributes)},
                "scopeSpans": [
                    {
                        "scope": {"name": resource.scope[0], "version": resource.scope[1]},
                        "spans": [spelled(_json_span(span, marks)) for span in resource.spans],
                    }
                ],
            }
            for resource in resources
        ]
    }
    return json.dumps(document, separators=(",", ":")).encode(), marks.offsets_ns


def _json_span(span: Span, marks: Marks) -> dict[str, Any]:
    parent = {"parentSpanId": span.parent_id.hex()} if span.parent_id else {}
    return {
        "traceId": ((span.trace_start or START_MARK) + span.trace_end).hex(),
        "spanId": span.span_id.hex(),
        **parent,
        "flags": FLAGS,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(marks.time(span.start_ns)),
        "endTimeUnixNano": str(marks.time(span.end_ns)),
        "attributes": _json_pairs(span.attributes),
        "droppedAttributesCount": 0,
        "events": [_json_event(span.event, marks)] if span.event else [],
        "droppedEventsCount": 0,
        "status": {"code": span.status, **({"message": span.message} if span.message else {})},
        "links": [],
        "droppedLinksCount": 0,
    }


def _json_event(event: SpanEvent, marks: Marks) -> dict[str, Any]:
    return {
        "timeUnixNano": str(marks.time(event.at_ns)),
        "name": event.name,
        "attributes": _json_pairs(event.attributes),
        "droppedAttributesCount": 0,
    }


def _json_pairs(attributes: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _json_value(value)} for key, value in attributes.items()]


def _json_value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case _:
            return {"stringValue": value}


ENCODINGS = {
    "protobuf": Encoding(
        content_type="application/x-protobuf",
        body=protobuf_body,
        start_mark=START_MARK,
        start=bytes,
        time_mark=re.compile(b"(?s)....(?=" + re.escape(struct.pack("<I", TIME_MARK)) + b")"),
        time_index=lambda mark: int.from_bytes(mark, "little"),
        time=struct.Struct("<Q").pack,
    ),
    "json": Encoding(
        content_type="application/json",
        body=json_body,
        start_mark=START_MARK.hex().encode(),
        start=lambda start: start.hex().encode(),
        time_mark=re.compile(str(JSON_TIME_MARK // 10**9).encode() + rb"[0-9]{9}"),
        time_index=lambda mark: int(mark) - JSON_TIME_MARK,
        time=lambda time_ns: b"%019d" % time_ns,
    ),
}
