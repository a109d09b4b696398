"""Numbers, durations and times on pages."""

from __future__ import annotations

from receiver.console.ui import numbers
from tests.support.cases import each_case


def test_duration_is_a_dash_if_there_is_none() -> None:
    assert numbers.duration(290.4) == "290 ms"
    assert numbers.duration(None) == "–"


@each_case(
    ("ratio", "text"), [(0.38, "+38 %"), (-0.12, "−12 %"), (-0.001, "0 %"), (12.5, "+1,250 %"), (None, "–")]
)
def test_change_has_a_sign_unless_it_is_zero(ratio: float | None, text: str) -> None:
    assert numbers.change(ratio) == text


@each_case(
    ("count", "seconds", "text"),
    [
        (74_400, 3_600, "1,240/min"),
        (3, 120, "1.5/min"),
        (0, 60, "0/min"),
        (1, 0, "0/min"),
        (1, 3_601, "1/h"),
        (1, 7_200, "12/d"),
        (35, 10_000, "13/h"),
    ],
)
def test_rate_has_a_unit_in_which_it_is_not_tiny(count: int, seconds: float, text: str) -> None:
    assert numbers.per_minute(count, seconds) == text


@each_case(
    ("seconds", "text"),
    [(0, "now"), (2, "2 s ago"), (3_700, "1 h ago"), (-300, "in 5 min"), (200_000, "2 d ago")],
)
def test_age_has_one_unit(seconds: float, text: str) -> None:
    assert numbers.ago(1_000_000 - seconds, 1_000_000) == text


def test_time_element_has_the_exact_time_and_shows_utc() -> None:
    element = numbers.time_tag("2026-01-31T12:00:01.250000000+02:00")

    assert element == (
        '<time datetime="2026-01-31T10:00:01.250000+00:00" title="2026-01-31 10:00:01.250 UTC">'
        "2026-01-31 10:00:01.250</time>"
    )
