"""Delays between attempts."""

from __future__ import annotations

from receiver.platform.client import retries
from tests.support.cases import each_case


def test_delays_grow_to_a_limit_and_have_jitter() -> None:
    longest, none = retries.delays_s(lambda: 0.0), retries.delays_s(lambda: 1.0)

    assert [next(longest) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert next(none) == 0


@each_case(
    ("text", "seconds"),
    [
        ("5", 5.0),
        (" 0 ", 0.0),
        ("9" * 400, 1e9),
        ("Thu, 01 Jan 1970 00:17:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("-1", None),
        ("1e9", None),
        ("nan", None),
        ("٣", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: float | None) -> None:
    assert retries.parse_retry_after(text, 1_000.0) == seconds
