"""Charts of block characters, or of ASCII characters where the terminal's encoding lacks the blocks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from receiver.sizes import counted
from receiver.time_range import instant_text

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


def starts_of(rows: Sequence[dict[str, Any]], every_s: int) -> range:
    """Return the starts of all intervals from the first row to the last, in seconds since 1970.

    The result has no row for an interval without spans.
    """
    starts = [epoch_s(row["start"]) for row in rows]
    return range(min(starts), max(starts) + 1, every_s)


def epoch_s(start: str) -> int:
    """Parse the start of an interval."""
    return int(datetime.fromisoformat(start).timestamp())


def time_axis(starts: range, rows: Iterable[dict[str, Any]]) -> str:
    """Return a line that says which time a chart covers, and which intervals are only partly in the range."""
    edges = starts[0], starts[-1] + starts.step
    first, end = (instant_text(edge, sep=" ", zone="") for edge in edges)
    intervals = f"{counted(len(starts), 'interval')} of {_age_text(starts.step)}"
    partial = {epoch_s(row["start"]) for row in rows if not row["complete"]}
    edges_cut = [name for name, start in (("first", starts[0]), ("last", starts[-1])) if start in partial]
    verb = "s are" if len(edges_cut) > 1 else " is"
    note = f"; the {' and '.join(edges_cut)} interval{verb} incomplete" if edges_cut else ""
    return f"time: {intervals}, from {first} to {end} (UTC){note}"


def _age_text(seconds: int) -> str:
    """Return the length of an interval as `--every` takes it."""
    for unit, unit_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds % unit_s == 0:
            return f"{seconds // unit_s}{unit}"
    return f"{seconds}s"


def _printable(choices: tuple[str, str]) -> str:
    """Return the first of the choices that standard output can encode; the last one is ASCII."""
    for choice in choices[:-1]:
        with suppress(UnicodeEncodeError, LookupError):
            # standard output is None if it is closed
            choice.encode(getattr(sys.stdout, "encoding", None) or "ascii")
            return choice
    return choices[-1]
