"""Traces in the JSON of Jaeger's older API: times in microseconds, tags, logs, processes, references.

The table holds every attribute value as text, so every tag is a string. Fields of OTLP that Jaeger does not
have become the tags that Jaeger itself writes for them: `span.kind`, `otel.status_code`, `error`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any, Final

import orjson

from receiver.console.queries.traces.trace_model import Row, start_ns_of
from receiver.console.tools.common import json_line

Json = dict[str, Any]

PART_SPANS: Final = 1_000
_COLUMN_OF_TAG: Final = {
    "otel.scope.name": "ScopeName",
    "otel.scope.version": "ScopeVersion",
    "otel.status_description": "StatusMessage",
    "w3c.tracestate": "TraceState",
}
_NO_KIND: Final = ("", "Unspecified")


def envelope(data: object, total: int) -> bytes:
    """Return an answer with its data."""
    return json_line({"data": data, "total": total, "limit": 0, "offset": 0, "errors": None})


def encoded_traces(rows: Iterable[Row]) -> Iterator[bytes]:
    """Yield an answer with the traces of these rows, which are in the order of their traces, in pieces."""
    count, before = 0, b'{"data":['
    for trace_id, spans in groupby(rows, key=lambda row: str(row["TraceId"])):
        yield before
        yield from _trace(trace_id, spans)
        count, before = count + 1, b","
    if not count:
        yield before
    yield b'],"total":%d,"limit":0,"offset":0,"errors":null}\n' % count


def _trace(trace_id: str, rows: Iterator[Row]) -> Iterator[bytes]:
    processes = _Processes()
    before = b'{"traceID":' + orjson.dumps(trace_id) + b',"spans":['
    while part := list(islice(rows, PART_SPANS)):
        spans = [_span(row, processes.id_of(row)) for row in part]
        yield before + orjson.dumps(spans)[1:-1]
        before = b","
    yield b'],"processes":' + orjson.dumps(processes.found) + b',"warnings":null}'


class _Processes:
    """The processes of a trace: a service with the attributes of its resource."""

    def __init__(self) -> None:
        self.found: dict[str, Json] = {}
        self._ids: dict[tuple[str, str], str] = {}

    def id_of(self, row: Row) -> str:
        attributes = row["ResourceAttributes"]
        key = str(row["ServiceName"]), str(attributes)
        if key not in self._ids:
            self._ids[key] = process_id = f"p{len(self._ids) + 1}"
            tags = {name: value for name, value in attributes.items() if name != "service.name"}
            self.found[process_id] = {"serviceName": row["ServiceName"], "tags": _tags(tags)}
        return self._ids[key]


def _span(row: Row, process_id: str) -> Json:
    return {
        "traceID": row["TraceId"],
        "spanID": row["SpanId"],
        "flags": row["TraceFlags"],
        "operationName": row["SpanName"],
        "references": list(_references(row)),
        "startTime": start_ns_of(row["Timestamp"]) // 1_000,
        "duration": row["Duration"] // 1_000,
        "tags": [*_tags(row["SpanAttributes"]), *_field_tags(row)],
        "logs": list(_logs(row)),
        "processID": process_id,
        "warnings": None,
    }


def _references(row: Row) -> Iterator[Json]:
    if row["ParentSpanId"]:
        yield {"refType": "CHILD_OF", "traceID": row["TraceId"], "spanID": row["ParentSpanId"]}
    for trace_id, span_id in zip(row["Links.TraceId"], row["Links.SpanId"], strict=True):
        yield {"refType": "FOLLOWS_FROM", "traceID": trace_id, "spanID": span_id}


def _logs(row: Row) -> Iterator[Json]:
    columns = (row[f"Events.{column}"] for column in ("Timestamp", "Name", "Attributes"))
    for timestamp, name, attributes in zip(*columns, strict=True):
        event = {"event": name} if name else {}
        yield {"timestamp": start_ns_of(timestamp) // 1_000, "fields": _tags({**event, **attributes})}


def _field_tags(row: Row) -> Iterator[Json]:
    fields = {tag: row[column] for tag, column in _COLUMN_OF_TAG.items() if row[column]}
    if row["SpanKind"] not in _NO_KIND:
        fields["span.kind"] = row["SpanKind"].lower()
    if row["StatusCode"] in ("Ok", "Error"):
        fields["otel.status_code"] = row["StatusCode"].upper()
    yield from _tags(fields)
    if row["StatusCode"] == "Error":
        yield {"key": "error", "type": "bool", "value": True}


def _tags(attributes: Mapping[str, str]) -> list[Json]:
    return [{"key": key, "type": "string", "value": value} for key, value in attributes.items()]
