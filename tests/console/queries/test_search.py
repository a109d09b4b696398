"""Searches agree with an evaluator in plain Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from receiver.console.queries.filters import newest_first
from receiver.console.queries.filters.filter import HasSpan
from receiver.console.queries.filters.filter_forms import parse_any_form
from receiver.console.queries.filters.filter_text import parse_filter
from receiver.console.queries.filters.regex_size import regex_size
from receiver.console.queries.limits import TRACES_MAX
from receiver.console.queries.questions import QUESTIONS
from receiver.console.queries.search import BATCH_TRACES, SearchQuery, search
from receiver.engine.sql_text import SECONDS_MAX
from receiver.engine.store import Store
from receiver.errors import InvalidFilter, MalformedBody, StoreTrouble
from receiver.time_range import TimeRange
from tests.support.answers import rows_of
from tests.support.cases import RANDOM_CASES, each_case
from tests.support.hostile_filters import HOSTILE, RecordingStore
from tests.support.random_filters import NOW_S, NUMBER, TRACES, Span, expected_summaries, quoted, random_span
from tests.support.random_trees import random_filter

SPANS = 3_000


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(7)
    made = [random_span(rng, number) for number in range(SPANS)]
    # A client and a server that share the id of their span, as Zipkin's libraries report them.
    shared = [{**span, "ServiceName": "callee", "start_ns": span["start_ns"] + 1} for span in made[50:80]]
    return made + shared + made[:50]  # spans that two senders sent


def found(store: Store, text: str, limit: int = TRACES_MAX) -> list[dict[str, Any]]:
    wanted = SearchQuery(HasSpan(parse_filter(text)), limit=limit)
    return rows_of(search(store, wanted, now_s=NOW_S).pieces())


@pytest.mark.random_cases
def test_random_filters_agree_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(12)
    counts = []
    for _ in range(RANDOM_CASES):
        text, matches = random_filter(rng)
        expected = expected_summaries(spans, matches)

        summaries = {row["trace_id"]: row for row in found(store, text)}

        assert summaries.keys() == expected.keys(), text
        for trace_id, summary in summaries.items():
            assert summary == pytest.approx(expected[trace_id]), (text, trace_id)
        counts.append(len(summaries))
    assert sum(0 < count < TRACES * 0.9 for count in counts) > RANDOM_CASES / 2


def statements_of(text: str) -> list[str]:
    recording: Any = RecordingStore()
    list(search(recording, SearchQuery(HasSpan(parse_filter(text))), now_s=NOW_S).pieces())
    return list(recording.statements)


@each_case("hostile", HOSTILE)
def test_hostile_value_finds_only_equal_values(store: Store, spans: Sequence[Span], hostile: str) -> None:
    expected = expected_summaries(spans, lambda span: span["ServiceName"] == hostile)

    assert {row["trace_id"] for row in found(store, f"service={quoted(hostile)}")} == expected.keys()
    assert found(store, f"span.{quoted(hostile)} exists") == []


@each_case("regex", ["(", "a(?=b)", "[", "a{2000}", "\\1", "a)|(b"])
def test_invalid_regular_expression_is_an_error_with_its_column(store: Store, regex: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        found(store, f'service=web name=~"{regex}"')

    assert refused.value.column == len("service=web name=~") + 1


@each_case(
    ("regex", "size"),
    [
        ("", 0),
        ("^/api/[^/]+$", 9),
        ("[0-9a-f]{32}", 32),
        ("[]a]{3}[^]\\]b]{2,}x{4,5}", 10),
        ("(ab{3}|c){2}d", 13),
        ("((a{9}){9}){9}", 729),
        (r"\{\(a\){3}", 6),
        (r"\pL{3}\p{Greek}", 80),
        ("a{,3}(", 5),
    ],
)
def test_size_of_a_regular_expression_counts_its_repetitions(regex: str, size: int) -> None:
    assert regex_size(regex) == size


@each_case(
    "text",
    [
        'name=~"[a-z]{1,900}X" k.v=~"[a-z]{1,900}X"',
        'name=~"((a{1,10}){1,10}){1,11}"',
        '{name=~"[a-z]{1,900}X"} && {name=~"[a-z]{1,900}X"}',
    ],
)
def test_expensive_regular_expressions_are_refused(store: Store, text: str) -> None:
    with pytest.raises(InvalidFilter, match="have over 1000 characters once"):
        b"".join(search(store, SearchQuery(parse_any_form(text)), now_s=NOW_S).pieces())


def test_answer_of_a_limit_is_cut_and_newest_first(store: Store) -> None:
    whole = found(store, "status=error")

    answer = search(store, SearchQuery(HasSpan(parse_filter("status=error")), limit=5), now_s=NOW_S)

    assert rows_of(answer.pieces()) == whole[:5]
    assert answer.is_cut


@pytest.mark.random_cases
def test_limited_answers_of_random_filters_begin_with_the_newest_matches(
    store: Store, spans: Sequence[Span], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three parts: the newest 225 s of the hour, its newest half hour, the rest.
    monkeypatch.setattr(newest_first, "FIRST_S_MIN", 225)
    monkeypatch.setattr(newest_first, "FIRST_S_MIN_BY_KEY", 225)
    rng = random.Random(13)
    first_ns, recent_ns = (NOW_S - 3_600) * 10**9, (NOW_S - 225) * 10**9
    found_in_recent_part = []
    for _ in range(RANDOM_CASES):
        text, matches = random_filter(rng)
        limit = rng.choice((1, 5, 50, 300))
        newest: dict[str, int] = {}
        for span in spans:
            if span["start_ns"] >= first_ns and matches(span):
                newest[span["TraceId"]] = max(span["start_ns"], newest.get(span["TraceId"], 0))

        trace_ids = [row["trace_id"] for row in found(store, text, limit)]

        in_order = sorted(newest, key=lambda trace_id: (-newest[trace_id], trace_id))
        assert trace_ids == in_order[:limit], text
        found_in_recent_part.append(sum(at_ns >= recent_ns for at_ns in newest.values()) > limit)
    assert RANDOM_CASES / 10 < sum(found_in_recent_part) < RANDOM_CASES * 0.9


@each_case(
    ("text", "is_by_key"),
    [
        ("project=prj_1 status=error", True),
        ("status=error (service=web OR project=prj_1)", True),
        ("status=error (service=web OR status=ok)", False),
        ("-project=prj_1", False),
        ("project=prj_*", False),
    ],
)
def test_filter_by_project_or_service_reads_an_hour_in_one_statement(text: str, *, is_by_key: bool) -> None:
    assert len(statements_of(text)) == (1 if is_by_key else 2)


def test_range_in_the_future_has_only_its_own_spans(store: Store, spans: Sequence[Span]) -> None:
    later = TimeRange(from_at_s=NOW_S - 60, to_at_s=float(NOW_S))

    expected = {span["TraceId"] for span in spans if span["start_ns"] >= (NOW_S - 60) * 10**9}
    answer = search(store, SearchQuery(range=later, limit=len(expected)), now_s=NOW_S - 1_800)

    assert {row["trace_id"] for row in rows_of(answer.pieces())} == expected
    assert not answer.is_cut


def test_answer_with_exactly_the_limit_is_not_cut(store: Store) -> None:
    count = len(found(store, "status=error"))

    answer = search(store, SearchQuery(HasSpan(parse_filter("status=error")), limit=count), now_s=NOW_S)

    assert b"".join(answer.pieces()).count(b"\n") == count > BATCH_TRACES
    assert not answer.is_cut


def test_spans_outside_the_time_range_do_not_match(store: Store, spans: Sequence[Span]) -> None:
    wanted = SearchQuery(range=TimeRange(since_s=600, until_s=300), limit=TRACES_MAX)

    rows = rows_of(search(store, wanted, now_s=NOW_S).pieces())

    first_ns, end_ns = (NOW_S - 600) * 10**9, (NOW_S - 300) * 10**9
    expected = {span["TraceId"] for span in spans if first_ns <= span["start_ns"] < end_ns}
    assert {row["trace_id"] for row in rows} == expected


def test_search_over_its_time_limit_raises_and_starts_no_further_statement(store: Store) -> None:
    times = iter(range(0, 1_000 * SECONDS_MAX, SECONDS_MAX))

    with pytest.raises(StoreTrouble, match="rows may be missing"):
        list(search(store, SearchQuery(limit=TRACES_MAX), now_s=NOW_S, clock=lambda: next(times)).pieces())


def sorted_ids(store: Store, text: str, sort: str, limit: int = TRACES_MAX) -> list[str]:
    asked = QUESTIONS["search"].parse({"filter": text, "sort": sort, "limit": str(limit)})
    return [row["trace_id"] for row in rows_of(QUESTIONS["search"].ask(store, asked, NOW_S).pieces())]


@each_case("sort", ["started", "duration", "-duration", "spans", "-errors"])
@each_case("text", ["", "status=error", "trace:duration>1ms", "{status=error} && {kind=client}"])
def test_sorted_answer_has_the_first_of_all_matching_traces(store: Store, sort: str, text: str) -> None:
    asked = QUESTIONS["search"].parse({"filter": text, "limit": str(TRACES_MAX)})
    rows = rows_of(QUESTIONS["search"].ask(store, asked, NOW_S).pieces())
    measure = {"started": "start", "duration": "duration_ms"}.get(sort.strip("-"), sort.strip("-"))
    factor = -1 if sort.startswith("-") else 1
    order = sorted(
        rows, key=lambda row: (row[measure] if measure == "start" else factor * row[measure], row["trace_id"])
    )

    assert len(rows) > 20
    assert sorted_ids(store, text, sort, 10) == [row["trace_id"] for row in order[:10]]


def value_of(spans: Sequence[Span], key: str) -> str:
    """Return the value of the root, or else of the earliest span that has the attribute."""
    first = sorted(spans, key=lambda each: (bool(each["ParentSpanId"]), each["start_ns"], each["SpanId"]))
    values = [
        attributes[key]
        for each in first
        for attributes in (each["SpanAttributes"], each["ResourceAttributes"])
        if key in attributes
    ]
    return values[0] if values else ""


def test_attribute_of_a_trace_is_that_of_its_root_or_else_of_its_earliest_span(
    store: Store, spans: Sequence[Span]
) -> None:
    keys = ("http.route", "n.x")
    # Columns that every line has are accepted and not repeated.
    names = ",".join(("started", "duration", *keys))
    asked = QUESTIONS["search"].parse({"columns": names, "limit": str(TRACES_MAX)})
    by_trace: dict[str, list[Span]] = {}
    for each in spans:
        by_trace.setdefault(each["TraceId"], []).append(each)

    rows = rows_of(QUESTIONS["search"].ask(store, asked, NOW_S).pieces())

    assert len(rows) > TRACES / 2
    for row in rows:
        assert row["columns"] == {key: value_of(by_trace[row["trace_id"]], key) for key in keys}


def test_sort_by_an_attribute_compares_numbers_and_ends_with_traces_without_it(store: Store) -> None:
    key = "n.x"
    asked = QUESTIONS["search"].parse({"columns": key, "sort": f"-{key}", "limit": str(TRACES_MAX)})

    values = [row["columns"][key] for row in rows_of(QUESTIONS["search"].ask(store, asked, NOW_S).pieces())]

    known = [value for value in values if value not in ("NaN", "0x10", " 5")]
    numbers = [float(value) for value in known if NUMBER.fullmatch(value)]
    assert len(set(numbers)) > 1
    assert numbers == sorted(numbers, reverse=True)
    assert not any(map(NUMBER.fullmatch, known[len(numbers) :]))


@each_case(
    ("query", "field"),
    [
        ({"sort": "bogus"}, "sort"),
        ({"sort": "-duration", "cursor": ""}, "sort"),
        ({"columns": "a.b,bogus"}, "columns"),
        ({"columns": ",".join(f"a.{number}" for number in range(13))}, "columns"),
    ],
)
def test_wrong_order_or_column_names_its_parameter(query: dict[str, str], field: str) -> None:
    with pytest.raises(MalformedBody) as refused:
        QUESTIONS["search"].parse(query)

    assert refused.value.field == field
