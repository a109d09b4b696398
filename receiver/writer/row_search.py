"""Binary search for the rows of a segment that the table refuses, largest range first. No store here.

Invariant: a row is reported as refused only if it was refused alone, or if the trials are used up. In that
case every refused range that was not searched further is reported completely. Splitting the largest range
first keeps those ranges small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from receiver.journal.segment_core import RowRange

TRIES_MAX = 500
"""Limit for one segment. Finding one bad row in 200,000 takes 36 trials; ten take about 300."""

Rows = tuple[RowRange, ...]
"""Row ranges in ascending order."""


@dataclass(slots=True)
class RowSearch:
    """Progress of the search in one segment."""

    reason: str
    """Error message of the INSERT that was refused."""
    code: int | None
    untried: deque[Rows]
    refused: deque[Rows] = field(default_factory=deque)
    """Refused ranges of more than one row, to be halved."""
    bad: list[Rows] = field(default_factory=list)
    tries: int = 0
    failures: int = 0
    """Trials that failed without a verdict on the rows."""

    @classmethod
    def among(cls, rows: Iterable[RowRange], *, reason: str, code: int | None) -> RowSearch:
        """Start a search in these rows."""
        return cls(reason, code, deque([tuple(rows)]))

    def advance(self, is_refused: Callable[[Rows], bool], tries_max: int) -> bool:
        """Make at most `tries_max` trials. Return whether the search is over.

        An exception from `is_refused` leaves the search unchanged, so the trial can be repeated.
        """
        for _ in range(tries_max):
            if not self.untried and self.refused:
                self.untried.extend(split_in_half(self.refused.popleft()))
            if not self.untried:
                return True
            if self.tries >= TRIES_MAX:
                self._give_up()
                return True
            self._try_next(is_refused)
        return not (self.untried or self.refused)

    def refused_rows(self) -> list[RowRange]:
        """Return the refused rows in ascending order, adjacent ranges merged."""
        return merge_adjacent(row_range for rows in self.bad for row_range in rows)

    def _try_next(self, is_refused: Callable[[Rows], bool]) -> None:
        rows = self.untried[0]
        if is_refused(rows):
            (self.refused if row_count(rows) > 1 else self.bad).append(rows)
        self.untried.popleft()
        self.tries += 1

    def _give_up(self) -> None:
        """Report all ranges that are still open. An untried half of a refused range may be the bad half."""
        self.bad += [*self.untried, *self.refused]
        self.untried.clear()
        self.refused.clear()


def row_count(rows: Iterable[RowRange]) -> int:
    """Return the number of rows in these ranges."""
    return sum(stop - first for first, stop in rows)


def split_in_half(rows: Rows) -> tuple[Rows, Rows]:
    """Split at the middle row. Needs at least two rows."""
    left = row_count(rows) // 2
    first: list[RowRange] = []
    second: list[RowRange] = []
    for start, stop in rows:
        cut = min(stop, start + left)
        left -= cut - start
        first += [(start, cut)] * (cut > start)
        second += [(cut, stop)] * (stop > cut)
    return tuple(first), tuple(second)


def merge_adjacent(rows: Iterable[RowRange]) -> list[RowRange]:
    """Sort ranges and join adjacent ones."""
    joined: list[RowRange] = []
    for first, stop in sorted(rows):
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((first, stop))
    return joined


def subtract(rows: Iterable[RowRange], left_out: Iterable[RowRange]) -> list[RowRange]:
    """Return `rows` minus `left_out`; both are in ascending order."""
    kept: list[RowRange] = []
    out = list(left_out)
    for first, stop in rows:
        at = first
        for start, end in out:
            if end <= at or start >= stop:
                continue
            if start > at:
                kept.append((at, start))
            at = min(end, stop)
        if at < stop:
            kept.append((at, stop))
    return kept


def shift_after_removal(rows: Iterable[RowRange], gone: Iterable[RowRange]) -> list[RowRange]:
    """Return the positions of `rows` after the rows in `gone` (disjoint from them) are removed."""
    out = list(gone)
    moved: list[RowRange] = []
    for first, stop in rows:
        back = row_count(removed for removed in out if removed[0] < first)
        moved.append((first - back, stop - back))
    return moved
