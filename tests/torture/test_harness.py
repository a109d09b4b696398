"""The harness itself: what it issues is a function of the seed, and it sees every way to be wrong."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.torture.checker import Findings, judge, judge_ledger
from tests.torture.faults import OPENING, schedule
from tests.torture.oracle import DRAINS, PROTOBUF, Delivery, Oracle, credentials, repacked
from tests.torture.senders import Fate

Rows = list[dict[str, Any]]
DELIVERY = next(delivery for delivery in map(Oracle(7).delivery, range(1, 100)) if len(delivery.rows) > 2)


def rows_of(delivery: Delivery) -> Rows:
    return [dict(row) for row in delivery.rows.values()]


def test_a_delivery_is_a_function_of_seed_and_number() -> None:
    assert Oracle(7).delivery(3) == Oracle(7).delivery(3)
    assert Oracle(7).delivery(3).body != Oracle(8).delivery(3).body
    assert Oracle(7).delivery(3).body != Oracle(7).delivery(4).body


def test_a_trace_id_tells_its_delivery() -> None:
    oracle = Oracle(7)

    assert {oracle.number_of(trace_id) for trace_id, _ in oracle.delivery(41).rows} == {41}
    assert oracle.number_of("f" * 32) is None


def test_deliveries_are_of_every_kind() -> None:
    deliveries = [Oracle(7).delivery(number) for number in range(1, 300)]
    headers = [delivery.headers for delivery in deliveries]

    assert {delivery.drain for delivery in deliveries} == set(DRAINS)
    assert {(head["content-type"], head.get("content-encoding")) for head in headers} == {
        (kind, packing) for kind in (PROTOBUF, "application/json") for packing in (None, "gzip")
    }
    assert len({row["ProjectId"] for delivery in deliveries for row in delivery.rows.values()}) > 3
    assert len({row["Timestamp"][:10] for delivery in deliveries for row in delivery.rows.values()}) == 3
    assert 0 < sum(delivery.rejected_count > 0 for delivery in deliveries) < 150


def test_bad_spans_come_on_top_of_the_good_ones() -> None:
    for delivery in map(Oracle(7).delivery, range(1, 100)):
        if delivery.headers["content-type"] != PROTOBUF:
            continue
        is_packed = "content-encoding" in delivery.headers
        body = gzip.decompress(delivery.body) if is_packed else delivery.body
        groups = ExportTraceServiceRequest.FromString(body).resource_spans
        sent = sum(len(scoped.spans) for group in groups for scoped in group.scope_spans)
        assert sent == len(delivery.rows) + delivery.rejected_count


def test_a_schedule_is_a_function_of_the_seed() -> None:
    faults = schedule(7, 60, 3, with_fill=False)

    assert faults == schedule(7, 60, 3, with_fill=False)
    assert faults != schedule(8, 60, 3, with_fill=False)
    assert set(OPENING) <= {(fault.kind, fault.role) for fault in faults}


def doubled(rows: Rows) -> None:
    rows.append(dict(rows[0]))


def strange(rows: Rows) -> None:
    rows.append(rows[0] | {"SpanId": "f" * 16})


def altered(rows: Rows) -> None:
    rows[0]["SpanName"] += "?"


def moved(rows: Rows) -> None:
    rows[0]["Drain"] = "another"


@pytest.mark.parametrize(
    ("fate", "spoil", "what"),
    [
        pytest.param(Fate(1, 1), list.clear, "acknowledged and lost", id="lost"),
        pytest.param(Fate(1, 1), list.pop, "acknowledged and lost", id="lost in part"),
        pytest.param(Fate(1, 0), list.pop, "stored in part", id="unacknowledged, in part"),
        pytest.param(Fate(1, 1), doubled, "sent once and stored twice", id="twice"),
        pytest.param(Fate(1, 0), doubled, "sent once and stored twice", id="unacknowledged, twice"),
        pytest.param(Fate(2, 1), doubled, "redelivered and stored twice", id="redelivered, twice"),
        pytest.param(Fate(1, 1), strange, "stored and never issued", id="of nobody"),
        pytest.param(Fate(1, 1), altered, "a field differs", id="wrong field"),
        pytest.param(Fate(1, 1), moved, "a field differs", id="wrong drain"),
    ],
)
def test_the_checker_sees(fate: Fate, spoil: Callable[[Rows], object], what: str) -> None:
    findings, rows = Findings(), rows_of(DELIVERY)
    spoil(rows)

    judge(findings, DELIVERY, fate, rows)

    assert findings.violations[what]


@pytest.mark.parametrize("fate", [Fate(1, 1), Fate(3, 1), Fate(1, 0)], ids=str)
def test_the_checker_is_content_with_what_is_right(fate: Fate) -> None:
    findings = Findings()

    judge(findings, DELIVERY, fate, rows_of(DELIVERY))

    assert findings.violations == Counter()


def ledger_of(**told: object) -> dict[str, Any]:
    line = {
        "drain": "d",
        "hour": "h",
        "stored": 3,
        "journal": 0,
        "difference": 0,
        "table": 3,
        "verdict": "same",
    }
    return {"lines": [line | told], "trouble": "", "complete_from": ""}


@pytest.mark.parametrize(
    ("answer", "exit_code", "what"),
    [
        (ledger_of(verdict="different"), 1, "the ledger does not agree with the table"),
        (ledger_of(verdict="unverifiable"), 0, "the ledger does not agree with the table"),
        (ledger_of(difference=1), 1, "the ledger does not add up"),
        (ledger_of(journal=1), 0, "the ledger does not add up"),
        (ledger_of(stored=4, table=4), 0, "the ledger counts other rows"),
        (ledger_of() | {"lines": []}, 0, "the ledger counts other rows"),
        (ledger_of() | {"trouble": "missing"}, 0, "the ledger is not sure"),
        (ledger_of() | {"complete_from": "h"}, 0, "the ledger is not sure"),
        (ledger_of(), 1, "the ledger is not sure"),
    ],
)
def test_the_checker_sees_a_ledger_that_is_wrong(answer: dict[str, Any], exit_code: int, what: str) -> None:
    findings = Findings(counts=Counter(rows=3))

    judge_ledger(findings, answer, exit_code)

    assert findings.violations[what]


def test_the_checker_is_content_with_a_ledger_that_is_right() -> None:
    findings = Findings(counts=Counter(rows=3))

    judge_ledger(findings, ledger_of(), 0)

    assert findings.violations == Counter()


def test_a_copy_is_the_same_content_packed_anew() -> None:
    delivery = next(
        one for one in map(Oracle(7).delivery, range(2, 900, 8)) if "content-encoding" in one.headers
    )

    copy = repacked(delivery)

    assert copy.body != delivery.body
    assert gzip.decompress(copy.body) == gzip.decompress(delivery.body)
    assert copy.headers | credentials(delivery.drain, copy.body) == copy.headers
