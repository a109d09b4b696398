"""Oracle: the expected row of a span, computed from the protobuf message in plain Python.

Shares no code with the core; uses Google's protobuf library.
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
    """Return, for each span, every column that depends on what was sent."""
    return [
        span_columns(span)
        | {
            "ServiceName": text_map(group.resource.attributes).get("service.name", ""),
            "ResourceAttributes": text_map(group.resource.attributes),
            "ResourceSchemaUrl": group.schema_url,
            "ScopeSchemaUrl": scoped.schema_url,
            "ProjectId": attribute(group.resource, span, "platform.projectId", "platform.project.id"),
            "DeploymentId": attribute(
                group.resource, span, "platform.deploymentId", "platform.deployment.id"
            ),
        }
        | scope_columns(scoped.scope)
        for group in request.resource_spans
        for scoped in group.scope_spans
        for span in scoped.spans
    ]


def attribute(resource: Resource, span: Span, resource_key: str, span_key: str) -> str:
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
    content = getattr(value, kind)
    if kind == "bool_value":
        return "true" if content else "false"
    if kind == "double_value":
        return double(content)
    if kind == "bytes_value":
        return base64.b64encode(content).decode()
    return str(content)


def double(value: float) -> str:
    """Format a number as ECMAScript does, and so as the Collector's exporter does; `-0` keeps its sign."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    if 1e-6 <= abs(value) < 1e21:
        plain = f"{Decimal(repr(value)):f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    mantissa, _, exponent = repr(value).partition("e")
    if (
        not exponent
    ):  # repr writes 1e-05 and smaller with an exponent, so this is never reached for tiny numbers
        return mantissa
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}"


def nested(value: AnyValue) -> str:
    """Return compact JSON in the order of arrival; values that JSON lacks become strings."""
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


def quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
