"""Lists of names and searches agree with counts in plain Python, in the embedded engine and on a server."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, get_args

import pytest

from receiver.console.queries.attributes import attributes
from receiver.console.queries.filters.filter import HasSpan
from receiver.console.queries.filters.filter_text import parse_filter
from receiver.console.queries.limits import TRACES_MAX, LimitedLines
from receiver.console.queries.names import Bounds, operations, services
from receiver.console.queries.question import Asked
from receiver.console.queries.search import SearchQuery, search
from receiver.engine.store import Store
from receiver.time_range import TimeRange
from tests.support.cases import RANDOM_CASES
from tests.support.random_filters import (
    NOW_S,
    Span,
    expected_summaries,
    random_filter,
    random_span,
)
from tests.support.random_trees import Form, random_trace_tree, traces_that_match

SPANS = 600
DAY = Bounds(TimeRange(since_s=86_400))


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(3)
    return [random_span(rng, number) for number in range(SPANS)]


def rows_of(answer: LimitedLines) -> list[dict[str, Any]]:
    return [json.loads(line) for line in b"".join(answer.pieces()).splitlines()]


def test_services_are_counted(store: Store, spans: Sequence[Span]) -> None:
    rows = rows_of(services(store, DAY, now_s=NOW_S))

    counts = Counter(span["ServiceName"] for span in spans)
    errors = Counter(span["ServiceName"] for span in spans if span["StatusCode"] == "Error")
    names = defaultdict(set)
    for span in spans:
        names[span["ServiceName"]].add(span["SpanName"])
    assert {row["service"]: (row["spans"], row["errors"], row["operations"]) for row in rows} == {
        service: (counts[service], errors[service], len(names[service])) for service in counts
    }
    assert [row["spans"] for row in rows] == sorted(counts.values(), reverse=True)


def test_operations_of_a_service_have_counts_and_percentiles(store: Store, spans: Sequence[Span]) -> None:
    rows = rows_of(operations(store, DAY, "web", now_s=NOW_S))

    durations = defaultdict(list)
    for span in spans:
        if span["ServiceName"] == "web":
            durations[span["SpanName"], span["SpanKind"]].append(span["Duration"])
    assert {(row["name"], row["kind"]): row["spans"] for row in rows} == {
        operation: len(found) for operation, found in durations.items()
    }
    for row in rows:
        ordered = sorted(durations[row["name"], row["kind"]])
        assert row["p50_ms"] == pytest.approx(ordered[len(ordered) // 2] / 1e6)
        assert row["p99_ms"] == pytest.approx(ordered[int(len(ordered) * 0.99)] / 1e6)


def test_attributes_are_counted_by_scope(store: Store, spans: Sequence[Span]) -> None:
    rows = rows_of(attributes(store, Asked(range=DAY.range), NOW_S))

    expected = Counter(("span", key) for span in spans for key in span["SpanAttributes"])
    expected += Counter(("resource", key) for span in spans for key in span["ResourceAttributes"])
    assert {(row["scope"], row["key"]): row["spans"] for row in rows} == expected


@pytest.mark.parametrize("key", ["http.route", "odd key'\"\\", "absent", "') OR 1=1 --", "{from_ns:String}"])
def test_values_of_an_attribute_are_counted(store: Store, spans: Sequence[Span], key: str) -> None:
    rows = rows_of(attributes(store, Asked(range=DAY.range, own=key), NOW_S))

    expected = Counter(
        (scope, span[column][key])
        for span in spans
        for scope, column in (("span", "SpanAttributes"), ("resource", "ResourceAttributes"))
        if key in span[column]
    )
    assert {(row["scope"], row["value"]): row["spans"] for row in rows} == expected
    assert {row["key"] for row in rows} <= {key}


def test_list_over_its_limit_is_cut(store: Store) -> None:
    whole = rows_of(services(store, DAY, now_s=NOW_S))
    answer = services(store, DAY._replace(limit=2), now_s=NOW_S)

    assert rows_of(answer) == whole[:2]
    assert answer.is_cut


@pytest.mark.random_cases
def test_search_finds_the_same_traces_on_every_engine(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(5)
    for text, matches in [("", lambda _span: True), *(random_filter(rng) for _ in range(RANDOM_CASES))]:
        answer = search(store, SearchQuery(HasSpan(parse_filter(text)), limit=TRACES_MAX), now_s=NOW_S)

        found = {row["trace_id"]: row for row in rows_of(answer)}

        expected = expected_summaries(spans, matches)
        assert found.keys() == expected.keys(), text
        assert all(row == pytest.approx(expected[trace_id]) for trace_id, row in found.items()), text


@pytest.mark.parametrize("form", get_args(Form))
def test_conditions_on_traces_find_the_same_traces_on_every_engine(
    store: Store, spans: Sequence[Span], form: Form
) -> None:
    rng = random.Random(6)
    for tree in [random_trace_tree(rng, form) for _ in range(8)]:
        answer = search(store, SearchQuery(tree, limit=TRACES_MAX), now_s=NOW_S)

        assert {row["trace_id"] for row in rows_of(answer)} == traces_that_match(spans, tree).keys(), tree
