"""Rate, errors and durations of a time range as a table expression: rollups where proven, else the spans.

    source = red_source(store, Wanted(from_ns, to_ns))
    rows = store.rows(f"SELECT ServiceName, sum(Spans) FROM {source.sql} GROUP BY 1", source.parameters)
    if not source.is_unchanged(store): repeat, or ask the spans

The expression has the columns of the rollup: Hour, the keys, and the measures, which a query has to add up
(`sum`, `max`, `sumMap`), because each span that no slot covers is a row of its own. Rows of a rollup are read
by their version, and their number was proven, so FINAL is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from receiver.console.queries.aggregates.proven_hours import ProvenHours, of_versions, proven_hours
from receiver.console.queries.rollup.proof import Checked
from receiver.console.queries.rollup.proofs import Parts, is_unchanged
from receiver.console.queries.rollup.ranges import Range, Values, condition
from receiver.console.queries.rollup.slots import Slot
from receiver.console.queries.rollup.tables import HOUR, HOUR_S, HOURS_OF_DAY, MEASURES, OPERATIONS, Rollup
from receiver.engine.sql_text import Sql, compose, identifier, joined, names
from receiver.engine.store import Parameters, Store


class Wanted(NamedTuple):
    """Range, rollup, measures and condition of a query."""

    from_ns: int = 0
    to_ns: int = 0
    rollup: Rollup = OPERATIONS
    condition: Sql = Sql("1")
    parameters: Mapping[str, str | int] = {}
    measures: tuple[str, ...] = tuple(MEASURES)
    by_hour: bool = False
    """Whether the query needs the hours of a day separately."""


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

    sql: Sql
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
        checked = Checked((self.wanted.rollup,))
        return not self.slots or is_unchanged(store, checked, self.parts, lambda: self._is_same(store))

    def _is_same(self, store: Store) -> bool:
        again = red_source(store, self.wanted).covered
        versions = (self.covered.hours, self.covered.days, self.covered.is_mixed)
        return versions == (again.hours, again.days, again.is_mixed)


def red_source(store: Store, wanted: Wanted) -> RedSource:
    """Return the expression over the rollup, and over the spans that it does not provably cover."""
    hours = proven_hours(store, Checked((wanted.rollup,)), wanted.from_ns, wanted.to_ns)
    return _source(wanted, _covered(hours, wanted), hours.of_spans())._replace(parts=hours.parts)


def _covered(hours: ProvenHours, wanted: Wanted) -> Covered:
    versions = {
        day.number: version
        for day in hours.days
        if not wanted.by_hour
        and day.hours.start in hours.slots
        and day.hours.stop - 1 in hours.slots
        and (version := day.version_of_rows(wanted.rollup)) is not None
    }
    is_mixed = hours.is_mixed or any(
        day.has_other_versions_than(wanted.rollup, versions.get(day.number)) for day in hours.days
    )
    return Covered(hours.slots, versions, is_mixed)


def _source(wanted: Wanted, covered: Covered, ranges: Sequence[Range]) -> RedSource:
    rollup = wanted.rollup
    values: Values = {**wanted.parameters}
    selects = []
    if ranges:
        measures = (
            compose("{measure} AS {name}", measure=MEASURES[name].of_span, name=identifier(name))
            for name in wanted.measures
        )
        of_spans = compose(
            "SELECT toDateTime({hour} * {hour_s}, 'UTC') AS Hour, {keys}, {measures} "
            "FROM {table} WHERE {ranges} AND {is_counted} AND ({condition})",
            hour=HOUR,
            hour_s=HOUR_S,
            keys=rollup.keys_of_span,
            measures=joined(", ", measures),
            ranges=condition(ranges, values),
            is_counted=rollup.condition,
            condition=wanted.condition,
        )
        selects.append(of_spans)
    by_day = {number * HOURS_OF_DAY: version for number, version in sorted(covered.days.items())}
    for table, versions, length in (
        (rollup.table, covered.hours, 1),
        (rollup.day_table, by_day, HOURS_OF_DAY),
    ):
        if versions:
            of_slots = of_versions(table, versions, length, values, is_mixed=covered.is_mixed)
            of_rows = compose(
                "SELECT Hour, {columns} FROM {rollup} WHERE {slots} AND ({condition})",
                columns=names((*rollup.keys, *wanted.measures)),
                rollup=table,
                slots=of_slots,
                condition=wanted.condition,
            )
            selects.append(of_rows)
    return RedSource(compose("({selects})", selects=joined(" UNION ALL ", selects)), values, wanted, covered)
