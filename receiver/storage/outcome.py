"""What became of an INSERT, told from counts alone: the rule "trust, but count", without a store.

    all due rows are there       COMPLETE   let go of the segment
    not one row is there         NOTHING    the same token again; the next one after a plain OK
    whole days are missing       MISSING    insert those days alone
    anything between             ODD        a human must look

A day is a partition, and a partition of one INSERT is one part: there whole or not at all. Only days whose
rows cannot have expired are due: an expired row is gone at once, so its absence says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import NamedTuple

from receiver.storage.store import DayRows

CLOCK_MARGIN_S = 3_600.0
"""How far the store's clock may be ahead of ours when it decides what has expired."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

DayRun = tuple[int, int, int]
"""First row, row after the last, day since 1970: rows of a segment that lie together and share a day."""


class Found(Enum):
    """What the counts say."""

    COMPLETE = auto()
    NOTHING = auto()
    MISSING = auto()
    ODD = auto()


class Finding(NamedTuple):
    """What the counts say, and about which days."""

    found: Found
    days: tuple[str, ...] = ()
    """The missing days, or the odd ones."""


def spelled(day: int) -> str:
    """Spell a day as the table's partition id does."""
    return (_EPOCH + timedelta(days=day)).strftime("%Y%m%d")


def rows_by_day(runs: Iterable[DayRun]) -> DayRows:
    """Count what the segment holds."""
    rows: Counter[str] = Counter()
    for first, end, day in runs:
        rows[spelled(day)] += end - first
    return rows


def due(runs: Iterable[DayRun], *, now_s: float, retention_days: int) -> DayRows:
    """Count the rows that must be in the table: those of days that cannot have begun to expire."""
    runs = list(runs)
    if not retention_days:
        return rows_by_day(runs)
    oldest_s = now_s + CLOCK_MARGIN_S - retention_days * 86_400
    return rows_by_day(run for run in runs if run[2] * 86_400 > oldest_s)


def judge(due_rows: DayRows, counted: DayRows) -> Finding:
    """Compare what must be there with what is."""
    odd = tuple(day for day, rows in due_rows.items() if counted.get(day, 0) not in {0, rows})
    if odd:
        return Finding(Found.ODD, odd)
    missing = tuple(day for day in due_rows if not counted.get(day, 0))
    if not missing:
        return Finding(Found.COMPLETE)
    if not sum(counted.values()):
        return Finding(Found.NOTHING, missing)
    return Finding(Found.MISSING, missing)
