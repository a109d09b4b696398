"""The newest spans of a long range are those of the whole range, although its newest part is read first."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from receiver.console.queries import spans as newest
from receiver.engine.store import Store
from tests.support.answers import ask
from tests.support.cases import each_case
from tests.support.random_filters import NOW_S, Span
from tests.support.rollups import DAY_S, span_at


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    """Return spans of four days, each at another time, a few after now."""
    rng = random.Random(58)
    return [span_at(rng, number, NOW_S + 3_600 - number * 900, NOW_S) for number in range(300)]


@each_case("divisor", [2, 64, 10_000])
@each_case("limit", [1, 5, 6, 150, 1_000])
@each_case("service", ["", "web", "absent"])
def test_newest_spans_of_parts_are_those_of_the_whole_range(  # noqa: PLR0913, PLR0917 - fixtures and parameters
    store: Store,
    spans: Sequence[Span],
    monkeypatch: pytest.MonkeyPatch,
    divisor: int,
    limit: int,
    service: str,
) -> None:
    monkeypatch.setattr(newest, "RECENT_DIVISOR", divisor)
    text = f"service={service}" if service else ""

    rows = ask(store, "spans", since=f"{3 * DAY_S}s", limit=str(limit), filter=text)

    matching = [
        span["SpanId"]
        for span in sorted(spans, key=lambda span: -span["start_ns"])
        if span["start_ns"] >= (NOW_S - 3 * DAY_S) * 10**9 and service in {"", span["ServiceName"]}
    ]
    assert [row["SpanId"] for row in rows if "SpanId" in row] == matching[:limit]
