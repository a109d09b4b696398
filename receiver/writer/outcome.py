"""Outcome of an INSERT, derived from the row counts per day. This module does not access the store.

    all due rows are stored       COMPLETE       delete the segment
    no row is stored              NOTHING        retry with the same token, or with the next one after an OK
    whole days are missing        MISSING        insert only those days
    anything else                 INCONSISTENT   needs an operator

A day is a partition, and an INSERT writes one part per partition, so a day is stored completely or not at
all. In a cluster this is true of each day of each shard, so "day" means the day of a shard here. A day is due
if none of its rows can have expired: an expired row may be missing although it was inserted.
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
"""Tolerated lead of the store's clock, which expires rows, over the receiver's clock."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Completeness(Enum):
    """Whether the store holds all, none or some of a segment's rows."""

    COMPLETE = auto()
    NOTHING = auto()
    MISSING = auto()
    INCONSISTENT = auto()


class Comparison(NamedTuple):
    """Completeness of a segment in the store, and the days that are missing or inconsistent."""

    completeness: Completeness
    days: tuple[str, ...] = ()
    """Days that are missing or inconsistent."""


def partition_id(day: int, shard: int) -> str:
    """Return the name of a day, see `DayRows`. `shard`: 0 without a cluster."""
    name = (_EPOCH + timedelta(days=day)).strftime("%Y%m%d")
    return f"{shard}/{name}" if shard else name


def rows_by_day(runs: Iterable[DayRun]) -> Counter[str]:
    """Count the rows of a segment by partition id."""
    rows: Counter[str] = Counter()
    for first, end, day, shard in runs:
        rows[partition_id(day, shard)] += end - first
    return rows


def due_days(days: Iterable[str], *, now_s: float, retention_days: int) -> set[str]:
    """Return the days whose rows must be in the table, because none of them can have expired."""
    if not retention_days:
        return set(days)
    oldest = _EPOCH + timedelta(seconds=now_s + CLOCK_MARGIN_S) - timedelta(days=retention_days)
    return {
        day
        for day in days
        if datetime.strptime(day.rpartition("/")[2], "%Y%m%d").replace(tzinfo=UTC) > oldest
    }


def judge(
    rows: DayRows, counted: DayRows, *, due: AbstractSet[str], answered: AbstractSet[str]
) -> Comparison:
    """Compare the rows of a segment with the rows counted in the store.

    `answered`: days whose INSERT returned OK. For a day that is not due this is the only evidence.
    """
    # More rows than expected are wrong even on a day that is not due: expiry only removes rows.
    inconsistent = tuple(day for day in counted if counted[day] > rows.get(day, 0))
    inconsistent += tuple(day for day in rows if day in due and 0 < counted.get(day, 0) < rows[day])
    if inconsistent:
        return Comparison(Completeness.INCONSISTENT, inconsistent)
    missing = tuple(day for day in rows if not counted.get(day, 0) and (day in due or day not in answered))
    if not missing:
        return Comparison(Completeness.COMPLETE)
    return Comparison(Completeness.MISSING if any(counted.values()) else Completeness.NOTHING, missing)
