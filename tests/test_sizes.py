"""Tests of the texts of sizes, durations, counts and shares."""

from __future__ import annotations

import pytest

from receiver.sizes import counted, duration_text, percent, size_text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (9_999, "9999 bytes"),
        (12_800, "12.5 KiB"),
        (262_144, "256 KiB"),
        (1 << 26, "64 MiB"),
        ((1 << 26) - 1, "64 MiB"),
        ((1 << 30) - 1, "1024 MiB"),
        (8 << 30, "8 GiB"),
        (1 << 50, "1 PiB"),
        (5000 << 50, "5000 PiB"),
    ],
)
def test_size_is_printed_in_a_suitable_unit(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_500, "1.5 µs"),
        (290.4e6, "290 ms"),
        (999_600_000, "1,000 ms"),
        (1.21e9, "1.21 s"),
        (150e9, "2.5 min"),
        (7_200e9, "2 h"),
        (90_000_000e9, "1,042 d"),
    ],
)
def test_duration_has_three_digits_and_a_unit(duration_ns: float, text: str) -> None:
    assert duration_text(duration_ns) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.000_01, "< 0.01 %"),
        (-0.000_01, "> −0.01 %"),
        (0.000_4, "0.04 %"),
        (0.0192, "1.9 %"),
        (0.384, "38 %"),
        (0.998, "100 %"),
        (1, "100 %"),
    ],
)
def test_percentage_is_precise_where_it_is_small(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 spans"), (1, "1 span"), (2_000, "2,000 spans")])
def test_count_has_its_noun_in_the_plural_except_for_one(count: int, text: str) -> None:
    assert counted(count, "span") == text
