"""Spans as an Arrow stream have the rows of the JSON answer; a stream is whole or fails."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from typing import Any

import polars  # noqa: ICN001 - as in the docs
import pytest

from receiver.console.queries.limits import limit_exceeded
from receiver.console.queries.questions import QUESTIONS
from receiver.console.queries.spans import spans_arrow
from receiver.engine.pieces import ARROW_END, complete_arrow
from receiver.engine.store import Store
from receiver.errors import LimitExceeded, StoreTrouble
from tests.support.answers import rows_of
from tests.support.cases import each_case
from tests.support.random_filters import NOW_S, Span, random_span
from tests.support.random_trees import random_filter

SPANS = 2_000
QUESTION = QUESTIONS["spans"]


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(13)
    return [random_span(rng, number) for number in range(SPANS)]


def test_arrow_stream_has_the_rows_of_the_lines(store: Store) -> None:
    rng = random.Random(17)
    counts = []
    for _ in range(20):
        text, _ = random_filter(rng)
        asked = QUESTION.parse({"filter": text, "limit": "10000"})

        expected = rows_of(QUESTION.ask(store, asked, NOW_S).pieces())
        stream = b"".join(spans_arrow(store, asked, NOW_S))

        frame = polars.read_ipc_stream(io.BytesIO(stream))
        key = ("TraceId", "SpanId", "Duration", "ServiceName", "StatusCode")
        assert sorted(frame.select(key).rows()) == sorted(
            tuple(row[name] for name in key) for row in expected
        )
        assert stream.endswith(ARROW_END)
        counts.append(len(expected))
    assert sum(0 < count < SPANS for count in counts) > 5


def test_arrow_stream_with_more_rows_than_the_limit_fails(store: Store) -> None:
    with pytest.raises(LimitExceeded, match="over 10 spans match"):
        list(spans_arrow(store, QUESTION.parse({"limit": "10"}), NOW_S))


def test_arrow_stream_fails_if_spans_arrive_after_their_count(store: Store) -> None:
    class StoreWithLateSpans:
        """Store whose count misses the spans that arrive after it."""

        arrow = staticmethod(store.arrow)

        @staticmethod
        def rows(_statement: str, _parameters: object) -> list[tuple[int]]:
            return [(10,)]

    late: Any = StoreWithLateSpans()
    with pytest.raises(StoreTrouble) as failed:
        list(spans_arrow(late, QUESTION.parse({"limit": "10"}), NOW_S))

    exceeded = limit_exceeded(failed.value)
    assert exceeded is not None
    assert exceeded.field == "rows"


@each_case(
    "sent",
    [b"", b"abc", b"abc" * 10 + ARROW_END[:-1], b"a" * 3_000 + b"Code: 241."],
    ids=["empty", "short", "cut", "error"],
)
@each_case("piece_bytes", [1, 7, 10_000])
def test_arrow_stream_without_its_end_is_an_error(sent: bytes, piece_bytes: int) -> None:
    with pytest.raises(StoreTrouble, match="end mark"):
        list(complete_arrow(pieces_of(sent, piece_bytes)))


@each_case("piece_bytes", [1, 7, 10_000])
def test_whole_arrow_stream_is_unchanged(piece_bytes: int) -> None:
    sent = b"abc" * 10 + ARROW_END

    assert b"".join(complete_arrow(pieces_of(sent, piece_bytes))) == sent


def pieces_of(sent: bytes, piece_bytes: int) -> Iterator[bytes]:
    return (sent[place : place + piece_bytes] for place in range(0, len(sent), piece_bytes))
