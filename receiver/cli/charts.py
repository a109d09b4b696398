"""Charts of block characters, or of ASCII characters where the terminal's encoding lacks the blocks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from math import gcd
from typing import Any, Final

_HEIGHTS: Final = ("▁▂▃▄▅▆▇█", "_.-~=+*#")
_SHADES: Final = ("░▒▓█", ".:+#")


def sparkline(values: Sequence[float]) -> str:
    """Return a character for each value, as high as its share of the largest value. A zero is a space."""
    marks, largest = _printable(_HEIGHTS), max(values, default=0)
    return "".join(
        marks[min(len(marks) - 1, int(value / largest * len(marks)))] if value else " " for value in values
    )


def shade(count: int, largest: int) -> str:
    """Return a character that is darker for a larger count, in steps of equal ratios. A zero is a space."""
    marks = _printable(_SHADES)
    if not count:
        return " "
    # whole numbers: each shade begins at a power of the largest count
    return marks[sum(count ** len(marks) >= largest**step for step in range(1, len(marks)))]


def parts(length: int, parts_max: int) -> list[slice]:
    """Divide a sequence into slices of equal length, at most `parts_max`; the last one may be shorter."""
    size = -(-length // parts_max)
    return [slice(begin, begin + size) for begin in range(0, length, max(1, size))]


def starts_of(rows: Sequence[dict[str, Any]]) -> list[int]:
    """Return the starts of all intervals from the first row to the last, in seconds since 1970.

    The answer has no row for an interval without spans. The starts of the others are whole intervals apart.
    """
    starts = sorted({epoch_s(row["start"]) for row in rows})
    step_s = gcd(*[later - earlier for earlier, later in pairwise(starts)])
    return list(range(starts[0], starts[-1] + 1, step_s)) if step_s else starts


def epoch_s(start: str) -> int:
    """Parse the start of an interval."""
    return int(datetime.fromisoformat(start).timestamp())


def time_axis(starts: Sequence[int]) -> str:
    """Return a line that says which time a chart covers."""
    first, last = (
        f"{datetime.fromtimestamp(start, UTC):%Y-%m-%d %H:%M:%S}" for start in (starts[0], starts[-1])
    )
    return f"time: intervals from {first} to {last} (UTC)"


def _printable(choices: tuple[str, str]) -> str:
    """Return the first of the choices that standard output can encode; the last one is ASCII."""
    for choice in choices[:-1]:
        with suppress(UnicodeEncodeError, LookupError):
            # standard output is None if it is closed
            choice.encode(getattr(sys.stdout, "encoding", None) or "ascii")
            return choice
    return choices[-1]
