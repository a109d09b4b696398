"""Every sample body gets its answer, and exactly what the answer claims lies in the store.

Each case has a drain of its own, so that the stored rows tell which case they belong to.
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

from tests.e2e.running import Reply, Row, Running
from tests.e2e.samples import decoded

CASES_FILE = Path(__file__).parents[1] / "conformance/bodies.jsonl"
PROTOBUF = "application/x-protobuf"


@dataclass(frozen=True)
class Case:
    """One sample body and what is expected of it."""

    id: str
    content_type: str
    body: bytes
    expect: dict[str, Any]


def read_cases() -> list[Case]:
    cases = [json.loads(line) for line in CASES_FILE.read_text().splitlines()]
    return [Case(case["id"], case["content_type"], decoded(case["body"]), case["expect"]) for case in cases]


CASES = read_cases()


@dataclass(frozen=True)
class Tried:
    """All cases posted once, plainly and to a strict drain, and all rows read back."""

    replies: dict[str, Reply]
    strict_replies: dict[str, Reply]
    rows: list[Row]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    drains = [
        f'[[drain]]\nname = "{kind}-{case.id}"\npath = "/{kind}/{case.id}"\nstrict = {strict}\n'
        for case in CASES
        for kind, strict in (("plain", "false"), ("strict", "true"))
    ]
    with Running(tmp_path_factory.mktemp("conformance"), config="".join(drains)) as running:
        replies = {case.id: running.post(case.body, case.content_type, f"/plain/{case.id}") for case in CASES}
        strict = {case.id: running.post(case.body, case.content_type, f"/strict/{case.id}") for case in CASES}
        yield Tried(replies, strict, running.spans_once_stored(sum(case.expect["stored"] for case in CASES)))


def partial_success(case: Case, reply: Reply) -> tuple[int, str]:
    if case.content_type == PROTOBUF:
        partial = ExportTraceServiceResponse.FromString(reply.body).partial_success
        return partial.rejected_spans, partial.error_message
    told = reply.json().get("partialSuccess", {})
    return int(told.get("rejectedSpans", 0)), told.get("errorMessage", "")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_body_gets_its_answer(case: Case, tried: Tried) -> None:
    reply = tried.replies[case.id]

    assert reply.status == case.expect["status"], reply.body
    assert reply.content_type == case.content_type
    if reply.status == 200:
        rejected, message = partial_success(case, reply)
        assert rejected == case.expect["rejected"]
        assert bool(message) == case.expect["warning"], message


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_body_is_stored_as_answered(case: Case, tried: Tried) -> None:
    stored = Counter(row["Drain"] for row in tried.rows)

    assert stored[f"plain-{case.id}"] == case.expect["stored"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_strict_drain_refuses_what_was_warned_about(case: Case, tried: Tried) -> None:
    warned = case.expect["warning"] and not case.expect["rejected"]

    assert tried.strict_replies[case.id].status == (400 if warned else case.expect["status"])


def attributes(tried: Tried, case_id: str) -> dict[str, str]:
    row = next(row for row in tried.rows if row["Drain"] == f"plain-{case_id}")
    found: dict[str, str] = row["SpanAttributes"]
    return {key: value for key, value in found.items() if not key.startswith("trace_drain.")}


@pytest.mark.parametrize(
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
def test_a_value_is_stored_as_text(case_id: str, expected: dict[str, str], tried: Tried) -> None:
    assert attributes(tried, case_id) == expected


def test_a_kind_outside_the_enum_keeps_its_number(tried: Tried) -> None:
    row = next(row for row in tried.rows if row["Drain"] == "plain-P41")

    assert (row["SpanKind"], row["StatusCode"]) == ("Unspecified", "Unset")
    assert row["SpanAttributes"]["trace_drain.kind"] == "99"
    assert row["SpanAttributes"]["trace_drain.status_code"] == "7"


def test_a_start_time_past_retention_is_kept_beside_the_receive_time(tried: Tried) -> None:
    row = next(row for row in tried.rows if row["Drain"] == "plain-P00")

    assert row["Timestamp"][:13] == row["ReceivedAt"][:13]
    assert row["SpanAttributes"]["trace_drain.start_time_unix_nano"] == "1544712660000000000"
    assert row["Duration"] == 1_000_000_000
