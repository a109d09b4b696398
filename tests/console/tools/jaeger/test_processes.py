"""A process of Jaeger's JSON is a service with the attributes of its resource."""

from __future__ import annotations

import json

from receiver.console.tools.jaeger.legacy import PART_SPANS, encoded_traces
from tests.support.traces import Row, span


def row(number: int, service: str, host: str) -> Row:
    """Return a row of a service on a host."""
    return span(
        f"{number:016x}",
        ServiceName=service,
        ResourceAttributes={"host.name": host},
        SpanAttributes={},
        TraceFlags=0,
        ScopeName="",
        ScopeVersion="",
        TraceState="",
    )


def test_spans_share_a_process_if_service_and_resource_are_equal() -> None:
    rows = [row(1, "web", "a"), row(2, "web", "b"), row(3, "pay", "a"), row(4, "web", "a")]

    (trace,) = json.loads(b"".join(encoded_traces(rows)))["data"]

    assert [span["processID"] for span in trace["spans"]] == ["p1", "p2", "p3", "p1"]
    assert [process["serviceName"] for process in trace["processes"].values()] == ["web", "web", "pay"]


def test_trace_of_several_parts_is_one_document() -> None:
    rows = [row(number, "web", "a") for number in range(PART_SPANS + 1)]

    (trace,) = json.loads(b"".join(encoded_traces(rows)))["data"]

    assert [span["spanID"] for span in trace["spans"]] == [row["SpanId"] for row in rows]


def test_search_without_traces_is_an_empty_list() -> None:
    assert json.loads(b"".join(encoded_traces([])))["data"] == []
