"""Tests of the API's answers about traces: OTLP, comparison, errors."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from receiver.engine.store import Store
from tests.support import engines
from tests.support.api import Client
from tests.support.cases import each_case

A, B, UNKNOWN = "a" * 32, "b" * 32, "c" * 32


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    """Yield a store with two traces of two spans and one span."""
    now_s = int(time.time())
    rows = [
        {"TraceId": trace_id, "SpanId": f"{number:016x}", "Timestamp": now_s, "Duration": 10**6}
        for trace_id, number in ((A, 1), (A, 2), (B, 1))
    ]
    with engines.embedded(engine_dir) as store:
        store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + "\n".join(map(json.dumps, rows)))
        yield store


async def test_trace_as_otlp_json_is_one_document(client: Client) -> None:
    answer = await client.get(f"/api/v1/traces/{A}?format=otlp-json")

    (group,) = (await answer.json())["resourceSpans"]
    assert answer.content_type == "application/json"
    assert [span["spanId"] for span in group["scopeSpans"][0]["spans"]] == [f"{n:016x}" for n in (1, 2)]


async def test_trace_as_otlp_protobuf_is_one_message(client: Client) -> None:
    answer = await client.get(f"/api/v1/traces/{A}?format=otlp-protobuf")

    (group,) = TracesData.FromString(await answer.read()).resource_spans
    assert answer.content_type == "application/x-protobuf"
    assert [span.trace_id.hex() for span in group.scope_spans[0].spans] == [A, A]


async def test_comparison_is_lines_with_their_count(client: Client) -> None:
    answer = await client.get(f"/api/v1/traces/{A}/compare/{B.upper()}")

    *rows, end = (json.loads(line) for line in (await answer.text()).splitlines())
    assert [row["change"] for row in rows] == ["none", "removed"]
    assert end == {"end": {"count": 2}}


@each_case(
    ("path", "status", "message"),
    [
        (f"{A}?format=otlp", 400, "expected one of lines, otlp-json, otlp-protobuf"),
        (f"{A}?form=lines", 400, "known are: format"),
        (f"{UNKNOWN}?format=otlp-json", 404, "no span of this trace"),
        (f"{UNKNOWN}?format=otlp-protobuf", 404, "no span of this trace"),
        (f"{A}/compare/{UNKNOWN}", 404, "no span of this trace"),
        (f"{A}/compare/xyz", 400, "expected 32 hex digits"),
        (f"{A}/compare/{B}?limit=1", 400, "unknown parameter"),
    ],
)
async def test_invalid_request_or_unknown_trace_is_an_error(
    client: Client, path: str, status: int, message: str
) -> None:
    answer = await client.get(f"/api/v1/traces/{path}")

    assert answer.status == status
    assert message in await answer.text()
