"""Which rows of a segment the table refuses: halves of what was refused, the largest first. No store here.

Keeps: a row is called bad only when it was refused alone, or when the tries were used up: then whatever was
refused and not looked into any further is bad as a whole. Largest first, so that this is as little as can be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from receiver.journal.segment_core import RowRange

TRIES_MAX = 500
"""Trials of one segment. One bad row in 200,000 takes 36; ten take some 300."""

Rows = tuple[RowRange, ...]
"""Ascending."""


@dataclass(slots=True)
class RowSearch:
    """How far it has come."""

    reason: str
    """What the store said of the whole."""
    code: int | None
    untried: deque[Rows]
    refused: deque[Rows] = field(default_factory=deque)
    """Of more than one row, to be halved."""
    bad: list[Rows] = field(default_factory=list)
    tries: int = 0
    failures: int = 0
    """Trials that said nothing."""

    @classmethod
    def among(cls, rows: Iterable[RowRange], *, reason: str, code: int | None) -> RowSearch:
        """Begin with all that may be at fault."""
        return cls(reason, code, deque([tuple(rows)]))

    def go_on(self, is_refused: Callable[[Rows], bool], tries_max: int) -> bool:
        """Make at most so many trials. Whether it is over; what `is_refused` raises changes nothing."""
        for _ in range(tries_max):
            if not self.untried and self.refused:
                self.untried.extend(halves_of(self.refused.popleft()))
            if not self.untried:
                return True
            if self.tries >= TRIES_MAX:
                self._give_up()
                return True
            self._try_next(is_refused)
        return not (self.untried or self.refused)

    def found(self) -> list[RowRange]:
        """The bad rows, ascending, neighbours in one range."""
        return merged(one for rows in self.bad for one in rows)

    def _try_next(self, is_refused: Callable[[Rows], bool]) -> None:
        rows = self.untried[0]
        if is_refused(rows):
            (self.refused if count_of(rows) > 1 else self.bad).append(rows)
        self.untried.popleft()
        self.tries += 1

    def _give_up(self) -> None:
        """Half of a refused range is untried: it may be the bad half."""
        self.bad += [*self.untried, *self.refused]
        self.untried.clear()
        self.refused.clear()


def count_of(rows: Iterable[RowRange]) -> int:
    """How many they are."""
    return sum(behind - first for first, behind in rows)


def halves_of(rows: Rows) -> tuple[Rows, Rows]:
    """Cut in the middle, of two rows at least."""
    left = count_of(rows) // 2
    first: list[RowRange] = []
    second: list[RowRange] = []
    for start, behind in rows:
        cut = min(behind, start + left)
        left -= cut - start
        first += [(start, cut)] * (cut > start)
        second += [(cut, behind)] * (behind > cut)
    return tuple(first), tuple(second)


def merged(rows: Iterable[RowRange]) -> list[RowRange]:
    """In order, with neighbours joined."""
    joined: list[RowRange] = []
    for first, behind in sorted(rows):
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], behind)
        else:
            joined.append((first, behind))
    return joined


def without(rows: Iterable[RowRange], left_out: Iterable[RowRange]) -> list[RowRange]:
    """What stays of some rows, both ascending."""
    kept: list[RowRange] = []
    out = list(left_out)
    for first, behind in rows:
        at = first
        for start, end in out:
            if end <= at or start >= behind:
                continue
            if start > at:
                kept.append((at, start))
            at = min(end, behind)
        if at < behind:
            kept.append((at, behind))
    return kept


def shifted(rows: Iterable[RowRange], gone: Iterable[RowRange]) -> list[RowRange]:
    """Where rows lie once others, which are none of them, are gone."""
    out = list(gone)
    moved: list[RowRange] = []
    for first, behind in rows:
        back = count_of(one for one in out if one[0] < first)
        moved.append((first - back, behind - back))
    return moved
