"""Random OTLP requests built with Google's library, and the same request as OTLP/JSON."""

from __future__ import annotations

import base64
import json
import random
import time
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

TEXTS = [
    "",
    "a",
    "GET /x",
    "déjà vu",
    "\x00nul",
    '"quoted\\"',
    "line\nbreak\ttab",
    "😀",
    "x" * 300,
    "\u2028",
    "</script>",
    "\x7f\x1f",
]
KEYS = ["k", "http.method", "a.b", "", "ключ", "with space", "k2", "db.statement", "url.path", "n", "o", "p"]
INTS = [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63), 42]
DOUBLES = [
    0.0,
    -0.0,
    1.0,
    0.1,
    1.5e300,
    5e-324,
    float("nan"),
    float("inf"),
    float("-inf"),
    1e21,
    1e20,
    123456.789,
    1e-6,
    1e-7,
    -2.5,
]
ID_FIELDS = {"traceId", "spanId", "parentSpanId"}


class Requests:
    """Random requests that can be reproduced from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def request(self) -> ExportTraceServiceRequest:
        request = ExportTraceServiceRequest()
        for _ in range(self.random.randint(1, 3)):
            group = request.resource_spans.add(schema_url=self.text())
            self.attributes(group.resource, extra={"service.name": "svc", "platform.projectId": "prj_1"})
            for _ in range(self.random.randint(0, 3)):
                scoped = group.scope_spans.add(schema_url=self.text())
                scoped.scope.name, scoped.scope.version = self.text(), self.text()
                self.attributes(scoped.scope)
                for _ in range(self.random.randint(0, 5)):
                    self.span(scoped.spans.add())
        return request

    def text(self) -> str:
        return self.random.choice(TEXTS)

    def id(self, length: int) -> bytes:
        return self.random.randbytes(length - 1) + b"\x01"

    def attributes(self, owner: Any, extra: dict[str, str] | None = None) -> None:  # noqa: ANN401 - any message with attributes
        for key in self.random.sample(KEYS, self.random.randint(0, 8)):
            self.value(owner.attributes.add(key=key).value, depth=0)
        for key, value in (extra or {}).items():
            if self.random.random() < 0.7:
                owner.attributes.add(key=key).value.string_value = value

    def value(self, value: AnyValue, depth: int) -> None:
        choices = ["none", "string", "bool", "int", "double", "bytes"] + (
            ["array", "kvlist"] if depth < 4 else []
        )
        kind = self.random.choice(choices)
        if kind == "string":
            value.string_value = self.text()
        elif kind == "bool":
            value.bool_value = self.random.random() < 0.5
        elif kind == "int":
            value.int_value = self.random.choice(INTS)
        elif kind == "double":
            value.double_value = self.random.choice(DOUBLES)
        elif kind == "bytes":
            value.bytes_value = self.random.randbytes(self.random.randint(0, 5))
        else:
            self.container(value, kind, depth)

    def container(self, value: AnyValue, kind: str, depth: int) -> None:
        if kind == "array":
            value.array_value.SetInParent()
            for _ in range(self.random.randint(0, 3)):
                self.value(value.array_value.values.add(), depth + 1)
        elif kind == "kvlist":
            value.kvlist_value.SetInParent()
            for key in self.random.sample(KEYS, self.random.randint(0, 3)):
                self.value(value.kvlist_value.values.add(key=key).value, depth + 1)

    def span(self, span: Span) -> None:
        now = time.time_ns()
        span.trace_id, span.span_id = self.id(16), self.id(8)
        if self.random.random() < 0.5:
            span.parent_span_id = self.id(8)
        span.name, span.trace_state = self.text(), self.random.choice(["", "vendor=x", "a=b,c=d"])
        span.kind = self.random.choice([0, 1, 2, 3, 4, 5])  # type: ignore[assignment]
        span.start_time_unix_nano = now - self.random.randint(0, 10**12)
        span.end_time_unix_nano = span.start_time_unix_nano + self.random.randint(-10, 10**10)
        span.status.code = self.random.choice([0, 1, 2])  # type: ignore[assignment]
        span.status.message, span.flags = self.text(), self.random.choice([0, 1, 0x301, 2**32 - 1])
        span.dropped_attributes_count = self.random.choice([0, 1, 2**32 - 1])
        span.dropped_events_count, span.dropped_links_count = (
            self.random.choice([0, 7]),
            self.random.choice([0, 9]),
        )
        self.attributes(span, extra={"platform.project.id": "prj_span", "platform.deployment.id": "dpl_1"})
        for _ in range(self.random.choice([0, 0, 1, 3])):
            event = span.events.add(time_unix_nano=now, name=self.text())
            self.attributes(event)
        for _ in range(self.random.choice([0, 0, 1, 2])):
            link = span.links.add(trace_id=self.id(16), span_id=self.id(8), trace_state=self.text())
            self.attributes(link)


def otlp_json(request: ExportTraceServiceRequest) -> bytes:
    """Return OTLP/JSON: Google's JSON mapping, but ids in hex and enums as numbers."""
    return json.dumps(with_hex_ids(MessageToDict(request, use_integers_for_enums=True))).encode()


def with_hex_ids(node: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(node, list):
        return [with_hex_ids(item) for item in node]
    if isinstance(node, dict):
        return {
            key: base64.b64decode(value).hex() if key in ID_FIELDS else with_hex_ids(value)
            for key, value in node.items()
        }
    return node
