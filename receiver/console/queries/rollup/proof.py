"""Proof that slots equal the spans, made for each query from the parts of the table.

Every span of a day is counted once: in a slot, as a late span of a slot (received after the slot's
`received_to_ms`), or in an hour without a slot. The slots of a day are used only if these counts add up to
the rows of the day's parts, and all slots were derived from this table and after its last mutation. Deletions
IN PARTITION of other days are not counted as such, although they rename the parts of all days.

    spans that arrive late              they are read beside the slot
    rows that arrive out of order       the counts do not add up: the day is read without its slots
    deleted rows and dropped parts      the counts do not add up, or the last mutation is another one
    lost or repeated rows of a rollup   the rows of the slot do not add up to its spans
    lost or repeated rows of others     they do not add up to the total row of the hour, see `totals`

Rows by day are used only if they add up to the spans of all slots of the day, and their version was made of
the versions of these slots, which grow with each derivation.

One statement makes all counts, from one snapshot of the table, so that spans may arrive meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from receiver.console.queries.rollup.mutations import last_change, read_mutations
from receiver.console.queries.rollup.ranges import Range, Values, condition, runs
from receiver.console.queries.rollup.slots import DAY_VERSIONS, Slot
from receiver.console.queries.rollup.tables import (
    CALLS,
    HOUR,
    HOUR_NS,
    HOUR_S,
    HOURS_OF_DAY,
    OPERATIONS,
    SLOTS,
    Rollup,
)
from receiver.engine.sql_text import Sql
from receiver.engine.store import ALL_ROWS, TABLE, Parameters, Store, Version

SNAPSHOT_SINCE = Version(25, 6)
"""The first version whose statements read all parts of a table from one snapshot."""
RUNS_MAX = 100
"""Ranges of time that a statement lists. Days that need more are read without slots."""
SETTINGS = (
    "SETTINGS enable_shared_storage_snapshot_in_query = 1, max_execution_time = 60, "
    f"max_memory_usage = {2 << 30}, {ALL_ROWS}"
)
"""All rows, also of a caller with limited projects: slots and total rows count the spans of all projects."""
FAR_MS = "toInt64(9223372036854775807)"
"""Later than any time in the table."""
_IDENTITY = (
    "SELECT version(), toString(uuid), engine FROM system.tables "
    "WHERE database = currentDatabase() AND name = {table:String}"
)
_PARTS = f"""
SELECT 'parts', _part, toInt64(0) AS hour, toUInt64(count()), toInt64(0)
FROM {TABLE} WHERE _partition_id IN {{days:Array(String)}} GROUP BY _part
"""  # noqa: S608 - the table's name is a constant
_OPEN = f"""
SELECT 'open', '', toInt64({HOUR}) AS hour, toUInt64(count()), toInt64(0)
FROM {TABLE} WHERE {{ranges}} GROUP BY hour
"""  # noqa: S608 - as above
_LATE = f"""
SELECT 'late', '', toInt64({HOUR}) AS hour, toUInt64(count()), max(toUnixTimestamp64Milli(ReceivedAt))
FROM {TABLE}
WHERE {{ranges}} AND toUnixTimestamp64Milli(ReceivedAt)
    > transform(toInt64({HOUR}), {{hours:Array(Int64)}}, {{received_to:Array(Int64)}}, {FAR_MS})
GROUP BY hour
"""  # noqa: S608 - as above
_SUMS = f"""
SELECT
    '{{table}}', '', toInt64(intDiv(toUnixTimestamp(Hour), {HOUR_S})), toUInt64({{sum}}), toInt64(Version)
FROM {{table}}
WHERE Hour >= toDateTime({{{{from_s:UInt32}}}}, 'UTC') AND Hour < toDateTime({{{{to_s:UInt32}}}}, 'UTC')
GROUP BY Hour, Version
"""  # noqa: S608 - as above
_IS_COMPLETE = """
sumIf(Spans, Source != '') = sumIf(Spans, Source = '') AND maxIf(Key = {{{table}:String}}, Source = '')
"""
"""Whether the rows are those of the total row, derived with the same definition."""
CALLS_OF_HOURS = f"""
SELECT
    '{CALLS}', if(sumIf(Spans, Source != '') = sumIf(Spans, Source = ''), maxIf(Key, Source = ''), ''),
    toInt64(intDiv(toUnixTimestamp(Hour), {HOUR_S})), toUInt64(countIf(Source = 'copies')), toInt64(Version)
