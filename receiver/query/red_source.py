"""Rate, errors and durations of a time range as a table expression: rollups where proven, else the spans.

    source = red_source(store, Wanted(from_ns, to_ns))
    rows = store.rows(f"SELECT ServiceName, sum(Spans) FROM {source.sql} GROUP BY 1", source.parameters)
    if not source.is_unchanged(store): repeat, or ask the spans

The expression has the columns of the rollup: Hour, the keys, and the measures, which a query has to add up
(`sum`, `max`, `sumMap`), because each span that no slot covers is a row of its own. Rows of a rollup are read
by their version, and their number was proven, so FINAL is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from receiver.engine.store import TABLE, Parameters, Store
from receiver.errors import StoreTrouble
from receiver.rollup.proof import Day
from receiver.rollup.proofs import Parts, is_unchanged, proven
from receiver.rollup.ranges import Range, Values, condition, runs
from receiver.rollup.slots import Slot
from receiver.rollup.tables import HOUR, HOUR_NS, HOUR_S, HOURS_OF_DAY, MEASURES, OPERATIONS, Rollup

RANGES_MAX = 200
"""Ranges of spans that a statement reads beside the slots."""
NO_TABLE = 60
"""ClickHouse's UNKNOWN_TABLE: the rollups were dropped."""


class Wanted(NamedTuple):
    """What a query reads."""

    from_ns: int = 0
    to_ns: int = 0
    rollup: Rollup = OPERATIONS
    condition: str = "1"
    """Condition on the keys of the rollup."""
    parameters: Mapping[str, str | int] = {}
    """Parameters of the condition."""
    measures: tuple[str, ...] = tuple(MEASURES)
    by_hour: bool = False
    """Whether the query tells the hours of a day apart."""


class Covered(NamedTuple):
    """The rows of a rollup that a source reads."""

    slots: Mapping[int, Slot] = {}
    """Hours since 1970 → slot, also of the hours that are read as a day."""
    days: Mapping[int, int] = {}
    """Days since 1970 that are read as a day → version of the rows."""
    is_mixed: bool = False
    """Whether the rollup has rows of other versions."""

    @property
    def hours(self) -> dict[int, int]:
        """Return the hours that are not read as a day, and the version of their rows."""
        return {
            hour: slot.version
            for hour, slot in sorted(self.slots.items())
            if hour // HOURS_OF_DAY not in self.days
        }


class RedSource(NamedTuple):
    """A table expression, its parameters, and the slots that it reads."""

    sql: str
    parameters: Parameters
    wanted: Wanted
    covered: Covered = Covered()
    parts: Parts = frozenset()
    """Parts of the rollup before the proof."""

    @property
    def slots(self) -> Mapping[int, Slot]:
        """Return the slots that the source reads."""
        return self.covered.slots

    def is_unchanged(self, store: Store) -> bool:
        """Return whether the rollup still has the rows that were proven. Call it after the last row."""
        if not self.slots or is_unchanged(store, self.wanted.rollup, self.parts):
            return True
        # A merge changes parts, but no rows. Versions are never used again, so rows that are proven again
        # with the same versions were there all the time.
        again = red_source(store, self.wanted).covered
        versions = (self.covered.hours, self.covered.days, self.covered.is_mixed)
        return versions == (again.hours, again.days, again.is_mixed)


def raw_source(wanted: Wanted) -> RedSource:
    """Return the expression over the spans alone."""
    return _source(wanted, Covered(), [Range(wanted.from_ns, wanted.to_ns)])


def red_source(store: Store, wanted: Wanted) -> RedSource:
    """Return the expression over the rollup, and over the spans that it does not provably cover."""
    try:
        days, parts = _proven_days(store, wanted)
    except StoreTrouble as trouble:
        # An operator may drop the rollups at any time; the spans have every answer.
        if trouble.code != NO_TABLE:
            raise
        return raw_source(wanted)
    from_ns, to_ns = wanted.from_ns, wanted.to_ns
    used = {
        hour: slot
        for day in days
        for hour, slot in day.slots.items()
        if from_ns <= hour * HOUR_NS and (hour + 1) * HOUR_NS <= to_ns
    }
    late = {hour for day in days for hour in day.late if hour in used}
    ranges = [
        *_uncovered(used, from_ns, to_ns),
        *(Range(hour * HOUR_NS, (hour + 1) * HOUR_NS, used[hour].received_to_ms) for hour in sorted(late)),
    ]
    # With so many gaps the rollup saves little, and each range makes the statement longer.
    if len(ranges) > RANGES_MAX:
        return raw_source(wanted)
    return _source(wanted, _covered(days, used, wanted), ranges)._replace(parts=parts)


