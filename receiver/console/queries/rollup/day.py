"""A day of the table, on one node or on several: its slots, and the counts that prove them. See `proof`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from receiver.console.queries.rollup.slots import DAY_VERSIONS, Slot
from receiver.console.queries.rollup.tables import CALLS, HOURS_OF_DAY, OPERATIONS, Rollup


class CallsOfHour(NamedTuple):
    """A derivation of the calls of an hour: see `calls`."""

    version: int
    key: str
    """Key of the total row; empty if the rows are incomplete."""
    copies: int
    """Number of rows with calls whose copies differ."""


NO_CALLS = CallsOfHour(0, "", 0)


class Late(NamedTuple):
    """Spans of a slot's hour that were received after the slot's `received_to_ms`."""

    spans: int
    newest_ms: int


@dataclass
class Day:
    """A day of the table on a node: its slots, and the counts that prove them."""

    number: int
    """Days since 1970."""
    slots: Mapping[int, Slot] = field(default_factory=dict)
    node: int = 1
    shard: int = 1
    tables: frozenset[str] = frozenset()
    """Ids of the table on the nodes of the shard."""
    rows: int = 0
    parts: list[tuple[int, int, int]] = field(default_factory=list)
    """Of each part, the numbers of its first and last INSERT and of its last mutation, in one sequence."""
    changed_by: int = 0
    """Number of the last mutation that may have changed a row of the day."""
    source: str = ""
    """Source of a slot that is derived now; empty while the nodes of a shard differ."""
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
        covered = sum(slot.spans_of_nodes[self.node].spans for slot in self.slots.values())
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
        return sum(self._expected(slot, rollup) for slot in self.slots.values())

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

    @property
    def mutation(self) -> int:
        """Return the number of the last mutation of the day's parts."""
        return max((mutation for _, _, mutation in self.parts), default=0)

    @property
    def is_mutating(self) -> bool:
        """Return whether a mutation has changed some parts, and not yet all."""
        return any(max(last, mutation) < self.changed_by for _, last, mutation in self.parts)

    def has_source_of(self, slot: Slot) -> bool:
        """Return whether the day has the rows that the slot was derived from, and late ones."""
        # A shard that was added since has no source.
        sources = dict(enumerate(slot.source.split(" "), start=1))
        tables, _, number = sources.get(self.shard, "/0").rpartition("/")
        # Of the nodes then, some may be away now. A table that was created again has another id.
        if self.tables.isdisjoint(tables.split(",")) or self.is_mutating:
            return False
        mutation, first_block = int(number), min((first for first, _, _ in self.parts), default=0)
        return mutation <= self.mutation and max(mutation, first_block) >= self.changed_by

    def differing(self, rollups: Iterable[Rollup]) -> set[int]:
        """Return the hours whose slot was derived from another state of the table, or has lost rows."""
        return {
            hour
            for hour, slot in self.slots.items()
            if not self.has_source_of(slot)
            or any(
                self.sums.get((rollup.table, hour), 0) != self._expected(slot, rollup) for rollup in rollups
            )
        }

    def _expected(self, slot: Slot, rollup: Rollup) -> int:
        """Return the number of spans that the rows of a slot in this rollup must add up to."""
        spans = slot.spans_of_nodes[self.node]
        return spans.spans if rollup == OPERATIONS else spans.request_spans


@dataclass
class DayOfNodes(Day):
    """A day on several nodes. What it says of its slots, each node says of its own rows."""

    nodes: Sequence[Day] = ()

    def __post_init__(self) -> None:
        """Add up the counts. Of a shard, that of the node with most, because its replicas have the same."""
        for shard in {day.shard for day in self.nodes}:
            replicas = [day for day in self.nodes if day.shard == shard]
            self.rows += max(day.rows for day in replicas)
            for hour in self.hours:
                late = max(day.late.get(hour, Late(0, 0)) for day in replicas)
                before = self.late.get(hour, Late(0, 0))
                if late.spans:
                    self.late[hour] = Late(before.spans + late.spans, max(before.newest_ms, late.newest_ms))
        # Each shard derives its own spans, so the largest one decides how many hours are derived at once.
        self.open_spans = {
            hour: max(day.open_spans.get(hour, 0) for day in self.nodes) for hour in self.hours
        }
        for day in self.nodes:
            for table, sums in day.sums_of_day.items():
                self.sums_of_day[table] |= sums
        self.has_other_versions = any(day.has_other_versions for day in self.nodes)
        for hour in self.slots:
            calls = {day.calls.get(hour, NO_CALLS)[:2] for day in self.nodes}
            if len(calls) == 1:
                copies = sum(day.calls.get(hour, NO_CALLS).copies for day in self.nodes)
                self.calls[hour] = CallsOfHour(*calls.pop(), copies)

    @property
    def is_balanced(self) -> bool:
        """See `Day`."""
        return all(day.is_balanced for day in self.nodes)

    def version_of_rows(self, rollup: Rollup) -> int | None:
        """See `Day`. A node without spans has no rows."""
        with_rows = [day for day in self.nodes if day.spans_of_slots(rollup)] or self.nodes
        versions = {day.version_of_rows(rollup) for day in with_rows}
        return versions.pop() if len(versions) == 1 else None

    def complete_hours(self, table: str) -> set[int]:
        """See `Day`."""
        return set.intersection(*(day.complete_hours(table) for day in self.nodes))

    def differing(self, rollups: Iterable[Rollup]) -> set[int]:
        """See `Day`."""
        return set[int]().union(*(day.differing(rollups) for day in self.nodes))
