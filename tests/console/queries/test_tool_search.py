"""The searches of other tools agree with an evaluator in plain Python, for random spans and filters."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from receiver.console.queries.filters.filter import HasSpan
from receiver.console.queries.filters.filter_text import parse_filter
from receiver.console.queries.group_key import parse_group_key
from receiver.console.queries.search import SearchQuery, found_traces
from receiver.console.queries.tag_values import WantedValues, tag_values
from receiver.console.queries.tool_search import matching_spans, overviews, whole_spans
from receiver.console.queries.traces.traces import rows_of
from receiver.engine.store import Store
from tests.support.cases import RANDOM_CASES, each_case
from tests.support.random_filters import NOW_S, Span, expected_summaries, random_span
from tests.support.random_trees import random_filter

TRACES = 40
SPANS = 400
SINCE_NS = (NOW_S - 3_600) * 10**9


@pytest.fixture(scope="module")
def spans() -> Sequence[Span]:
    """Return spans of few traces, some with a parent that is stored in their trace, some stored twice."""
    rng = random.Random(29)
    made = [{**random_span(rng, number), "TraceId": f"{number % TRACES:032x}"} for number in range(SPANS)]
    for number, span in enumerate(made):
        parent = rng.choice([number, *range(number % TRACES, SPANS, TRACES), 10**6])
        span["ParentSpanId"] = rng.choice(["", f"{parent:016x}"])
    return made + made[:20]


def by_trace(spans: Sequence[Span]) -> dict[str, dict[str, Span]]:
    """Return trace id → span id → span."""
    found: dict[str, dict[str, Span]] = defaultdict(dict)
    for span in spans:
        found[span["TraceId"]][span["SpanId"]] = span
    return found


def test_overviews_count_spans_and_orphans(store: Store, spans: Sequence[Span]) -> None:
    found = found_traces(store, SearchQuery(limit=TRACES), NOW_S)
    expected = expected_summaries(spans, lambda _: True)
    rows = list(overviews(store, found))

    assert [row["trace_id"] for row in rows] == list(found.ids)
    assert {row["trace_id"] for row in rows} == set(expected)
    for row in rows:
        trace = by_trace(spans)[row["trace_id"]]
        summary = expected[row["trace_id"]]
        orphans = [span for span in trace.values() if span["ParentSpanId"] not in {"", *trace}]
        errors = Counter(span["ServiceName"] for span in trace.values() if span["StatusCode"] == "Error")
        assert row["service_spans"] == Counter(span["ServiceName"] for span in trace.values())
        assert row["service_errors"] == errors
        assert row["orphans"] == len(orphans)
        assert (row["service"], row["name"]) == (summary["service"], summary["name"])
        assert (row["spans"], row["errors"]) == (summary["spans"], summary["errors"])
        assert row["start_ns"] == min(span["start_ns"] for span in trace.values())
        assert int(row["duration_ns"]) / 1e6 == pytest.approx(summary["duration_ms"])


@pytest.mark.random_cases
def test_matching_spans_agree_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(31)
    total = 0
    for _ in range(RANDOM_CASES):
        text, matches = random_filter(rng)
        wanted = SearchQuery(HasSpan(parse_filter(text)), limit=TRACES)
        found = found_traces(store, wanted, NOW_S)

        matching = matching_spans(store, wanted, found, NOW_S, 2)

        for trace_id in found.ids:
            of_trace = by_trace(spans)[trace_id].values()
            expected = sorted(
                (span["start_ns"], span["SpanId"])
                for span in of_trace
                if matches(span) and span["start_ns"] >= SINCE_NS
            )
            shown = [(row["StartNs"], row["SpanId"]) for row in matching[trace_id].first]
            assert (matching[trace_id].matched, shown) == (len(expected), expected[:2]), text
            total += len(expected)
    assert total > SPANS


def test_whole_traces_have_each_span_once_by_start(store: Store, spans: Sequence[Span]) -> None:
    found = found_traces(store, SearchQuery(limit=TRACES), NOW_S)

    rows = [(row["TraceId"], row["SpanId"]) for row in whole_spans(store, found)]

    assert rows == [
        (trace_id, span["SpanId"])
        for trace_id in found.ids
        for span in sorted(
            by_trace(spans)[trace_id].values(), key=lambda span: (span["start_ns"], span["SpanId"])
        )
    ]


@each_case("key", ["service", "http.route", "resource.n.x"])
def test_values_of_a_tag_agree_with_plain_python(store: Store, spans: Sequence[Span], key: str) -> None:
    def value_of(span: Span) -> str | None:
        own: dict[str, str] = span["SpanAttributes"]
        of_resource: dict[str, str] = span["ResourceAttributes"]
        if key == "service":
            return str(span["ServiceName"])
        return of_resource.get("n.x") if key == "resource.n.x" else own.get(key, of_resource.get(key))

    for of_roots in (False, True):
        wanted = WantedValues(parse_group_key(key), parse_filter("status=error"), of_roots=of_roots)
        rows = rows_of(tag_values(store, wanted, now_s=NOW_S).pieces())
        expected = Counter(
            value_of(span)
            for span in spans
            if span["StatusCode"] == "Error"
            and span["start_ns"] >= SINCE_NS
            and (not of_roots or not span["ParentSpanId"])
        )
        del expected[None]
        assert {row["value"]: row["spans"] for row in rows} == expected
