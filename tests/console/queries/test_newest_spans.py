"""The newest spans of a long range are those of the whole range, although its newest parts are read first."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from receiver.console.queries.filters import newest_first
from receiver.console.queries.filters.filter_text import parse_filter
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


@each_case("first_s", [1, 900, 3_600, 30 * 3_600])
@each_case("limit", [1, 5, 6, 150, 1_000])
@each_case("service", ["", "web", "absent"])
def test_newest_spans_of_parts_are_those_of_the_whole_range(  # noqa: PLR0913, PLR0917 - fixtures and parameters
    store: Store,
    spans: Sequence[Span],
    monkeypatch: pytest.MonkeyPatch,
    first_s: int,
    limit: int,
    service: str,
) -> None:
    monkeypatch.setattr(newest_first, "FIRST_DIVISOR", 10_000)
    monkeypatch.setattr(newest_first, "FIRST_S_MIN", first_s)
    monkeypatch.setattr(newest_first, "FIRST_S_MIN_BY_KEY", first_s)
    text = f"service={service}" if service else ""

    rows = ask(store, "spans", since=f"{3 * DAY_S}s", limit=str(limit), filter=text)

    matching = [
        span["SpanId"]
        for span in sorted(spans, key=lambda span: -span["start_ns"])
        if span["start_ns"] >= (NOW_S - 3 * DAY_S) * 10**9 and service in {"", span["ServiceName"]}
    ]
    assert [row["SpanId"] for row in rows if "SpanId" in row] == matching[:limit]


@each_case(
    ("text", "hours", "has_found", "ends"),
    [
        ("status=error", 0.4, True, [0]),
        ("status=error", 1, True, [0.75, 0]),
        ("status=error", 24, True, [23.75, 22, 0]),
        ("status=error", 24, False, [23.75, 0]),
        ("status=error", 512, True, [511, 504, 448, 0]),
        ("status=error service=web", 11, True, [0]),
        ("status=error service=web", 24, True, [18, 0]),
        ("status=error service=web", 240, True, [234, 192, 0]),
    ],
)
def test_rest_is_read_at_once_if_it_is_short_or_the_newest_part_has_no_match(
    text: str, hours: float, ends: list[float], *, has_found: bool
) -> None:
    from_ns = (NOW_S - int(hours * 3_600)) * 10**9
    to_ns = (NOW_S + 7_200) * 10**9

    parts = [*newest_first.newest_first(parse_filter(text), (from_ns, to_ns), NOW_S + 0.5, lambda: has_found)]

    begins = [from_ns + int(end * 3_600 * 10**9) for end in ends]
    assert [part["from_ns"] for part in parts] == begins
    assert [part["to_ns"] for part in parts] == [to_ns, *begins[:-1]]
