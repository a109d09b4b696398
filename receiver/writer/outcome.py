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
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import NamedTuple

from receiver.engine.store import DayRows
from receiver.journal.segment_core import DayRun

CLOCK_MARGIN_S = 3_600.0
"""How far the store's clock may be ahead of ours when it decides what has expired."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def due_days(days: Iterable[str], *, now_s: float, retention_days: int) -> set[str]:
    """Choose the days whose rows must be in the table: those that cannot have begun to expire."""
    if not retention_days:
        return set(days)
    oldest = _EPOCH + timedelta(seconds=now_s + CLOCK_MARGIN_S) - timedelta(days=retention_days)
    return {day for day in days if datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC) > oldest}


def judge(rows: DayRows, counted: DayRows, *, due: AbstractSet[str], answered: AbstractSet[str]) -> Finding:
    """Compare what the segment holds with what was counted.

    `answered`: days whose INSERT answered plainly OK. It is all there is to know of a day that is not due.
    """
    odd = tuple(day for day in rows if counted.get(day, 0) > rows[day])
    odd += tuple(day for day in rows if day in due and 0 < counted.get(day, 0) < rows[day])
    if odd:
        return Finding(Found.ODD, odd)
    missing = tuple(day for day in rows if not counted.get(day, 0) and (day in due or day not in answered))
    if not missing:
        return Finding(Found.COMPLETE)
    return Finding(Found.MISSING if any(counted.values()) else Found.NOTHING, missing)
