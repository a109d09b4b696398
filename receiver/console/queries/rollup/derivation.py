"""Derivation of slots: hours of one day at a time, by statements that the engine bounds in time and memory.

A kill, an error or a stop between two statements leaves the slots incomplete, so that their hours are read
from the spans, and the next round derives them again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from receiver.console.queries.rollup.attributes import derive_attributes
from receiver.console.queries.rollup.calls import derive_calls, due_calls
from receiver.console.queries.rollup.day import Day
from receiver.console.queries.rollup.errors import definitions, derive_errors
from receiver.console.queries.rollup.proof import Checked, nodes_of, observe
from receiver.console.queries.rollup.ranges import runs
from receiver.console.queries.rollup.replicas import Counts, agreed_counts, counts_of_nodes
from receiver.console.queries.rollup.slots import (
    DAY_VERSIONS,
    Slot,
    next_version,
    read_slots,
    release,
    reserved_hours,
    write_slots,
)
from receiver.console.queries.rollup.tables import (
    HOUR_NS,
    HOUR_S,
    HOURS_OF_DAY,
    MEASURES,
    ROLLUPS,
    TOTALLED,
    Rollup,
    rollup_compose,
)
from receiver.console.queries.rollup.totals import write_total
from receiver.engine.sql_text import Sql, joined, names
from receiver.engine.store import Parameters, Store
from receiver.errors import StoreTrouble

BATCH_SPANS_MAX = 20_000_000
"""Maximum number of spans that are derived at once, in 10 to 20 s. A larger hour is derived alone."""
PROBE_DAY = 0
"""Day of the rows with which the writer tests the table; they expire at once."""
# Each repetition reads the whole hour again, while queries only read the late spans in addition.
REPEAT_S = 3_600
"""Interval at which an hour is derived again while late spans still arrive for it."""
Part = tuple[int, str]
"""Node and name."""
Settled = dict[int, tuple[frozenset[Part], int]]
"""Day → its parts, and the time in seconds since 1970 until which it is skipped while it has these parts."""
DAY_VERSION_STEP_MAX = 16
"""Maximum random step to the next version of rows by day, so that two receivers use different versions."""
SETTLED_S = 86_400
"""Age at which the slots of a settled day are extended to newer spans: see `_settle`."""

_PARTS = rollup_compose("""
SELECT toInt64(toDate(_partition_id)) AS day, _part AS part FROM
(
    SELECT _partition_id, _part, count() FROM {table} GROUP BY _partition_id, _part
)
""")


class Closing(NamedTuple):
    """Time and age that decide which hours are closed."""

    now_s: int
    age_s: int
    """Age at which an hour is closed, and up to which received spans count as late."""

    @property
    def hour_end(self) -> int:
        """Return the first hour that is not closed, in hours since 1970."""
        return max(0, self.now_s - self.age_s) // HOUR_S

    @property
    def received_to_ms(self) -> int:
        """Return the time up to which received spans are covered."""
        return max(0, self.now_s - self.age_s) * 1_000


class DayReport(NamedTuple):
    """A day of the rollups."""

    day: Day
    due: list[int]
    """Hours to derive, ascending."""
    settled_from_ms: int = 0
    """Minimum `received_to_ms` of the slots of a settled day."""

    @property
    def is_covered(self) -> bool:
        """Return whether slots cover all spans of the day."""
        is_whole = len(self.day.slots) == HOURS_OF_DAY and self.day.is_balanced
        return is_whole and not self.due and not self.day.late

    @property
    def is_settled(self) -> bool:
        """Return whether slots cover all spans of the day, up to the same receive time and mutation."""
        received_to_ms = {slot.received_to_ms for slot in self.day.slots.values()}
        is_same = len(received_to_ms) == 1 and {slot.source for slot in self.day.slots.values()} == {
            self.day.source
        }
        return self.is_covered and is_same and min(received_to_ms) >= self.settled_from_ms


def insert_statement(rollup: Rollup) -> Sql:
    """Return the statement that derives hours of a rollup."""
    return rollup_compose(
        "INSERT INTO {rollup} (Hour, {keys}, Version, {columns}) "
        "SELECT toDateTime({hour} * {hour_s}, 'UTC') AS hour, {keys_of_span}, {version:UInt64}, {measures} "
        "FROM {table} WHERE {is_derived} AND {condition} "
        "GROUP BY hour, {keys} {settings}",
        rollup=rollup.table,
        keys=names(rollup.keys),
        columns=names(MEASURES),
        keys_of_span=rollup.keys_of_span,
        measures=joined(", ", (measure.of_spans for measure in MEASURES.values())),
        condition=rollup.condition,
    )


def parts_by_day(store: Store) -> dict[int, frozenset[Part]]:
    """Return the parts of each day that the table has rows of, newest day first, by days since 1970."""
    parts: dict[int, set[Part]] = {}
    for node, day, part in store.layout.rows_of_nodes(store, _PARTS):
        # A rollup of the probe rows would never be current: they disappear at once.
        if day > PROBE_DAY:
            parts.setdefault(day, set()).add((node, part))
    return {day: frozenset(parts[day]) for day in sorted(parts, reverse=True)}


def survey(store: Store, closing: Closing, settled: Settled | None = None) -> Iterator[DayReport]:
    """Compare the slots of each day with the spans, the newest day first. Skips `settled` days."""
    settled = {} if settled is None else settled
    # Before the first start there is no table.
    if not nodes_of(store):
        return
    for number, parts in parts_by_day(store).items():
        # An INSERT, a merge and a mutation each change the names of parts, so equal names mean equal rows.
        known_parts, until_s = settled.get(number, (frozenset(), 0))
        if known_parts == parts and closing.now_s < until_s:
            continue
        report = survey_day(store, number, closing)
        if report is None:
            continue
        yield report
        if report.is_settled:
            # `parts` was listed before the comparison, so a part that arrived since makes the day differ next
            # time.
            settled[number] = (parts, closing.now_s + SETTLED_S)


def survey_day(store: Store, number: int, closing: Closing) -> DayReport | None:
    """Compare the slots of a day with the spans; `None` if no hour is closed, or a node does not answer."""
    first = number * HOURS_OF_DAY
    if first >= closing.hour_end:
        return None
    slots = read_slots(store, first, first + HOURS_OF_DAY)
    # One day is always observed: 24 hours have fewer ranges than the limit of the statement.
    checked = Checked(ROLLUPS, definitions(store))
    for day in observe(store, nodes_of(store), slots, [number], checked):
        return DayReport(day, due_hours(store, day, closing), closing.received_to_ms - SETTLED_S * 1_000)
    return None


def due_hours(store: Store, day: Day, closing: Closing) -> list[int]:
    """Return the closed hours of a day that have to be derived."""
    due = {hour for hour in day.hours if hour not in day.slots} | day.differing(ROLLUPS)
    for totalled in TOTALLED:
        due |= day.slots.keys() - day.complete_hours(totalled)
    for hour, late in day.late.items():
        # Deriving while spans still arrive covers only some of them; hence once they stop, or now and then.
        is_quiet = late.newest_ms <= closing.received_to_ms
        is_old = closing.received_to_ms - day.slots[hour].received_to_ms >= REPEAT_S * 1_000
        if is_quiet or is_old:
            due.add(hour)
    if not day.is_balanced:
        # Only now: this reads every span of the day, while the proof reads counts of parts.
        due |= _recounted(store, day)
    return sorted(hour for hour in due if hour < closing.hour_end)


def batches(report: DayReport) -> Iterator[list[int]]:
    """Yield the hours to derive, the newest first, in batches that are derived at once."""
    batch: list[int] = []
    span_count = 0
    for hour in reversed(report.due):
        hour_spans = report.day.spans_of(hour)
        # A batch always has an hour, so that an hour above the maximum is derived, too.
        if batch and span_count + hour_spans > BATCH_SPANS_MAX:
            yield batch
            batch, span_count = [], 0
        batch.append(hour)
        span_count += hour_spans
    if batch:
        yield batch


def derive(store: Store, hours: Sequence[int], closing: Closing) -> bool:
    """Derive hours of a day. Returns False if the table changed meanwhile: the hours are still due."""
    # Read before the first row, and again after the last: a mutation in between may have changed the spans
    # that one rollup read and the other did not.
    before = _state_of(store, hours, closing)
    if before is None:
        return False
    version = next_version(store, min(hours), max(hours) + 1)
    slots = [Slot(hour, version, closing.received_to_ms, before[0]) for hour in hours]
    # Before any row of the rollups: a kill from here on must leave no slot that claims to be complete.
    write_slots(store, slots, is_complete=False)
    try:
        _write_rows(store, hours, closing.received_to_ms, version)
        # Otherwise the slots stay incomplete, and queries read the spans of these hours.
        is_same = _state_of(store, hours, closing) == before
    except StoreTrouble:
        release(store, slots)
        raise
    if is_same:
        write_slots(store, slots, is_complete=True)
    else:
        release(store, slots)
    return is_same


def _state_of(store: Store, hours: Sequence[int], closing: Closing) -> tuple[str, Counts] | None:
    """Return the state of the spans that a derivation reads; `None` while nodes differ, or are mutated."""
    # Without slots and tables: only the mutations of the day's parts are needed.
    days = observe(store, nodes_of(store), {}, [min(hours) // HOURS_OF_DAY], Checked())
    counts = agreed_counts(store, hours, closing.received_to_ms)
    return (days[0].source, counts) if days and days[0].source and counts is not None else None


def _write_rows(store: Store, hours: Sequence[int], received_to_ms: int, version: int) -> None:
    first, end = min(hours), max(hours) + 1
    parameters: Parameters = {
        "hours": list(hours),
        "from_ns": first * HOUR_NS,
        "to_ns": end * HOUR_NS,
        "from_s": first * HOUR_S,
        "to_s": end * HOUR_S,
        "received_to_ms": received_to_ms,
        "version": version,
    }
    for rollup in ROLLUPS:
        store.rows(store.layout.on_shards(insert_statement(rollup)), parameters)
    # Before the rows: if the promoted attributes change meanwhile, the total row has the earlier definition.
    defined = definitions(store)
    derive_attributes(store, parameters)
    derive_errors(store, parameters)
    for totalled, definition in defined.items():
        write_total(store, totalled, {**parameters, "definition": definition})


def derive_due(
    store: Store,
    closing: Closing,
    settled: Settled | None = None,
    *,
    may_continue: Callable[[], bool] = lambda: True,
) -> Iterator[list[int]]:
    """Derive every hour that is due, newest first, and yield each batch. Stops unless `may_continue`."""
    for report in survey(store, closing, settled):
        # A covered day has nothing to derive, so this never races with the batches below.
        _settle(store, report, closing)
        reserved = reserved_hours(
            store, report.day.hours.start, report.day.hours.stop, closing.received_to_ms
        )
        for hours in batches(report._replace(due=[hour for hour in report.due if hour not in reserved])):
            # Asked before each batch, not within one: a statement in progress ends by itself or is cancelled.
            if not may_continue():
                return
            if derive(store, hours, closing):
                yield hours
        _add_up_day(store, report, closing)
        _derive_calls(store, report.day.number, closing, may_continue)


def _derive_calls(store: Store, number: int, closing: Closing, may_continue: Callable[[], bool]) -> None:
    """Derive the calls of a day that are due."""
    keys = due_calls(store, number, closing.received_to_ms)
    # The slots again, for their numbers of spans.
    slots = read_slots(store, min(keys), max(keys) + 1) if keys else {}
    for hours in batches(DayReport(Day(number, slots), sorted(keys))):
        for first, end in runs(reversed(hours)):
            if not may_continue():
                return
            derive_calls(store, first, end, keys)


def _add_up_day(store: Store, report: DayReport, closing: Closing) -> None:
    """Write the rows by day of a day whose hours are all derived."""
    if report.day.hours.stop > closing.hour_end:
        return
    # Slots that were derived since the report have other versions.
    current = survey_day(store, report.day.number, closing) if report.due else report
    if current is not None and not current.due:
        _add_up(store, current.day)


def _settle(store: Store, report: DayReport, closing: Closing) -> None:
    """Extend the slots of a whole day to all spans received until now.

    Queries look for late spans among the spans received after `received_to_ms`. If that stayed at the time
    when the hour was closed, they would have to read the spans of all later hours and days. The
    slots also get the number of the day's last mutation, because the engine forgets old mutations.
    """
    if report.is_covered and not report.is_settled and report.day.source:
        slots = report.day.slots.values()
        to_ms, source = closing.received_to_ms, report.day.source
        raised = [slot._replace(received_to_ms=to_ms, source=source) for slot in slots]
        write_slots(store, raised, is_complete=True)


def _recounted(store: Store, day: Day) -> set[int]:
    """Return the hours whose slot and table have different numbers of spans."""
    counts = counts_of_nodes(store, {hour: slot.received_to_ms for hour, slot in day.slots.items()})
    return {
        hour
        for hour, slot in day.slots.items()
        if any(counts.get(node, {}).get(hour, 0) != of.spans for node, of in slot.spans_of_nodes.items())
    }


def _add_up(store: Store, day: Day) -> None:
    """Write the rows by day that are missing, if all hours of the day have a slot.

    Rows are never changed. A derivation of an hour of the day invalidates their version; then queries read
    the hours until the rows are added up again. See `Day.version_of_rows`.
    """
    for rollup in ROLLUPS:
        if day.version and day.version_of_rows(rollup) is None:
            # Rows that are incomplete or repeated stay, so the version is higher than all of them.
            used = max(day.sums_of_day[rollup.day_table], default=0)
            version = max(day.version, used) + 1 + secrets.randbelow(DAY_VERSION_STEP_MAX)
            # Out of versions until the next derivation of an hour: queries read the hours.
            if version < day.version + DAY_VERSIONS:
                _write_day(store, day, rollup, version)


def _write_day(store: Store, day: Day, rollup: Rollup, version: int) -> None:
    store.rows(
        store.layout.on_shards(_day_statement(rollup)),
        {
            "from_s": day.hours.start * HOUR_S,
            "to_s": day.hours.stop * HOUR_S,
            "hours": list(day.slots),
            "versions": [slot.version for slot in day.slots.values()],
            "version": version,
        },
    )


def _day_statement(rollup: Rollup) -> Sql:
    return rollup_compose(
        "INSERT INTO {day_table} (Hour, {keys}, Version, {columns}) "
        "SELECT toDateTime({from_s:UInt32}, 'UTC'), {keys}, {version:UInt64}, {measures} "
        "FROM {hour_table} "
        "WHERE Hour >= toDateTime({from_s:UInt32}, 'UTC') AND Hour < toDateTime({to_s:UInt32}, 'UTC') "
        "AND Version = transform(toInt64(intDiv(toUnixTimestamp(Hour), {hour_s})), "
        "{hours:Array(Int64)}, {versions:Array(UInt64)}, toUInt64(0)) "
        "GROUP BY {keys} {settings}",
        day_table=rollup.day_table,
        keys=names(rollup.keys),
        columns=names(MEASURES),
        measures=joined(", ", (measure.of_rows for measure in MEASURES.values())),
        hour_table=rollup.table,
    )
