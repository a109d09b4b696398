"""Tests of the text of sizes."""

from __future__ import annotations

import pytest

from receiver.sizes import size_text


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
