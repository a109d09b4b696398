"""Hours of a time range that the rollups of attributes answer, and the spans that are read beside them.

The parts of the spans' table prove that the slots of a day equal its spans. The total row of an hour proves
that the rows of a rollup of attributes are complete: see `receiver/rollup/attributes.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from receiver.query.red_source import NO_TABLE, RANGES_MAX
from receiver.rollup.proof import Day, observe, table_id
from receiver.rollup.ranges import Range, Values, uncovered
from receiver.rollup.slots import Slot, read_slots
from receiver.rollup.tables import HOUR_NS, HOUR_S, HOURS_OF_DAY


class Hours(NamedTuple):
    """A time range, and its hours that a rollup answers."""

    from_ns: int
    to_ns: int
    slots: Mapping[int, Slot] = {}
    """Hour, in hours since 1970 → its slot."""
    late: frozenset[int] = frozenset()
    """Hours of the slots that also have late spans."""

    def only(self, hours: Iterable[int]) -> Hours:
        """Return the same with only these of the slots."""
        kept = self._replace(slots={hour: self.slots[hour] for hour in hours})
        # With so many gaps the rollup saves little, and each range makes the statement longer.
        return kept if len(kept.of_spans()) <= RANGES_MAX else self.only(())

    def of_spans(self) -> list[Range]:
        """Return the spans to read beside the rollup."""
        late = (hour for hour in sorted(self.slots) if hour in self.late)
        return [
            *uncovered(self.slots, self.from_ns, self.to_ns),
            *(Range(hour * HOUR_NS, (hour + 1) * HOUR_NS, self.slots[hour].received_to_ms) for hour in late),
        ]

    def of_rollup(self, values: Values, name: str) -> str:
        """Return the condition for the rows of the slots, and add its parameters, named `name…`."""
        values |= {
            f"{name}_from_s": min(self.slots) * HOUR_S,
            f"{name}_to_s": (max(self.slots) + 1) * HOUR_S,
            f"{name}_hours": list(self.slots),
            f"{name}_versions": [slot.version for slot in self.slots.values()],
        }
        return (
            f"Hour >= toDateTime({{{name}_from_s:UInt32}}, 'UTC') "
            f"AND Hour < toDateTime({{{name}_to_s:UInt32}}, 'UTC') "
            f"AND Version = transform(toInt64(intDiv(toUnixTimestamp(Hour), {HOUR_S})), "
            f"{{{name}_hours:Array(Int64)}}, {{{name}_versions:Array(UInt64)}}, toUInt64(0))"
        )

    def are_unchanged(self, store: Store) -> bool:
        """Return whether the slots are still those that the query read. Call it after the last row."""
        now = read_slots(store, min(self.slots), max(self.slots) + 1)
        return all(hour in now and now[hour].version == slot.version for hour, slot in self.slots.items())


def proven_hours(store: Store, from_ns: int, to_ns: int) -> Hours:
    """Return the range with the slots that provably equal their spans."""
    # Rounded inwards: an hour that is partly in the range is always read from its spans.
    first, end = -(-from_ns // HOUR_NS), to_ns // HOUR_NS
    try:
        days = _proven_days(store, first, end)
    except StoreTrouble as trouble:
        # An operator may drop the rollups at any time; the spans have every answer.
        if trouble.code != NO_TABLE:
            raise
        days = []
    slots = {hour: slot for day in days for hour, slot in day.slots.items() if first <= hour < end}
    return Hours(from_ns, to_ns, slots, frozenset(hour for day in days for hour in day.late))


def _proven_days(store: Store, first: int, end: int) -> list[Day]:
    if first >= end:
        return []
    # Whole days, because the proof compares with the rows of whole days.
    first_day, last_day = first // HOURS_OF_DAY, (end - 1) // HOURS_OF_DAY
    slots = read_slots(store, first_day * HOURS_OF_DAY, (last_day + 1) * HOURS_OF_DAY)
    # The proof costs a statement, which a short range without a slot can save.
    if not any(first <= hour < end for hour in slots) or not (table := table_id(store)):
        return []
    days = observe(store, table, slots, {hour // HOURS_OF_DAY for hour in slots}, ())
    return [day for day in days if day.is_balanced and not day.differing(())]