FROM {CALLS}
WHERE Hour >= toDateTime({{from_s:UInt32}}, 'UTC') AND Hour < toDateTime({{to_s:UInt32}}, 'UTC')
GROUP BY Hour, Version
"""  # noqa: S608 - as above


class CallsOfHour(NamedTuple):
    """A derivation of the calls of an hour: see `calls`."""

    version: int
    key: str
    """Key of the total row; empty if the rows are incomplete."""
    copies: int
    """Number of rows with calls whose copies differ."""


NO_CALLS = CallsOfHour(0, "", 0)


class Checked(NamedTuple):
    """Rollups whose rows are checked."""

    rollups: tuple[Rollup, ...] = ()
    totals: Mapping[Sql, str] = {}
    """Rollups whose total rows are checked, and their definitions: see `definitions`."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the tables that the check reads beside the spans."""
        of_rollups = (table for rollup in self.rollups for table in (rollup.table, rollup.day_table))
        return (SLOTS, *of_rollups, *self.totals)


class Late(NamedTuple):
    """Spans of a slot's hour that were received after the slot's `received_to_ms`."""

    spans: int
    newest_ms: int


@dataclass
class Day:
    """A day of the table: its slots, and the counts that prove them."""

    number: int
    """Days since 1970."""
    slots: dict[int, Slot] = field(default_factory=dict)
    rows: int = 0
    mutation: int = 0
    """Number of the last mutation of the day's parts."""
    first_block: int = 0
    """Number of the first INSERT whose rows the day has, in one sequence with the mutations."""
    changed_by: int = 0
    """Number of the last mutation that may have changed a row of the day."""
    source: str = ""
    open_spans: dict[int, int] = field(default_factory=dict)
    late: dict[int, Late] = field(default_factory=dict)
    sums: dict[tuple[str, int], int] = field(default_factory=dict)
    """Spans that the rows of a rollup add up to, by table and hour, in the version of the slot.

    Of a rollup with total rows: 1 if the rows are complete.
    """
    sums_of_day: defaultdict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """Spans that the rows by day add up to, by table and version."""
    calls: dict[int, CallsOfHour] = field(default_factory=dict)
    """The newest derivation of each hour."""
    has_other_versions: bool = False
    """Whether a rollup has rows of an earlier or an incomplete derivation."""

    @property
    def hours(self) -> range:
        """Return the hours of the day, in hours since 1970."""
        return range(self.number * HOURS_OF_DAY, (self.number + 1) * HOURS_OF_DAY)

    def spans_of(self, hour: int) -> int:
        """Return the number of spans in an hour, with or without a slot."""
        if hour in self.slots:
            return self.slots[hour].spans + self.late.get(hour, Late(0, 0)).spans
        return self.open_spans.get(hour, 0)

    @property
    def is_balanced(self) -> bool:
        """Return whether the counts add up to the rows of the day's parts."""
        covered = sum(slot.spans for slot in self.slots.values())
        late = sum(late.spans for late in self.late.values())
        return covered + late + sum(self.open_spans.values()) == self.rows

    @property
    def version(self) -> int:
        """Return the first version of rows by day made of these slots; 0 if an hour has no slot."""
        versions = [slot.version for slot in self.slots.values()]
        return sum(versions) * DAY_VERSIONS if len(versions) == HOURS_OF_DAY else 0

    def version_of_rows(self, rollup: Rollup) -> int | None:
        """Return the version of the rows by day that equal the slots; `None` if there are none."""
        sums, spans = self.sums_of_day[rollup.day_table], self.spans_of_slots(rollup)
        if not self.version:
            return None
        if not spans:
            return self.version
        versions = range(self.version, self.version + DAY_VERSIONS)
        return max(
            (number for number, sum_ in sums.items() if number in versions and sum_ == spans), default=None
        )

    def has_other_versions_than(self, rollup: Rollup, version: int | None) -> bool:
        """Return whether there are rows by day of other versions, beside those of this version."""
        return version is not None and bool(self.sums_of_day[rollup.day_table].keys() - {version})

    def spans_of_slots(self, rollup: Rollup) -> int:
        """Return the number of spans that the slots count in this rollup."""
        return sum(expected_spans(slot, rollup) for slot in self.slots.values())

    def complete_hours(self, table: str) -> set[int]:
        """Return the hours whose rows in this rollup with total rows are complete."""
        return {hour for hour in self.slots if self.sums.get((table, hour))}

    def record(self, kind: str, hour: int, rows: int, detail: int, key: str = "") -> None:
        """Record a count. `detail`: newest receive time of late spans, version of the rows of a rollup."""
        if kind == "open":
            self.open_spans[hour] = rows
        elif kind == "late":
            self.late[hour] = Late(rows, detail)
        elif kind.endswith("_day"):
            self.sums_of_day[kind][detail] = rows
        elif kind == CALLS:
            self.has_other_versions |= hour in self.calls
            self.calls[hour] = max(self.calls.get(hour, NO_CALLS), CallsOfHour(detail, key, rows))
        # Rows of another version are left from a derivation that was killed or replaced.
        elif hour in self.slots and self.slots[hour].version == detail:
            self.sums[kind, hour] = rows
        else:
            self.has_other_versions = True

    def add_part(self, rows: int, first_block: int, mutation: int) -> None:
        """Count the rows of a part."""
        self.rows += rows
        self.mutation = max(self.mutation, mutation)
        self.first_block = min(self.first_block or first_block, first_block)

    def has_source_of(self, slot: Slot) -> bool:
        """Return whether the day has the rows that the slot was derived from, and late ones."""
        table, _, mutation = slot.source.rpartition("/")
        if not self.source.startswith(f"{table}/") or int(mutation) > self.mutation:
            return False
        return max(int(mutation), self.first_block) >= self.changed_by

    def differing(self, rollups: Iterable[Rollup]) -> set[int]:
        """Return the hours whose slot was derived from another state of the table, or has lost rows."""
        return {
            hour
            for hour, slot in self.slots.items()
            if not self.has_source_of(slot)
            or any(
                self.sums.get((rollup.table, hour), 0) != expected_spans(slot, rollup) for rollup in rollups
            )
        }


