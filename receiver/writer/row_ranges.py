"""Arithmetic of row ranges. A range is its first row and the row after its last row."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from receiver.journal.frame import Answered
from receiver.journal.segment_core import RowRange

Rows = tuple[RowRange, ...]
"""Row ranges in ascending order."""


def row_count(rows: Iterable[RowRange]) -> int:
    """Return the number of rows in these ranges."""
    return sum(stop - first for first, stop in rows)


def positions(deliveries: Iterable[Answered]) -> list[RowRange]:
    """Return the rows of each delivery. They are contiguous, in the order of the deliveries."""
    stops = [*accumulate(delivery.rows for delivery in deliveries)]
    return [*zip([0, *stops], stops, strict=False)]


def split_in_half(rows: Rows) -> tuple[Rows, Rows]:
    """Split the rows into two halves. Requires at least two rows."""
    left = row_count(rows) // 2
    first: list[RowRange] = []
    second: list[RowRange] = []
    for start, stop in rows:
        cut = min(stop, start + left)
        left -= cut - start
        first += [(start, cut)] * (cut > start)
        second += [(cut, stop)] * (stop > cut)
    return tuple(first), tuple(second)


def merge_adjacent(rows: Iterable[RowRange]) -> Rows:
    """Sort ranges and join adjacent ranges."""
    joined: list[RowRange] = []
    for first, stop in sorted(rows):
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((first, stop))
    return tuple(joined)


def intersect(rows: Iterable[RowRange], others: Iterable[RowRange]) -> Rows:
    """Return the rows that are in both arguments, each of which must be in ascending order."""
    common: list[RowRange] = []
    left, right = list(rows), list(others)
    at = other = 0
    while at < len(left) and other < len(right):
        first, stop = max(left[at][0], right[other][0]), min(left[at][1], right[other][1])
        if first < stop:
            common.append((first, stop))
        if left[at][1] < right[other][1]:
            at += 1
        else:
            other += 1
    return tuple(common)
