"""OTLP from stored rows: the spans of a trace as `TracesData`, in OTLP JSON or protobuf.

The table holds every attribute value as text, so every value becomes a `stringValue`: a number is its digits,
an array its JSON. The table does not hold the flags of links, nor how many attributes of resources, scopes,
events and links were dropped: these fields are absent.

Invariant: adjacent rows with equal resources share a `ResourceSpans`, and with equal scopes a `ScopeSpans`,
    up to `PART_SPANS` spans, which bounds the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import groupby, islice
from typing import Any

import orjson
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status, TracesData

from receiver.console.queries.traces.trace_model import Row, start_ns_of

Json = dict[str, Any]

PART_SPANS = 1_000
"""Spans that are encoded together; longer groups repeat their resource and scope, which OTLP allows."""
RESOURCE_COLUMNS = ("ResourceAttributes", "ResourceSchemaUrl")
SCOPE_COLUMNS = ("ScopeName", "ScopeVersion", "ScopeAttributes", "ScopeSchemaUrl")
KINDS = {
    kind: number
    for number, kind in enumerate(("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer"))
}
STATUSES = {"Unset": 0, "Ok": 1, "Error": 2}


class OtlpFormat(StrEnum):
    """Encoding of `TracesData`."""

    JSON = "otlp-json"
    PROTOBUF = "otlp-protobuf"


CONTENT_TYPES = {OtlpFormat.JSON: "application/json", OtlpFormat.PROTOBUF: "application/x-protobuf"}


def encoded(rows: Iterable[Row], form: OtlpFormat) -> Iterator[bytes]:
    """Return at least one row as one `TracesData`, in pieces."""
    return _json_pieces(rows) if form == OtlpFormat.JSON else map(_protobuf_piece, _resource_spans(rows))


def _json_pieces(rows: Iterable[Row]) -> Iterator[bytes]:
    before = b'{"resourceSpans":['
    for group in _resource_spans(rows):
        yield before + orjson.dumps(group)
        before = b","
    yield b"]}\n"


def _protobuf_piece(group: Json) -> bytes:
    """Return a `TracesData` with this group. Concatenated messages decode as one with all groups."""
    scope_spans = [
        ScopeSpans(
            scope=InstrumentationScope(**{**part["scope"], "attributes": _key_values(part["scope"])}),
            spans=map(_span_message, part["spans"]),
            schema_url=part["schemaUrl"],
        )
        for part in group["scopeSpans"]
    ]
    message = ResourceSpans(scope_spans=scope_spans, schema_url=group["schemaUrl"])
    message.resource.attributes.extend(_key_values(group["resource"]))
    return TracesData(resource_spans=[message]).SerializeToString()


def _resource_spans(rows: Iterable[Row]) -> Iterator[Json]:
    """Yield a `ResourceSpans` in the form of OTLP JSON for each group of adjacent rows."""
    for resource, of_resource in _groups(rows, RESOURCE_COLUMNS):
        yield {
            "resource": {"attributes": _attributes(resource["ResourceAttributes"])},
            "scopeSpans": [
                _scope_spans(scope, spans) for scope, spans in _groups(of_resource, SCOPE_COLUMNS)
            ],
            "schemaUrl": resource["ResourceSchemaUrl"],
        }


def _groups(rows: Iterable[Row], columns: tuple[str, ...]) -> Iterator[tuple[Row, list[Row]]]:
    """Yield adjacent rows that are equal in the columns, with the first of them."""
    key: Callable[[Row], list[Any]] = lambda row: [row[column] for column in columns]  # noqa: E731 - typed
    for _, group in groupby(rows, key):
        while part := list(islice(group, PART_SPANS)):
            yield part[0], part


def _scope_spans(scope: Row, rows: Iterable[Row]) -> Json:
    return {
        "scope": {
            "name": scope["ScopeName"],
            "version": scope["ScopeVersion"],
            "attributes": _attributes(scope["ScopeAttributes"]),
        },
        "spans": [_span(row) for row in rows],
        "schemaUrl": scope["ScopeSchemaUrl"],
    }


def _span(row: Row) -> Json:
    start_ns = start_ns_of(row["Timestamp"])
    return {
        "traceId": row["TraceId"],
        "spanId": row["SpanId"],
        "traceState": row["TraceState"],
        "parentSpanId": row["ParentSpanId"],
        "flags": row["TraceFlags"],
        "name": row["SpanName"],
        # Another program may have written other words to the table; 0 is `unspecified`.
        "kind": KINDS.get(row["SpanKind"], 0),
        # OTLP JSON has 64-bit integers as texts.
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(start_ns + row["Duration"]),
        "attributes": _attributes(row["SpanAttributes"]),
        "droppedAttributesCount": row["DroppedAttributesCount"],
        "events": [
            {"timeUnixNano": str(start_ns_of(at)), "name": name, "attributes": _attributes(attributes)}
            for at, name, attributes in _nested(row, "Events", ("Timestamp", "Name", "Attributes"))
        ],
        "droppedEventsCount": row["DroppedEventsCount"],
        "links": [
            {"traceId": trace, "spanId": span, "traceState": state, "attributes": _attributes(attributes)}
            for trace, span, state, attributes in _nested(
                row, "Links", ("TraceId", "SpanId", "TraceState", "Attributes")
            )
        ],
        "droppedLinksCount": row["DroppedLinksCount"],
        "status": {"message": row["StatusMessage"], "code": STATUSES.get(row["StatusCode"], 0)},
    }


def _nested(row: Row, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    return zip(*(row[f"{table}.{column}"] for column in columns), strict=True)


def _attributes(stored: Mapping[str, str]) -> list[Json]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in stored.items()]


def _span_message(span: Json) -> Span:
    message = Span(
        trace_id=bytes.fromhex(span["traceId"]),
        span_id=bytes.fromhex(span["spanId"]),
        trace_state=span["traceState"],
        parent_span_id=bytes.fromhex(span["parentSpanId"]),
        flags=span["flags"],
        name=span["name"],
        kind=span["kind"],
        start_time_unix_nano=int(span["startTimeUnixNano"]),
        end_time_unix_nano=int(span["endTimeUnixNano"]),
        attributes=_key_values(span),
        dropped_attributes_count=span["droppedAttributesCount"],
        dropped_events_count=span["droppedEventsCount"],
        dropped_links_count=span["droppedLinksCount"],
        status=Status(**span["status"]),
    )
    for event in span["events"]:
        at_ns = int(event["timeUnixNano"])
        message.events.add(time_unix_nano=at_ns, name=event["name"], attributes=_key_values(event))
    for link in span["links"]:
        ids = {"trace_id": bytes.fromhex(link["traceId"]), "span_id": bytes.fromhex(link["spanId"])}
        message.links.add(**ids, trace_state=link["traceState"], attributes=_key_values(link))
    return message


def _key_values(owner: Json) -> list[KeyValue]:
    return [
        KeyValue(key=item["key"], value=AnyValue(string_value=item["value"]["stringValue"]))
        for item in owner["attributes"]
    ]