def expected_spans(slot: Slot, rollup: Rollup) -> int:
    """Return the number of spans that the rows of a slot in this rollup must add up to."""
    return slot.spans if rollup == OPERATIONS else slot.request_spans


def day_name(day: int) -> str:
    """Return the name of a day's partition: `20260131`."""
    return datetime.fromtimestamp(day * HOURS_OF_DAY * HOUR_S, UTC).strftime("%Y%m%d")


def day_number(name: str) -> int:
    """Return the day of a partition, in days since 1970."""
    return int(datetime.strptime(name, "%Y%m%d").replace(tzinfo=UTC).timestamp()) // (HOURS_OF_DAY * HOUR_S)


def table_id(store: Store) -> str:
    """Return the id of the table; empty if this engine cannot prove what a table holds.

    A replicated or distributed table has other parts on other servers.
    """
    rows = store.rows(_IDENTITY, {"table": TABLE})
    if not rows or rows[0][2] != "MergeTree":
        return ""
    major, minor, *_ = str(rows[0][0]).split(".")
    return str(rows[0][1]) if Version(int(major), int(minor)) >= SNAPSHOT_SINCE else ""


def observe(
    store: Store, table: str, slots: Mapping[int, Slot], days: Iterable[int], checked: Checked
) -> list[Day]:
    """Count the rows of these days, of the spans and of the checked rollups. `table`: see `table_id`.

    Days are left out, the oldest first, if the statement would list too many ranges.
    """
    observed = _limited(
        Day(number, {hour: slots[hour] for hour in _hours(number) if hour in slots})
        for number in sorted(days, reverse=True)
    )
    if not observed:
        return []
    by_number = {day.number: day for day in observed}
    by_name = {day_name(day.number): day for day in observed}
    for kind, part, hour, rows, detail in store.rows(*_statement(observed, checked)):
        if kind == "parts":
            # A part is named PARTITION_MIN_MAX_LEVEL, with the number of its last mutation if there was one.
            name, first_block, _, _, mutation = (*str(part).split("_"), "0")[:5]
            by_name[name].add_part(rows, int(first_block), int(mutation))
        # the rollups may also have rows of days that are not observed
        elif (day := by_number.get(hour // HOURS_OF_DAY)) is not None:
            day.record(str(kind), hour, rows, detail, str(part))
    # After the parts: the list has the mutations of all of them.
    mutations = read_mutations(store)
    for name, day in by_name.items():
        # The id, and not the name: a table that was dropped and created again has another one.
        day.source = f"{table}/{day.mutation}"
        day.changed_by = last_change(mutations, name, day.mutation)
    return observed


def _hours(day: int) -> range:
    return range(day * HOURS_OF_DAY, (day + 1) * HOURS_OF_DAY)


def _limited(days: Iterable[Day]) -> list[Day]:
    kept, run_count = [], 0
    for day in days:
        run_count += len(runs(hour for hour in day.hours if hour not in day.slots))
        # Stops instead of skipping this day: the days that are left out are then always the oldest.
        if run_count > RUNS_MAX:
            break
        kept.append(day)
    return kept


def _late_ranges(slots_of_days: Iterable[Mapping[int, Slot]]) -> Iterator[Range]:
    """Yield ranges that contain all late spans: one for all settled days, one for each other day."""
    settled: list[Range] = []
    for slots in slots_of_days:
        received_to_ms = min(slot.received_to_ms for slot in slots.values())
        spans = Range(min(slots) * HOUR_NS, (max(slots) + 1) * HOUR_NS, received_to_ms)
        # Of a settled day few spans are newer than this, so the longer common range costs little. The
        # statement compares the time of each slot besides; the ranges only limit what is read.
        if received_to_ms * 10**6 >= spans.to_ns:
            settled.append(spans)
        else:
            yield spans
    if settled:
        yield Range(
            min(spans.from_ns for spans in settled),
            max(spans.to_ns for spans in settled),
            min(spans.received_after_ms or 0 for spans in settled),
        )


def _statement(days: Sequence[Day], checked: Checked) -> tuple[str, Parameters]:
    hours = defaultdict(list)
    for day in sorted(days, key=lambda day: day.number):
        for hour in day.hours:
            # Ascending over all days, so that a run of hours continues beyond midnight.
            hours[hour in day.slots].append(hour)
    values: Values = {"days": [day_name(day.number) for day in days]}
    open_ranges = [Range(first * HOUR_NS, end * HOUR_NS) for first, end in runs(hours[False])]
    selects = [_PARTS, _OPEN.replace("{ranges}", condition(open_ranges, values, "open"))]
    slots = [day.slots[hour] for day in days for hour in day.slots]
    if slots:
        late_ranges = list(_late_ranges(day.slots for day in days if day.slots))
        selects.append(_LATE.replace("{ranges}", condition(late_ranges, values, "late")))
        # One range, also over days in between that are not observed: `observe` ignores their rows.
        selects += [
            CALLS_OF_HOURS
            if table == CALLS
            else _SUMS.format(
                table=table, sum=_IS_COMPLETE.format(table=table) if table in checked.totals else "sum(Spans)"
            )
            for table in checked.tables
            if table != SLOTS
        ]
        values |= {str(table): definition for table, definition in checked.totals.items()}
        values |= {
            "hours": [slot.hour for slot in slots],
            "received_to": [slot.received_to_ms for slot in slots],
            # Whole days, because rows by day have the first hour of the day.
            "from_s": min(day.hours.start for day in days) * HOUR_S,
            "to_s": max(day.hours.stop for day in days) * HOUR_S,
        }
    # One statement, because counts of two moments would differ whenever spans arrive in between.
    union = " UNION ALL ".join(f"({select})" for select in selects)
    return f"SELECT * FROM ({union}) {SETTINGS}", values  # noqa: S608 - as above
