"""Pages: joined they are the whole answer, also while spans arrive; a cursor fits only its question."""

from __future__ import annotations

import json
import random
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from receiver.console.queries.page_cursor import CURSOR_CHARS_MAX
from receiver.console.queries.questions import QUESTIONS
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from tests.support import engines
from tests.support.answers import Row, answer_of, rows_of
from tests.support.cases import RANDOM_CASES, each_case
from tests.support.random_filters import NOW_S, Span, insert, random_span
from tests.support.random_trees import random_filter

SPANS = 800
PAGED = [name for name, question in QUESTIONS.items() if question.has_cursor]


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    """Return spans with many equal times, and copies of spans."""
    rng = random.Random(19)
    spans = [random_span(rng, number) for number in range(SPANS)]
    for span in spans:
        if rng.random() < 0.5:
            span["start_ns"] = (NOW_S - rng.randrange(1, 20)) * 10**9
    return spans + spans[:300] + spans[:100]


@pytest.fixture
def changing_store(store: Store, spans: Sequence[Span]) -> Iterator[Store]:
    """Yield the store, to which the test adds spans."""
    yield store
    engines.delete_rows(store)
    insert(store, spans)


def page_of(store: Store, name: str, query: dict[str, str], now_s: float = NOW_S) -> tuple[list[Row], str]:
    """Return the rows of a page and the cursor of the next one."""
    answer = answer_of(store, name, query, now_s)
    rows = rows_of(answer.pieces())
    return rows, answer.next_cursor


def identity(row: Row) -> str:
    return str(row["trace_id"]) if "trace_id" in row else json.dumps(row, sort_keys=True)


def pages_of(store: Store, name: str, query: dict[str, str], rng: random.Random) -> list[list[Row]]:
    """Return all pages. Each has its own limit, and is asked some seconds after the page before."""
    pages, cursor, now_s = [], "", float(NOW_S)
    while True:
        limit = rng.choice([7, 50, 333])
        rows, cursor = page_of(store, name, {**query, "cursor": cursor, "limit": str(limit)}, now_s)
        pages.append(rows)
        assert len(rows) <= limit
        now_s += rng.randrange(60)
        if not cursor:
            return pages
        assert len(rows) == limit


@pytest.mark.parametrize("name", PAGED)
@pytest.mark.random_cases
def test_joined_pages_are_the_whole_answer(store: Store, name: str) -> None:
    rng = random.Random(23)
    counts = []
    for _ in range(RANDOM_CASES // 2):
        query = {"filter": random_filter(rng)[0]}
        whole, _ = page_of(store, name, {**query, "limit": "10000"})

        pages = pages_of(store, name, query, rng)

        joined = [identity(row) for page in pages for row in page]
        assert sorted(joined) == sorted(map(identity, whole))
        counts.append(len(pages))
    assert max(counts) > 3


@pytest.mark.parametrize("name", PAGED)
def test_pages_have_every_earlier_row_once_while_spans_arrive(changing_store: Store, name: str) -> None:
    store = changing_store
    rng = random.Random(29)
    whole, _ = page_of(store, name, {"limit": "10000"})
    joined: list[str] = []
    cursor = ""
    while True:
        rows, cursor = page_of(store, name, {"limit": "100", "cursor": cursor}, NOW_S + 1)
        joined += map(identity, rows)
        if not cursor:
            break
        numbers = range(SPANS + len(joined), SPANS + len(joined) + 40)
        received = {"ReceivedAt": "2100-01-01 00:00:00.000"}
        insert(store, [random_span(rng, number) | received for number in numbers])

    earlier = sorted(map(identity, whole))
    assert sorted(name for name in joined if name in set(earlier)) == earlier


def test_pages_of_a_search_miss_no_trace_whose_newer_spans_are_stored_late(changing_store: Store) -> None:
    store = changing_store
    rng = random.Random(31)
    whole, _ = page_of(store, "search", {"limit": "10000"})
    listed: set[str] = set()
    cursor, stored_late = "", 0
    while True:
        rows, cursor = page_of(store, "search", {"limit": "100", "cursor": cursor}, NOW_S + 1)
        listed |= set(map(identity, rows))
        if not cursor:
            break
        # Received before the first page, as the default of ReceivedAt is; newer than every stored span.
        unlisted = sorted({identity(row) for row in whole} - listed)
        late = [
            {**random_span(rng, SPANS + number), "TraceId": trace_id, "start_ns": NOW_S * 10**9}
            for number, trace_id in enumerate(unlisted)
        ]
        insert(store, late)
        stored_late += len(late)

    assert listed == {identity(row) for row in whole}
    assert stored_late > 100


@each_case("name", PAGED)
def test_cursor_fits_only_its_question(store: Store, name: str) -> None:
    _, cursor = page_of(store, name, {"limit": "5", "cursor": "", "filter": "duration>=0ms"})
    question = QUESTIONS[name]

    assert question.parse({"cursor": cursor, "filter": "duration>=0ms", "limit": "9"}).cursor is not None
    for query in ({}, {"filter": "duration>=1ms"}, {"filter": "duration>=0ms", "since": "2h"}):
        with pytest.raises(MalformedBody, match="cursor does not belong to this question"):
            question.parse({**query, "cursor": cursor})
    other = QUESTIONS[next(other for other in PAGED if other != name)]
    with pytest.raises(MalformedBody, match="cursor does not belong"):
        other.parse({"cursor": cursor, "filter": "duration>=0ms"})


FORGED = (b"[" * 1_000, b'["a",1e400]', b"{}", b"null", b"[]")


@each_case(
    "text",
    [
        *("x", "%00", "\u00e9", "' OR 1=1 --", "A" * (CURSOR_CHARS_MAX + 1)),
        *(urlsafe_b64encode(content).decode() for content in FORGED),
    ],
)
def test_forged_cursor_is_refused(text: str) -> None:
    with pytest.raises(MalformedBody, match="cursor does not belong"):
        QUESTIONS["spans"].parse({"cursor": text})


@each_case(
    "change",
    [{"seq": 2**64}, {"equal_count": -1}, {"time_ns": None}, {"time_ns": 2**63}, {"digest": "other"}],
)
def test_cursor_with_an_impossible_position_is_refused(store: Store, change: dict[str, Any]) -> None:
    _, text = page_of(store, "spans", {"limit": "5", "cursor": ""})
    cursor = QUESTIONS["spans"].parse({"cursor": text}).cursor
    assert cursor is not None

    with pytest.raises(MalformedBody, match="cursor does not belong"):
        QUESTIONS["spans"].parse({"cursor": replace(cursor, **change).text()})


@each_case("name", PAGED)
def test_answer_without_a_cursor_has_no_next_page(store: Store, name: str) -> None:
    assert page_of(store, name, {"limit": "5"})[1] == ""
