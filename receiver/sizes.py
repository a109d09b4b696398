"""Formatters of sizes, durations, counts and shares for readers: commands, pages and messages."""

from __future__ import annotations

from typing import Final

PLAIN_BYTES_MAX = 10_000
"""Size up to which the exact number of bytes is written."""
UNIT_STEP = 1024
UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
NS_OF: Final = {"d": 86_400e9, "h": 3_600e9, "min": 60e9, "s": 1e9, "ms": 1e6, "µs": 1e3}


def size_text(size_bytes: int) -> str:
    """Return a size for a message: `1 byte`, `8190 bytes`, `12.5 KiB`, `4 GiB`; four significant digits."""
    if abs(size_bytes) < PLAIN_BYTES_MAX:
        return f"{size_bytes} byte{'' if size_bytes == 1 else 's'}"
    size, unit = size_bytes / UNIT_STEP, UNITS[0]
    for larger in UNITS[1:]:
        if abs(size) < UNIT_STEP:
            break
        size, unit = size / UNIT_STEP, larger
    # `.4g` alone would write a number of five digits with an exponent.
    digits = f"{size:.0f}" if abs(size) >= UNIT_STEP else f"{size:.4g}"
    return f"{digits} {unit}"


def duration_text(duration_ns: float) -> str:
    """Return a duration with three significant digits: `500 ns`, `290 ms`, `1.21 s`, `2.5 min`."""
    for unit, size_ns in NS_OF.items():
        if duration_ns >= size_ns:
            return f"{three_digits(duration_ns / size_ns)} {unit}"
    return f"{duration_ns:.0f} ns"


def three_digits(number: float) -> str:
    """Return a number with three significant digits, or all digits before the point: `1.21`, `1,210`."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"  # noqa: PLR2004 - three digits


def counted(count: float, noun: str) -> str:
    """Return a count with its noun: `1 span`, `2,000 spans`."""
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """Return a share as a percentage, precise where it is small: `0.04 %`, `1.9 %`, `38 %`."""
    hundredths = share * 100
    if not hundredths:
        return "0 %"
    if abs(hundredths) < 0.01:  # noqa: PLR2004 - the smallest percentage with two decimals
        return "< 0.01 %" if hundredths > 0 else "> −0.01 %"
    # Two digits, and no exponent for a hundred.
    text = f"{hundredths:.2g}" if abs(round(hundredths)) < 100 else f"{hundredths:.0f}"  # noqa: PLR2004 - per cent
    return f"{text} %".replace("-", "−")
