"""The service map agrees with a plain Python implementation over random spans, on every engine."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from receiver.console.queries.aggregates.service_map import service_map
from receiver.console.queries.filters.filter import And, Filter
from receiver.console.queries.filters.filter_text import parse_filter
from receiver.console.queries.limits import NAMES_MAX
from receiver.console.queries.question import Asked
from receiver.engine.store import Store
from receiver.time_range import NS_MAX, TimeRange
from tests.support.answers import rows_of
from tests.support.cases import RANDOM_CASES
from tests.support.random_filters import NOW_S, Matches, Span, random_span
from tests.support.random_trees import random_filter

SPANS = 2_000
TRACES = 60
KINDS = ("Server", "Client", "Internal", "Consumer", "Producer")
SINCE_S = 3_600
BYTES_WRITTEN = "SELECT value FROM system.events WHERE event = 'ExternalJoinUncompressedBytes'"


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    """Return random spans: most parents are stored, many of another service, some out of the range."""
    rng = random.Random(31)
    made: list[Span] = []
    for number in range(SPANS):
        span = random_span(rng, number)
        span["TraceId"] = f"{rng.randrange(TRACES):032x}"
        span["SpanKind"] = rng.choice(KINDS)
        siblings = [other for other in made[-400:] if other["TraceId"] == span["TraceId"]]
        if siblings and rng.random() < 0.8:
            span["ParentSpanId"] = rng.choice(siblings)["SpanId"]
        made.append(span)
    # A proxy that continues a trace without a span id of its own stores the id of another service.
    renamed = [{**span, "ServiceName": "proxy"} for span in made[300:330]]
    return [*made, *made[:300], *renamed]  # spans that two senders sent


def edges(store: Store, **wanted: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any field of the query
    return rows_of(service_map(store, Asked(**{"limit": NAMES_MAX, **wanted}), NOW_S).pieces())


def expected_edges(
    spans: Sequence[Span], matches: Matches, since_s: int = SINCE_S
) -> dict[tuple[str, str], dict[str, Any]]:
    distinct = {
        tuple(span[field] for field in ("TraceId", "SpanId", "ParentSpanId", "ServiceName")): span
        for span in spans
    }
    services = defaultdict(set)
    for trace_id, span_id, _, service in distinct:
        services[trace_id, span_id].add(service)
    calls = defaultdict(list)
    for (trace_id, _, parent_id, service), span in distinct.items():
        is_call = span["SpanKind"] in ("Server", "Consumer") and parent_id
        if not is_call or span["start_ns"] < (NOW_S - since_s) * 10**9 or not matches(span):
            continue
        for caller in services[trace_id, parent_id] - {service}:
            calls[caller, service].append(span)
    return {edge: measured(called) for edge, called in calls.items()}


def measured(called: list[Span]) -> dict[str, Any]:
    durations = sorted(span["Duration"] / 1e6 for span in called)
    errors = sum(span["StatusCode"] == "Error" for span in called)
    return {
        "calls": len(called),
        "errors": errors,
        "error_rate": errors / len(called),
        "p50_ms": durations[len(durations) // 2],
        "p95_ms": durations[int(len(durations) * 0.95)],
    }


def by_edge(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row.pop("client"), row.pop("server")): row for row in rows}


@pytest.mark.random_cases
def test_random_filters_agree_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(37)
    counts = []
    filters: list[tuple[str, Matches]] = [("", lambda _span: True)]
    filters += [random_filter(rng) for _ in range(RANDOM_CASES)]
    for text, matches in filters:
        wanted: Filter = parse_filter(text) if text else And(())
        found = by_edge(edges(store, filter=wanted))

        expected = expected_edges(spans, matches)
        assert found.keys() == expected.keys(), text
        assert all(found[edge] == pytest.approx(expected[edge]) for edge in expected), text
        counts.append(len(found))
    assert counts[0] > 50
    assert sum(0 < count < counts[0] for count in counts) > len(filters) / 3


def test_caller_that_started_before_the_time_range_is_found(store: Store, spans: Sequence[Span]) -> None:
    found = by_edge(edges(store, range=TimeRange(since_s=600)))

    expected = expected_edges(spans, lambda _span: True, since_s=600)
    distinct = {span["SpanId"]: span for span in spans}
    assert any(
        span["start_ns"] >= (NOW_S - 600) * 10**9 > distinct[span["ParentSpanId"]]["start_ns"]
        for span in spans
        if span["ParentSpanId"] in distinct
    )
    assert {edge: row["calls"] for edge, row in found.items()} == {
        edge: row["calls"] for edge, row in expected.items()
    }


def test_range_up_to_the_last_time_of_the_table_is_answered(store: Store) -> None:
    found = edges(store, range=TimeRange(to_at_s=NS_MAX / 1e9))

    assert found == edges(store)


def test_groups_that_the_engine_writes_to_disk_give_the_same_edges(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, written = edges(store), store.rows(BYTES_WRITTEN)
    # Not less: the buffers of 1,024 buckets, the most, would exceed the memory of a query.
    monkeypatch.setattr("receiver.console.queries.aggregates.service_map.GROUP_MEMORY_BYTES_MAX", 50_000)

    assert edges(store) == whole
    assert store.rows(BYTES_WRITTEN) > written


def test_edges_with_the_most_calls_come_first_and_the_limit_cuts(store: Store) -> None:
    whole = edges(store)
    answer = service_map(store, Asked(limit=3), NOW_S)

    rows = rows_of(answer.pieces())

    assert [row["calls"] for row in whole] == sorted((row["calls"] for row in whole), reverse=True)
    assert rows == whole[:3]
    assert answer.is_cut
