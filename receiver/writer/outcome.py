"""Outcome of an INSERT, derived from row counts per day alone. Pure functions; no store here.

    all due rows are stored       COMPLETE       delete the segment
    no row is stored              NOTHING        retry with the same token, or with the next one after an OK
    whole days are missing        MISSING        insert only those days
    anything else                 INCONSISTENT   needs an operator

A day is a partition, and an INSERT writes one part per partition, so a day is stored wholly or not at all.
Only days whose rows cannot have expired are due: an expired row may be missing although it was inserted.
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
"""How far the store's clock may be ahead of the receiver's when it expires rows."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Completeness(Enum):
    """How many rows of a segment the store holds."""

    COMPLETE = auto()
    NOTHING = auto()
    MISSING = auto()
    INCONSISTENT = auto()


class Comparison(NamedTuple):
    """Completeness of a segment in the store, and the days concerned."""

    completeness: Completeness
    days: tuple[str, ...] = ()
    """The missing days, or the inconsistent ones."""


def partition_id(day: int) -> str:
    """Return the table's partition id of a day since 1970."""
    return (_EPOCH + timedelta(days=day)).strftime("%Y%m%d")


def rows_by_day(runs: Iterable[DayRun]) -> DayRows:
    """Count the rows of a segment by partition id."""
    rows: Counter[str] = Counter()
    for first, end, day in runs:
        rows[partition_id(day)] += end - first
    return rows


def due_days(days: Iterable[str], *, now_s: float, retention_days: int) -> set[str]:
    """Return the days whose rows must be in the table, because none of them can have expired."""
    if not retention_days:
        return set(days)
    oldest = _EPOCH + timedelta(seconds=now_s + CLOCK_MARGIN_S) - timedelta(days=retention_days)
    return {day for day in days if datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC) > oldest}


def judge(
    rows: DayRows, counted: DayRows, *, due: AbstractSet[str], answered: AbstractSet[str]
) -> Comparison:
    """Compare the rows of a segment with the rows counted in the store.

    `answered`: days whose INSERT returned OK. For a day that is not due this is the only evidence.
    """
    inconsistent = tuple(day for day in rows if counted.get(day, 0) > rows[day])
    inconsistent += tuple(day for day in rows if day in due and 0 < counted.get(day, 0) < rows[day])
    if inconsistent:
        return Comparison(Completeness.INCONSISTENT, inconsistent)
    missing = tuple(day for day in rows if not counted.get(day, 0) and (day in due or day not in answered))
    if not missing:
        return Comparison(Completeness.COMPLETE)
    return Comparison(Completeness.MISSING if any(counted.values()) else Completeness.NOTHING, missing)
