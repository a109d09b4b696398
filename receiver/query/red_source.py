"""Rate, errors and durations of a time range as a table expression: rollups where proven, else the spans.

    source = red_source(store, from_ns, to_ns)
    rows = store.rows(f"SELECT ServiceName, sum(Spans) FROM {source.sql} GROUP BY 1", source.parameters)
    if not source.is_unchanged(store): repeat with `raw_source`

The expression has the columns of the rollup: Hour, the keys, and the measures, which a query has to add up
(`sum`, `max`, `sumMap`), because each span that no slot covers is a row of its own. Rows of a rollup are read
by their version, and their number was proven, so FINAL is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from receiver.engine.store import TABLE, Parameters, Store
from receiver.errors import StoreTrouble
from receiver.rollup.proof import Day, observe, table_id
from receiver.rollup.ranges import Range, Values, condition, runs, uncovered
from receiver.rollup.slots import Slot, read_slots
from receiver.rollup.tables import HOUR, HOUR_NS, HOUR_S, HOURS_OF_DAY, MEASURES, ROLLUPS, Rollup

RANGES_MAX = 200
"""Ranges of spans that a statement reads beside the slots."""
NO_TABLE = 60
"""ClickHouse's UNKNOWN_TABLE: the rollups were dropped."""


class RedSource(NamedTuple):
    """A table expression, its parameters, and the slots that it reads."""

    sql: str
    parameters: Parameters
    slots: dict[int, Slot]

    def is_unchanged(self, store: Store) -> bool:
        """Return whether the slots are still those that the query read. Call it after the last row."""
        if not self.slots:
            return True
        now = read_slots(store, min(self.slots), max(self.slots) + 1)
        return all(hour in now and now[hour].version == slot.version for hour, slot in self.slots.items())


def raw_source(from_ns: int, to_ns: int, rollup: Rollup = ROLLUPS[0]) -> RedSource:
    """Return the expression over the spans alone."""
    return _source(rollup, {}, [Range(from_ns, to_ns)])


def red_source(store: Store, from_ns: int, to_ns: int, rollup: Rollup = ROLLUPS[0]) -> RedSource:
    """Return the expression over the rollup, and over the spans that it does not provably cover."""
    try:
        # Rounded inwards: an hour that is partly in the range is always read from its spans.
        days = _proven_days(store, -(-from_ns // HOUR_NS), to_ns // HOUR_NS, rollup)
    except StoreTrouble as trouble:
        # An operator may drop the rollups at any time; the spans have every answer.
        if trouble.code != NO_TABLE:
            raise
        days = []
    used = {
        hour: slot
        for day in days
        for hour, slot in day.slots.items()
        if from_ns <= hour * HOUR_NS and (hour + 1) * HOUR_NS <= to_ns
    }
    late = {hour for day in days for hour in day.late if hour in used}
    ranges = [
        *uncovered(used, from_ns, to_ns),
        *(Range(hour * HOUR_NS, (hour + 1) * HOUR_NS, used[hour].received_to_ms) for hour in sorted(late)),
    ]
    # With so many gaps the rollup saves little, and each range makes the statement longer.
    if len(ranges) > RANGES_MAX:
        return raw_source(from_ns, to_ns, rollup)
    return _source(rollup, used, ranges, is_mixed=any(day.has_other_versions for day in days))


def _proven_days(store: Store, first_hour: int, end_hour: int, rollup: Rollup) -> list[Day]:
    """Return the days whose slots provably equal the spans."""
    if first_hour >= end_hour:
        return []
    first_day, last_day = first_hour // HOURS_OF_DAY, (end_hour - 1) // HOURS_OF_DAY
    # Whole days, because the proof compares with the rows of whole days.
    slots = read_slots(store, first_day * HOURS_OF_DAY, (last_day + 1) * HOURS_OF_DAY)
    # The proof costs a statement, which a short range without a slot can save.
    if not any(first_hour <= hour < end_hour for hour in slots) or not (table := table_id(store)):
        return []
    numbers = {hour // HOURS_OF_DAY for hour in slots}
    days = observe(store, table, slots, numbers, (rollup.table,))
    return [day for day in days if day.is_balanced and not day.differing((rollup.table,))]


def _source(
    rollup: Rollup, used: dict[int, Slot], ranges: Sequence[Range], *, is_mixed: bool = False
) -> RedSource:
    """Return the expression. `is_mixed`: whether the rollup has rows of other versions than the slots'."""
    values: Values = {}
    selects = []
    keys = ", ".join(rollup.keys)
    if ranges:
        conditions = [condition(ranges, values), *filter(None, [rollup.condition])]
        measures = ", ".join(f"{measure.single} AS {name}" for name, measure in MEASURES.items())
        selects.append(
            f"SELECT toDateTime({HOUR} * {HOUR_S}, 'UTC') AS Hour, {keys}, {measures} "  # noqa: S608 - constants
            f"FROM {TABLE} WHERE {' AND '.join(conditions)}"
        )
    if used:
        condition_of_slots = _slot_condition(used, values, is_mixed=is_mixed)
        selects.append(
            f"SELECT Hour, {keys}, {', '.join(MEASURES)} "  # noqa: S608 - as above
            f"FROM {rollup.table} WHERE {condition_of_slots}"
        )
    return RedSource(f"({' UNION ALL '.join(selects)})", values, used)


def _slot_condition(used: dict[int, Slot], values: Values, *, is_mixed: bool) -> str:
    """Return the condition for the rows of these slots, and add its parameters."""
    alternatives = []
    for place, (first, end) in enumerate(runs(sorted(used))):
        values |= {f"slots_from{place}": first * HOUR_S, f"slots_to{place}": end * HOUR_S}
        alternatives.append(
            f"(Hour >= toDateTime({{slots_from{place}:UInt32}}, 'UTC') "
            f"AND Hour < toDateTime({{slots_to{place}:UInt32}}, 'UTC'))"
        )
    text = f"({' OR '.join(alternatives)})"
    # Without other versions, the condition would only cost time: the proof has seen all rows.
    if not is_mixed:
        return text
    values |= {
        "slot_hours": list(used),
        "slot_versions": [slot.version for slot in used.values()],
    }
    return (
        f"{text} AND Version = transform(toInt64(intDiv(toUnixTimestamp(Hour), {HOUR_S})), "
        "{slot_hours:Array(Int64)}, {slot_versions:Array(UInt64)}, toUInt64(0))"
    )