def _proven_days(store: Store, wanted: Wanted) -> tuple[list[Day], Parts]:
    """Return the days whose slots provably equal the spans, and the parts of the rollup."""
    # Rounded inwards: an hour that is partly in the range is always read from its spans.
    first_hour, end_hour = -(-wanted.from_ns // HOUR_NS), wanted.to_ns // HOUR_NS
    if first_hour >= end_hour:
        return [], frozenset()
    # Whole days, because the proof compares with the rows of whole days.
    return proven(store, wanted.rollup, first_hour // HOURS_OF_DAY, (end_hour - 1) // HOURS_OF_DAY)


def _covered(days: Sequence[Day], used: dict[int, Slot], wanted: Wanted) -> Covered:
    versions = {
        day.number: version
        for day in days
        if not wanted.by_hour
        and day.hours.start in used
        and day.hours.stop - 1 in used
        and (version := day.version_of_rows(wanted.rollup)) is not None
    }
    is_mixed = any(
        day.has_other_versions or day.has_other_versions_than(wanted.rollup, versions.get(day.number))
        for day in days
    )
    return Covered(used, versions, is_mixed)


def _uncovered(used: dict[int, Slot], from_ns: int, to_ns: int) -> list[Range]:
    """Return the parts of the range that no slot covers."""
    ranges, at_ns = [], from_ns
    for first, end in runs(sorted(used)):
        if at_ns < first * HOUR_NS:
            ranges.append(Range(at_ns, first * HOUR_NS))
        at_ns = end * HOUR_NS
    if at_ns < to_ns:
        ranges.append(Range(at_ns, to_ns))
    return ranges


def _source(wanted: Wanted, covered: Covered, ranges: Sequence[Range]) -> RedSource:
    rollup = wanted.rollup
    values: Values = {**wanted.parameters}
    selects = []
    if ranges:
        measures = ", ".join(f"{MEASURES[name].of_span} AS {name}" for name in wanted.measures)
        selects.append(
            f"SELECT toDateTime({HOUR} * {HOUR_S}, 'UTC') AS Hour, {rollup.keys_of_span}, {measures} "  # noqa: S608 - constants
            f"FROM {TABLE} WHERE {condition(ranges, values)} AND {rollup.condition} AND ({wanted.condition})"
        )
    by_day = {number * HOURS_OF_DAY: version for number, version in sorted(covered.days.items())}
    for table, versions, length in (
        (rollup.table, covered.hours, 1),
        (rollup.day_table, by_day, HOURS_OF_DAY),
    ):
        if versions:
            of_slots = _versions(table, versions, length, values, is_mixed=covered.is_mixed)
            selects.append(
                f"SELECT Hour, {', '.join(rollup.keys)}, {', '.join(wanted.measures)} "  # noqa: S608 - as above
                f"FROM {table} WHERE {of_slots} AND ({wanted.condition})"
            )
    return RedSource(f"({' UNION ALL '.join(selects)})", values, wanted, covered)


def _versions(table: str, versions: Mapping[int, int], length: int, values: Values, *, is_mixed: bool) -> str:
    """Return the condition for the rows of these versions, and add its parameters.

    `versions`: first hour of the row → version. `length`: hours that a row covers.
    """
    alternatives = []
    for place, (first, end) in enumerate(runs(_hours(versions, length))):
        values |= {f"{table}_from{place}": first * HOUR_S, f"{table}_to{place}": end * HOUR_S}
        alternatives.append(
            f"(Hour >= toDateTime({{{table}_from{place}:UInt32}}, 'UTC') "
            f"AND Hour < toDateTime({{{table}_to{place}:UInt32}}, 'UTC'))"
        )
    text = f"({' OR '.join(alternatives)})"
    # Without other versions, the condition would only cost time: the proof has seen all rows.
    if not is_mixed:
        return text
    values |= {f"{table}_hours": list(versions), f"{table}_versions": list(versions.values())}
    return (
        f"{text} AND Version = transform(toInt64(intDiv(toUnixTimestamp(Hour), {HOUR_S})), "
        f"{{{table}_hours:Array(Int64)}}, {{{table}_versions:Array(UInt64)}}, toUInt64(0))"
    )


def _hours(firsts: Iterable[int], length: int) -> Iterable[int]:
    return (hour for first in firsts for hour in range(first, first + length))
