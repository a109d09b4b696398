"""The oracle: what a row must hold, worked out from the protobuf message by plain Python.

Shares no code with the core; reads the message with Google's own library.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

KINDS = ["Unspecified", "Internal", "Server", "Client", "Producer", "Consumer"]
CODES = ["Unset", "Ok", "Error"]


def rows_of(request: ExportTraceServiceRequest) -> list[dict[str, Any]]:
    """Every column that is a function of what was sent, span by span."""
    return [
        span_columns(span)
        | {
            "ServiceName": text_map(group.resource.attributes).get("service.name", ""),
            "ResourceAttributes": text_map(group.resource.attributes),
            "ResourceSchemaUrl": group.schema_url,
            "ScopeSchemaUrl": scoped.schema_url,
            "ProjectId": found(group.resource, span, "platform.projectId", "platform.project.id"),
            "DeploymentId": found(group.resource, span, "platform.deploymentId", "platform.deployment.id"),
        }
        | scope_columns(scoped.scope)
        for group in request.resource_spans
        for scoped in group.scope_spans
        for span in scoped.spans
    ]


def found(resource: Resource, span: Span, resource_key: str, span_key: str) -> str:
    return text_map(resource.attributes).get(resource_key) or text_map(span.attributes).get(span_key, "")


def scope_columns(scope: InstrumentationScope) -> dict[str, Any]:
    return {
        "ScopeName": scope.name,
        "ScopeVersion": scope.version,
        "ScopeAttributes": text_map(scope.attributes),
    }


def span_columns(span: Span) -> dict[str, Any]:
    return {
        "Timestamp": timestamp(span.start_time_unix_nano),
        "TraceId": span.trace_id.hex(),
        "SpanId": span.span_id.hex(),
        "ParentSpanId": span.parent_span_id.hex(),
        "TraceState": span.trace_state,
        "SpanName": span.name,
        "SpanKind": KINDS[span.kind],
        "SpanAttributes": text_map(span.attributes),
        "Duration": max(0, span.end_time_unix_nano - span.start_time_unix_nano),
        "StatusCode": CODES[span.status.code],
        "StatusMessage": span.status.message,
        "Events.Timestamp": [timestamp(event.time_unix_nano) for event in span.events],
        "Events.Name": [event.name for event in span.events],
        "Events.Attributes": [text_map(event.attributes) for event in span.events],
        "Links.TraceId": [link.trace_id.hex() for link in span.links],
        "Links.SpanId": [link.span_id.hex() for link in span.links],
        "Links.TraceState": [link.trace_state for link in span.links],
        "Links.Attributes": [text_map(link.attributes) for link in span.links],
        "TraceFlags": span.flags,
        "DroppedAttributesCount": span.dropped_attributes_count,
        "DroppedEventsCount": span.dropped_events_count,
        "DroppedLinksCount": span.dropped_links_count,
    }


def timestamp(unix_nano: int) -> str:
    seconds, nanos = divmod(unix_nano, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{nanos:09d}"


def text_map(attributes: Any) -> dict[str, str]:  # noqa: ANN401 - protobuf's repeated containers have no public type
    return {attribute.key: text(attribute.value) for attribute in attributes}


def text(value: AnyValue) -> str:
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    if kind in {"array_value", "kvlist_value"}:
        return nested(value)
    return scalar(value, kind)


def scalar(value: AnyValue, kind: str) -> str:
    held = getattr(value, kind)
    if kind == "bool_value":
        return "true" if held else "false"
    if kind == "double_value":
        return double(held)
    if kind == "bytes_value":
        return base64.b64encode(held).decode()
    return str(held)


def double(held: float) -> str:
    """As ECMAScript prints numbers, which is what the Collector's exporter stores; `-0` keeps its sign."""
    if math.isnan(held):
        return "NaN"
    if math.isinf(held):
        return "Infinity" if held > 0 else "-Infinity"
    if held == 0:
        return "-0" if math.copysign(1, held) < 0 else "0"
    if 1e-6 <= abs(held) < 1e21:
        plain = f"{Decimal(repr(held)):f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    mantissa, _, exponent = repr(held).partition("e")
    if (
        not exponent
    ):  # repr writes 1e-05 and smaller with an exponent, so this is never reached for tiny numbers
        return mantissa
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}"


def nested(value: AnyValue) -> str:
    """Compact JSON in arrival order; numbers as numbers, what JSON cannot say as strings."""
    kind = value.WhichOneof("value")
    if kind is None:
        return "null"
    if kind == "array_value":
        return "[" + ",".join(nested(item) for item in value.array_value.values) + "]"
    if kind == "kvlist_value":
        return "{" + ",".join(member(item) for item in value.kvlist_value.values) + "}"
    if kind in {"string_value", "bytes_value"}:
        return quoted(scalar(value, kind))
    if kind == "double_value" and not math.isfinite(value.double_value):
        return quoted(scalar(value, kind))
    return scalar(value, kind)


def member(item: KeyValue) -> str:
    return f"{quoted(item.key)}:{nested(item.value)}"


def quoted(held: str) -> str:
    return json.dumps(held, ensure_ascii=False)
