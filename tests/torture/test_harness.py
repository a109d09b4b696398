"""The harness itself: deliveries are functions of the seed, and the checker detects every violation."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.e2e.receiver_process import ReceiverProcess, Reply
from tests.torture import steady
from tests.torture.checker import Findings, judge, judge_ledger
from tests.torture.faults import OPENING_FAULTS, schedule
from tests.torture.oracle import DRAINS, PROTOBUF, Delivery, Oracle, credentials, recompress
from tests.torture.resource_monitor import MIB
from tests.torture.senders import SendCounts
from tests.torture.steady import ATTEMPTS_MAX, growth

Rows = list[dict[str, Any]]
DELIVERY = next(delivery for delivery in map(Oracle(7).delivery, range(1, 100)) if len(delivery.rows) > 2)


def rows_of(delivery: Delivery) -> Rows:
    return [dict(row) for row in delivery.rows.values()]


def test_delivery_is_a_function_of_seed_and_number() -> None:
    assert Oracle(7).delivery(3) == Oracle(7).delivery(3)
    assert Oracle(7).delivery(3).body != Oracle(8).delivery(3).body
    assert Oracle(7).delivery(3).body != Oracle(7).delivery(4).body


def test_trace_id_identifies_its_delivery() -> None:
    oracle = Oracle(7)

    assert {oracle.number_of(trace_id) for trace_id, _ in oracle.delivery(41).rows} == {41}
    assert oracle.number_of("f" * 32) is None


def test_deliveries_cover_every_drain_encoding_project_and_day() -> None:
    deliveries = [Oracle(7).delivery(number) for number in range(1, 300)]
    headers = [delivery.headers for delivery in deliveries]

    assert {delivery.drain for delivery in deliveries} == set(DRAINS)
    assert {(head["content-type"], head.get("content-encoding")) for head in headers} == {
        (kind, encoding) for kind in (PROTOBUF, "application/json") for encoding in (None, "gzip")
    }
    assert len({row["ProjectId"] for delivery in deliveries for row in delivery.rows.values()}) > 3
    assert len({row["Timestamp"][:10] for delivery in deliveries for row in delivery.rows.values()}) == 3
    assert 0 < sum(delivery.rejected_count > 0 for delivery in deliveries) < 150


def test_bad_spans_are_added_to_valid_spans() -> None:
    for delivery in map(Oracle(7).delivery, range(1, 100)):
        if delivery.headers["content-type"] != PROTOBUF:
            continue
        is_compressed = "content-encoding" in delivery.headers
        body = gzip.decompress(delivery.body) if is_compressed else delivery.body
        groups = ExportTraceServiceRequest.FromString(body).resource_spans
        sent = sum(len(scoped.spans) for group in groups for scoped in group.scope_spans)
        assert sent == len(delivery.rows) + delivery.rejected_count


def test_schedule_is_a_function_of_the_seed() -> None:
    faults = schedule(7, 60, 3, with_fill=False)

    assert faults == schedule(7, 60, 3, with_fill=False)
    assert faults != schedule(8, 60, 3, with_fill=False)
    assert set(OPENING_FAULTS) <= {(fault.kind, fault.role) for fault in faults}


def duplicate_row(rows: Rows) -> None:
    rows.append(dict(rows[0]))


def add_unissued_row(rows: Rows) -> None:
    rows.append(rows[0] | {"SpanId": "f" * 16})


def change_field(rows: Rows) -> None:
    rows[0]["SpanName"] += "?"


def change_drain(rows: Rows) -> None:
    rows[0]["Drain"] = "another"


@pytest.mark.parametrize(
    ("counts", "break_rows", "what"),
    [
        pytest.param(SendCounts(1, 1), list.clear, "acknowledged and lost", id="lost"),
        pytest.param(SendCounts(1, 1), list.pop, "acknowledged and lost", id="lost in part"),
        pytest.param(SendCounts(1, 0), list.pop, "stored in part", id="unacknowledged, in part"),
        pytest.param(SendCounts(1, 1), duplicate_row, "sent once and stored twice", id="stored twice"),
        pytest.param(
            SendCounts(1, 0), duplicate_row, "sent once and stored twice", id="unacknowledged, twice"
        ),
        pytest.param(
            SendCounts(2, 1), duplicate_row, "redelivered and stored twice", id="redelivered, twice"
        ),
        pytest.param(SendCounts(1, 1), add_unissued_row, "stored and never issued", id="never issued"),
        pytest.param(SendCounts(1, 1), change_field, "a field differs", id="wrong field"),
        pytest.param(SendCounts(1, 1), change_drain, "a field differs", id="wrong drain"),
    ],
)
def test_checker_detects(counts: SendCounts, break_rows: Callable[[Rows], object], what: str) -> None:
    findings, rows = Findings(), rows_of(DELIVERY)
    break_rows(rows)

    judge(findings, DELIVERY, counts, rows)

    assert findings.violations[what]


@pytest.mark.parametrize("counts", [SendCounts(1, 1), SendCounts(3, 1), SendCounts(1, 0)], ids=str)
def test_checker_accepts_correct_rows(counts: SendCounts) -> None:
    findings = Findings()

    judge(findings, DELIVERY, counts, rows_of(DELIVERY))

    assert findings.violations == Counter()


def ledger_of(**values: object) -> dict[str, Any]:
    line = {
        "drain": "d",
        "hour": "h",
        "stored": 3,
        "journal": 0,
        "difference": 0,
        "table": 3,
        "verdict": "same",
    }
    return {"lines": [line | values], "trouble": "", "complete_from": ""}


@pytest.mark.parametrize(
    ("answer", "exit_code", "what"),
    [
        (ledger_of(verdict="different"), 1, "the ledger disagrees with the table"),
        (ledger_of(verdict="unverifiable"), 0, "the ledger disagrees with the table"),
        (ledger_of(difference=1), 1, "the ledger does not balance"),
        (ledger_of(journal=1), 0, "the ledger does not balance"),
        (ledger_of(stored=4, table=4), 0, "the ledger counts other rows"),
        (ledger_of() | {"lines": []}, 0, "the ledger counts other rows"),
        (ledger_of() | {"trouble": "missing"}, 0, "the ledger is not certain"),
        (ledger_of() | {"complete_from": "h"}, 0, "the ledger is not certain"),
        (ledger_of(), 1, "the ledger is not certain"),
    ],
)
def test_checker_detects_a_wrong_ledger(answer: dict[str, Any], exit_code: int, what: str) -> None:
    findings = Findings(counts=Counter(rows=3))

    judge_ledger(findings, answer, exit_code)

    assert findings.violations[what]


def test_checker_accepts_a_correct_ledger() -> None:
    findings = Findings(counts=Counter(rows=3))

    judge_ledger(findings, ledger_of(), 0)

    assert findings.violations == Counter()


def test_copy_has_the_same_content_compressed_differently() -> None:
    delivery = next(
        candidate
        for candidate in map(Oracle(7).delivery, range(2, 900, 8))
        if "content-encoding" in candidate.headers
    )

    copy = recompress(delivery)

    assert copy.body != delivery.body
    assert gzip.decompress(copy.body) == gzip.decompress(delivery.body)
    assert copy.headers | credentials(delivery.drain, copy.body) == copy.headers


def test_steady_run_detects_a_resource_that_grows_and_accepts_noise() -> None:
    noisy = [100 * MIB + (sample % 7) * MIB for sample in range(300)]
    leaking = [100 * MIB + sample * MIB for sample in range(300)]

    assert list(growth({"intake rss": noisy, "journal bytes": [0, 5, 0]})) == []
    assert [line.split(" rose")[0] for line in growth({"intake rss": noisy, "store rss": leaking})] == [
        "store rss"
    ]


class Api:
    """A receiver whose API gives scripted responses."""

    def state(self) -> dict[str, Any]:
        return {"urls": {"api": "http://api"}}


BUSY, BROKEN, DONE = Reply(503, "", b"busy", "0"), Reply(503, "", b"broken"), Reply(200, "", b"")


@pytest.mark.parametrize(
    ("replies", "retried", "failed"),
    [
        ([DONE], 0, []),
        ([BUSY, BUSY, DONE], 2, []),
        ([BUSY] * ATTEMPTS_MAX, ATTEMPTS_MAX, ["red: 503 busy"]),
        ([BROKEN], 0, ["red: 503 broken"]),
    ],
    ids=["answered", "busy for a moment", "busy for long", "refused without a time to retry"],
)
def test_steady_run_retries_a_query_only_when_the_receiver_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, replies: list[Reply], retried: int, failed: list[str]
) -> None:
    scripted = iter(replies)
    monkeypatch.setattr(steady, "reply_of", lambda _request: next(scripted))
    queries = steady.Queries(cast("ReceiverProcess", Api()))

    queries.send("red")

    assert (len(queries.retried), queries.failed) == (retried, failed)
    assert next(scripted, None) is None
