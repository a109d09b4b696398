"""The spans that were received last agree with plain Python."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from receiver.engine.store import Store
from receiver.errors import MalformedBody
from tests.support.answers import Row, answer_of, rows_of
from tests.support.random_filters import NOW_S, Span, random_span
from tests.support.random_trees import random_filter

FIRST_MS = NOW_S * 1_000 - 400


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(8)
    return [
        {**random_span(rng, number), "ReceivedAt": (FIRST_MS + rng.randrange(400)) / 1_000}
        for number in range(600)
    ]


def tail(store: Store, **query: str) -> tuple[list[Row], bool]:
    answer = answer_of(store, "tail", {"since": "1d", **query})
    return rows_of(answer.pieces()), answer.is_cut


def received_ms(span: Span) -> int:
    return int(span["ReceivedAt"] * 1_000 + 0.5)


def test_random_filters_agree_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(9)
    for _ in range(15):
        text, matches = random_filter(rng)
        after_ms = FIRST_MS + rng.randrange(400)

        rows, is_cut = tail(store, filter=text, after=str(after_ms))

        expected = [span for span in spans if matches(span) and received_ms(span) >= after_ms]
        assert {row["span_id"]: row["received_ms"] for row in rows} == {
            span["SpanId"]: received_ms(span) for span in expected
        }, text
        assert [row["received_ms"] for row in rows] == sorted(map(received_ms, expected), reverse=True)
        assert not is_cut


def test_limit_keeps_the_spans_that_were_received_last(store: Store, spans: Sequence[Span]) -> None:
    rows, is_cut = tail(store, limit="10")

    assert [row["received_ms"] for row in rows] == sorted(map(received_ms, spans), reverse=True)[:10]
    assert is_cut


@pytest.mark.parametrize("after", ["", "-1", "1e3", "s3cret", "9" * 30, "1) OR 1=1 --"])
def test_invalid_time_is_refused(store: Store, after: str) -> None:
    with pytest.raises(MalformedBody, match=r"^after: expected milliseconds"):
        tail(store, after=after)
