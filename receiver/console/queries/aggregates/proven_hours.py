"""Hours of a time range that rollups provably answer, and the spans that queries read in addition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from receiver.console.queries.rollup.calls import CHECKED, current_calls
from receiver.console.queries.rollup.day import Day
from receiver.console.queries.rollup.proof import Checked
from receiver.console.queries.rollup.proofs import Parts, is_unchanged, proven
from receiver.console.queries.rollup.ranges import Range, Values, runs, uncovered
from receiver.console.queries.rollup.slots import Slot
from receiver.console.queries.rollup.tables import HOUR_NS, HOUR_S, HOURS_OF_DAY
from receiver.engine.sql_text import Sql, compose, identifier, joined
from receiver.engine.store import Store
from receiver.errors import StoreTrouble

RANGES_MAX = 200
"""Maximum number of ranges of spans that a statement reads in addition to slots."""
NO_TABLE = 60
"""ClickHouse's UNKNOWN_TABLE: the rollups were dropped."""


class ProvenHours(NamedTuple):
    """A time range, and its hours that rollups answer."""

    from_ns: int
    to_ns: int
    checked: Checked
    days: Sequence[Day] = ()
    """Days whose slots provably equal the spans."""
    parts: Parts = frozenset()
    """Parts of the rollups before the proof."""
    slots: Mapping[int, Slot] = {}
    """Hour, in hours since 1970 → its slot."""

    @property
    def is_mixed(self) -> bool:
        """Return whether a rollup has rows of other versions than the slots'."""
        return any(day.has_other_versions for day in self.days)

    def only(self, hours: Iterable[int]) -> ProvenHours:
        """Return a copy that has only the slots of these hours."""
        kept = self._replace(slots={hour: self.slots[hour] for hour in hours if hour in self.slots})
        # With so many gaps the rollup saves little, and each range makes the statement longer.
        return kept if len(kept.of_spans()) <= RANGES_MAX else self.without_slots()

    def without_slots(self) -> ProvenHours:
        """Return a copy without slots: all of the range is read from the spans."""
        return ProvenHours(self.from_ns, self.to_ns, self.checked)

    def complete(self, table: str) -> ProvenHours:
        """Return a copy that has only the hours whose rows in this rollup with total rows are complete."""
        return self.only(hour for day in self.days for hour in day.complete_hours(table))

    def of_spans(self) -> list[Range]:
        """Return the ranges of spans to read in addition to the rollups."""
        late = sorted(hour for day in self.days for hour in day.late if hour in self.slots)
        return [
            *uncovered(self.slots, self.from_ns, self.to_ns),
            *(Range(hour * HOUR_NS, (hour + 1) * HOUR_NS, self.slots[hour].received_to_ms) for hour in late),
        ]

    def of_rollup(self, name: str, values: Values) -> Sql:
        """Return the condition for the hourly rows of the slots, and add its parameters, named `name…`."""
        versions = {hour: slot.version for hour, slot in sorted(self.slots.items())}
        return of_versions(name, versions, 1, values, is_mixed=self.is_mixed)

    def are_unchanged(self, store: Store) -> bool:
        """Return whether the rollups with total rows still have the rows that were proven."""
        return is_unchanged(store, self.checked, self.parts, lambda: self._is_same(store))

    def _is_same(self, store: Store) -> bool:
        return self.versions == proven_hours(store, self.checked, self.from_ns, self.to_ns).versions

    @property
    def versions_of_slots(self) -> tuple[bool, dict[int, int]]:
        """Return whether there are other versions, and the version of each slot."""
        return self.is_mixed, {hour: slot.version for hour, slot in self.slots.items()}

    @property
    def versions(self) -> tuple[bool, list[dict[int, int]]]:
        """Return whether there are other versions, and the versions of each rollup with total rows."""
        slots = [self.complete(table).slots for table in self.checked.totals]
        return self.is_mixed, [{hour: slot.version for hour, slot in each.items()} for each in slots]


def proven_hours(store: Store, checked: Checked, from_ns: int, to_ns: int) -> ProvenHours:
    """Return the range with the slots that provably equal their spans."""
    found = ProvenHours(from_ns, to_ns, checked)
    # Rounded inwards: an hour that is partly in the range is always read from its spans.
    first, end = -(-from_ns // HOUR_NS), to_ns // HOUR_NS
    if first >= end:
        return found
    try:
        # Whole days, because the proof compares with the rows of whole days.
        days, parts = proven(store, checked, first // HOURS_OF_DAY, (end - 1) // HOURS_OF_DAY)
    except StoreTrouble as trouble:
        # An operator may drop the rollups at any time; the spans have every answer.
        if trouble.code != NO_TABLE:
            raise
        return found
    slots = {hour: slot for day in days for hour, slot in day.slots.items() if first <= hour < end}
    return found._replace(days=days, parts=parts, slots=slots).only(slots)


def proven_calls(store: Store, from_ns: int, to_ns: int) -> ProvenHours:
    """Return the range with slots that have the versions of the calls that provably equal their spans."""
    # Calls depend on the hours before and after them.
    around = proven_hours(store, CHECKED, from_ns - HOUR_NS, to_ns + HOUR_NS)
    slots = {
        hour: around.slots[hour]._replace(version=version)
        for hour, version in current_calls(around.days)
        if hour * HOUR_NS >= from_ns and (hour + 1) * HOUR_NS <= to_ns
    }
    return around._replace(from_ns=from_ns, to_ns=to_ns, slots=slots).only(slots)


def of_versions(
    name: str, versions: Mapping[int, int], length: int, values: Values, *, is_mixed: bool
) -> Sql:
    """Return the condition for the rows of these versions, and add its parameters, named `name…`.

    `versions`: first hour of the row → version. `length`: hours that a row covers. `is_mixed`: whether the
    rollup has rows of other versions.
    """
    alternatives = []
    for place, (first, end) in enumerate(runs(_hours(versions, length))):
        values |= {f"{name}_from{place}": first * HOUR_S, f"{name}_to{place}": end * HOUR_S}
        template = (
            "(Hour >= toDateTime({{name}_from{place}:UInt32}, 'UTC') "
            "AND Hour < toDateTime({{name}_to{place}:UInt32}, 'UTC'))"
        )
        alternatives.append(compose(template, name=identifier(name), place=place))
    hours = compose("({any})", any=joined(" OR ", alternatives))
    # Without other versions, the condition would only cost time: the proof has seen all rows.
    if not is_mixed:
        return hours
    values |= {f"{name}_hours": list(versions), f"{name}_versions": list(versions.values())}
    template = (
        "{hours} AND Version = transform(toInt64(intDiv(toUnixTimestamp(Hour), {hour_s})), "
        "{{name}_hours:Array(Int64)}, {{name}_versions:Array(UInt64)}, toUInt64(0))"
    )
    return compose(template, hours=hours, hour_s=HOUR_S, name=identifier(name))


def _hours(firsts: Iterable[int], length: int) -> Iterable[int]:
    return (hour for first in firsts for hour in range(first, first + length))
