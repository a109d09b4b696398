"""The spans that were received last agree with plain Python, in the embedded engine."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from receiver.console.queries.arrivals import arrivals
from receiver.console.queries.questions import QUESTIONS
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from tests.support import engines
from tests.support.random_filters import NOW_S, Span, as_row, random_filter, random_span

FIRST_MS = NOW_S * 1_000 - 400


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(8)
    return [
        {**random_span(rng, number), "ReceivedAt": (FIRST_MS + rng.randrange(400)) / 1_000}
        for number in range(600)
    ]


@pytest.fixture(scope="module")
def store(engine_dir: Path, spans: Sequence[Span]) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + "\n".join(map(as_row, spans)))
        yield store


def ask(store: Store, **query: str) -> tuple[list[dict[str, Any]], bool]:
    answer = arrivals(store, QUESTIONS["tail"].parse({"since": "1d", **query}), NOW_S)
    rows = [json.loads(line) for line in b"".join(answer.pieces()).splitlines()]
    return rows, answer.is_cut


def received_ms(span: Span) -> int:
    return int(span["ReceivedAt"] * 1_000 + 0.5)


def test_random_filters_agree_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(9)
    for _ in range(15):
        text, matches = random_filter(rng)
        after_ms = FIRST_MS + rng.randrange(400)

        rows, is_cut = ask(store, filter=text, after=str(after_ms))

        expected = [span for span in spans if matches(span) and received_ms(span) >= after_ms]
        assert {row["span_id"]: row["received_ms"] for row in rows} == {
            span["SpanId"]: received_ms(span) for span in expected
        }, text
        assert [row["received_ms"] for row in rows] == sorted(map(received_ms, expected), reverse=True)
        assert not is_cut


def test_limit_keeps_the_spans_that_were_received_last(store: Store, spans: Sequence[Span]) -> None:
    rows, is_cut = ask(store, limit="10")

    assert [row["received_ms"] for row in rows] == sorted(map(received_ms, spans), reverse=True)[:10]
    assert is_cut


@pytest.mark.parametrize("after", ["", "-1", "1e3", "s3cret", "9" * 30, "1) OR 1=1 --"])
def test_invalid_time_is_refused(store: Store, after: str) -> None:
    with pytest.raises(MalformedBody, match=r"^after: expected milliseconds"):
        ask(store, after=after)
