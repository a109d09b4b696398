"""Conformance of request bodies: each sample gets the expected answer, and its spans are stored.

Each sample has its own drain, so that the stored rows identify their sample.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tests.e2e.receiver_process import ReceiverProcess, Reply, Row
from tests.e2e.samples import decode
from tests.support.cases import each_case

CASES_FILE = Path(__file__).parents[1] / "conformance/bodies.jsonl"
PROTOBUF = "application/x-protobuf"


@dataclass(frozen=True)
class Case:
    """A sample body and the expected answer."""

    id: str
    content_type: str
    body: bytes
    expect: dict[str, Any]


def read_cases() -> list[Case]:
    cases = [json.loads(line) for line in CASES_FILE.read_text().splitlines()]
    return [Case(case["id"], case["content_type"], decode(case["body"]), case["expect"]) for case in cases]


CASES = read_cases()


@dataclass(frozen=True)
class Results:
    """Responses to all samples, on a normal and on a strict drain, and all stored rows."""

    replies: dict[str, Reply]
    strict_replies: dict[str, Reply]
    rows: list[Row]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    drains = [
        f'[[drain]]\nname = "{kind}-{case.id}"\npath = "/{kind}/{case.id}"\nstrict = {strict}\n'
        for case in CASES
        for kind, strict in (("plain", "false"), ("strict", "true"))
    ]
    with ReceiverProcess(tmp_path_factory.mktemp("conformance"), config="".join(drains)) as running:
        replies = {case.id: running.post(case.body, case.content_type, f"/plain/{case.id}") for case in CASES}
        strict = {case.id: running.post(case.body, case.content_type, f"/strict/{case.id}") for case in CASES}
        yield Results(
            replies, strict, running.spans_once_stored(sum(case.expect["stored"] for case in CASES))
        )


def partial_success(case: Case, reply: Reply) -> tuple[int, str]:
    if case.content_type == PROTOBUF:
        partial = ExportTraceServiceResponse.FromString(reply.body).partial_success
        return partial.rejected_spans, partial.error_message
    partial = reply.json().get("partialSuccess", {})
    return int(partial.get("rejectedSpans", 0)), partial.get("errorMessage", "")


@each_case("case", CASES, ids=lambda case: case.id)
def test_body_gets_the_expected_answer(case: Case, results: Results) -> None:
    reply = results.replies[case.id]

    assert reply.status == case.expect["status"], reply.body
    assert reply.content_type == case.content_type
    if reply.status == 200:
        rejected, message = partial_success(case, reply)
        assert rejected == case.expect["rejected"]
        assert bool(message) == case.expect["warning"], message


@each_case("case", CASES, ids=lambda case: case.id)
def test_stored_spans_match_the_answer(case: Case, results: Results) -> None:
    stored = Counter(row["Drain"] for row in results.rows)

    assert stored[f"plain-{case.id}"] == case.expect["stored"]


@each_case("case", CASES, ids=lambda case: case.id)
def test_strict_drain_refuses_bodies_with_warnings(case: Case, results: Results) -> None:
    warned = case.expect["warning"] and not case.expect["rejected"]

    assert results.strict_replies[case.id].status == (400 if warned else case.expect["status"])


def attributes(results: Results, case_id: str) -> dict[str, str]:
    row = next(row for row in results.rows if row["Drain"] == f"plain-{case_id}")
    values: dict[str, str] = row["SpanAttributes"]
    return {key: value for key, value in values.items() if not key.startswith("trace_drain.")}


@each_case(
    ("case_id", "expected"),
    [
        pytest.param("P21", {"k": "5"}, id="oneof: the last member wins"),
        pytest.param("P22", {"k": '{"a":"1","b":"2"}'}, id="oneof: the same message merges"),
        pytest.param(
            "P39", {"n": "NaN", "i": "Infinity", "m": "-9223372036854775808"}, id="doubles and int64"
        ),
        pytest.param("P64", {"k": "-0"}, id="minus zero"),
        pytest.param("J21c", {"k": "-9223372036854775808"}, id="int64 minimum as text"),
        pytest.param("J21f", {"k": "1.5"}, id="a fraction as intValue"),
        pytest.param("J21g", {"k": "1000"}, id="an exponent as intValue"),
        pytest.param("J21i", {"k": "1e+21"}, id="an integer beyond int64"),
        pytest.param("J21m", {"k": "1"}, id="a number with a plus"),
        pytest.param("J21o", {"k": "9007199254740993"}, id="an integer beyond a double's precision"),
        pytest.param("J22h", {"k": "1e400"}, id="a double beyond its range"),
        pytest.param("J22i", {"k": "-0"}, id="minus zero in JSON"),
        pytest.param("J23b", {"k": "true"}, id="1 as boolValue"),
        pytest.param("J26a", {"k": ""}, id="an empty value"),
        pytest.param("J26c", {"k": "1"}, id="two members: the last wins"),
        pytest.param("J27d", {"k": "[null]"}, id="null in an array"),
        pytest.param("J29", {"k": "v"}, id="a map of attributes"),
    ],
)
def test_attribute_value_is_stored_as_text(case_id: str, expected: dict[str, str], results: Results) -> None:
    assert attributes(results, case_id) == expected


def test_span_kind_outside_the_enum_is_kept_as_a_number(results: Results) -> None:
    row = next(row for row in results.rows if row["Drain"] == "plain-P41")

    assert (row["SpanKind"], row["StatusCode"]) == ("Unspecified", "Unset")
    assert row["SpanAttributes"]["trace_drain.kind"] == "99"
    assert row["SpanAttributes"]["trace_drain.status_code"] == "7"


def test_start_time_before_the_retention_is_kept_as_an_attribute(results: Results) -> None:
    row = next(row for row in results.rows if row["Drain"] == "plain-P00")

    assert row["Timestamp"][:13] == row["ReceivedAt"][:13]
    assert row["SpanAttributes"]["trace_drain.start_time_unix_nano"] == "1544712660000000000"
    assert row["Duration"] == 1_000_000_000
