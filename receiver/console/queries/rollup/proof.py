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

On a cluster, every node that answers proves its own rows, because a question may read any of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from receiver.console.queries.rollup.day import Day, DayOfNodes
from receiver.console.queries.rollup.mutations import last_change, read_mutations
from receiver.console.queries.rollup.ranges import Range, Values, condition, runs
from receiver.console.queries.rollup.slots import Slot
from receiver.console.queries.rollup.tables import (
    CALLS,
    HOUR,
    HOUR_NS,
    HOUR_S,
    HOURS_OF_DAY,
    SLOTS,
    Rollup,
)
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import TABLE, Parameters, Store, Version

SNAPSHOT_SINCE = Version(25, 6)
"""The first version whose statements read all parts of a table from one snapshot."""
RUNS_MAX = 100
"""Ranges of time that a statement lists. Days that need more are read without slots."""
SETTINGS = compose(
    "SETTINGS enable_shared_storage_snapshot_in_query = 1, max_execution_time = 60, "
    "max_memory_usage = {memory_bytes_max}, {all_rows}",
    memory_bytes_max=2 << 30,
)
"""All rows, also of a caller with limited projects: slots and total rows count the spans of all projects."""
FAR_MS = "toInt64(9223372036854775807)"
"""Later than any time in the table."""
_IDENTITY = compose("""
SELECT version() AS version, toString(uuid) AS id, engine FROM system.tables
WHERE database = currentDatabase() AND name = {table:String}
""")
_NODE = "SELECT 'node' AS kind, '' AS part, toInt64(0) AS hour, toUInt64(0) AS rows, toInt64(0) AS detail"
"""A row of each node that answers: it may have no spans."""
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
CALLS_OF_HOURS = compose(
    """
SELECT
    '{calls}' AS kind,
    if(sumIf(Spans, Source != '') = sumIf(Spans, Source = ''), maxIf(Key, Source = ''), '') AS key,
    toInt64(intDiv(toUnixTimestamp(Hour), {hour_s})) AS hour, toUInt64(countIf(Source = 'copies')) AS copies,
    toInt64(Version) AS version
FROM {calls}
WHERE Hour >= toDateTime({from_s:UInt32}, 'UTC') AND Hour < toDateTime({to_s:UInt32}, 'UTC')
GROUP BY Hour, Version
""",
    calls=CALLS,
    hour_s=HOUR_S,
)


class TableOfNode(NamedTuple):
    """The table of a node that has rows."""

    shard: int
    id: str


Nodes = Mapping[int, TableOfNode]
"""Tables by the number of their node: see `Layout.rows_of_nodes`."""


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


def day_name(day: int) -> str:
    """Return the name of a day's partition: `20260131`."""
    return datetime.fromtimestamp(day * HOURS_OF_DAY * HOUR_S, UTC).strftime("%Y%m%d")


def day_number(name: str) -> int:
    """Return the day of a partition, in days since 1970."""
    return int(datetime.strptime(name, "%Y%m%d").replace(tzinfo=UTC).timestamp()) // (HOURS_OF_DAY * HOUR_S)


def nodes_of(store: Store) -> Nodes:
    """Return the nodes; none if a shard is away, or an engine cannot prove what a table holds.

    Without a cluster, a replicated or distributed table has other parts on other servers.
    """
    layout = store.layout
    rows = layout.rows_of_nodes(store, _IDENTITY, {"table": layout.stored(TABLE)})
    shards = dict(enumerate(layout.shard_of_node(store), start=1)) if rows else {}
    nodes = {}
    for node, version, table, engine in rows:
        major, minor, *_ = str(version).split(".")
        is_proving = engine.endswith("MergeTree") if layout.cluster else engine == "MergeTree"
        if not is_proving or node not in shards or Version(int(major), int(minor)) < SNAPSHOT_SINCE:
            return {}
        nodes[node] = TableOfNode(shards[node], str(table))
    return nodes if {table.shard for table in nodes.values()} == {*shards.values()} else {}


def observe(
    store: Store, nodes: Nodes, slots: Mapping[int, Slot], days: Iterable[int], checked: Checked
) -> list[Day]:
    """Count the rows of these days, of the spans and of the checked rollups. `nodes`: see `nodes_of`.

    Days are left out, the oldest first, if the statement would list too many ranges; all of them if a node
    does not answer.
    """
    agreed = {hour: slot for hour, slot in slots.items() if slot.spans_of_nodes.keys() >= nodes.keys()}
    observed = _limited(
        Day(number, {hour: agreed[hour] for hour in _hours(number) if hour in agreed})
        for number in sorted(days, reverse=True)
    )
    if not observed or not nodes:
        return []
    ids = defaultdict[int, set[str]](set)
    for table in nodes.values():
        ids[table.shard].add(table.id)
    by_node = {
        node: {
            day.number: Day(day.number, day.slots, node, table.shard, frozenset(ids[table.shard]))
            for day in observed
        }
        for node, table in nodes.items()
    }
    answered = set[int]()
    query, values = _statement(observed, checked)
    for node, kind, part, hour, rows, detail in store.layout.rows_of_nodes(store, query, values, SETTINGS):
        answered.add(node)
        # A node that answers since `nodes_of`: its slots are unknown.
        if node not in by_node:
            return []
        by_number = by_node[node]
        if kind == "parts":
            # A part is named PARTITION_MIN_MAX_LEVEL, with the number of its last mutation if there was one.
            name, first_block, last_block, _, mutation = (*str(part).split("_"), "0")[:5]
            day_of_part = by_number[day_number(name)]
            day_of_part.rows += rows
            day_of_part.parts.append((int(first_block), int(last_block), int(mutation)))
        # the rollups may also have rows of days that are not observed
        elif (day := by_number.get(hour // HOURS_OF_DAY)) is not None:
            day.record(str(kind), hour, rows, detail, str(part))
    if store.layout.cluster and answered != nodes.keys():
        return []
    # After the parts: the list has the mutations of all of them.
    mutations = read_mutations(store)
    return [_of_all([by_number[day.number] for by_number in by_node.values()], mutations) for day in observed]


def _of_all(days: Sequence[Day], mutations: Sequence[tuple[Any, ...]]) -> Day:
    """Return a day of several nodes."""
    first = days[0]
    for day in days:
        day.changed_by = last_change(mutations, day_name(day.number), day.mutation)
    sources = {(day.shard, f"{','.join(sorted(day.tables))}/{day.mutation}") for day in days}
    shards = {shard for shard, _ in sources}
    if len(days) > 1:
        first = DayOfNodes(first.number, first.slots, nodes=days)
    # Replicas and parts get a mutation one after the other, and a statement may read any of them.
    if len(sources) == len(shards) and not any(day.is_mutating for day in days):
        first.source = " ".join(source for _, source in sorted(sources))
    return first


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


def _statement(days: Sequence[Day], checked: Checked) -> tuple[Sql, Parameters]:
    hours = defaultdict(list)
    for day in sorted(days, key=lambda day: day.number):
        for hour in day.hours:
            # Ascending over all days, so that a run of hours continues beyond midnight.
            hours[hour in day.slots].append(hour)
    values: Values = {"days": [day_name(day.number) for day in days]}
    open_ranges = [Range(first * HOUR_NS, end * HOUR_NS) for first, end in runs(hours[False])]
    selects = [_NODE, _PARTS, _OPEN.replace("{ranges}", condition(open_ranges, values, "open"))]
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
    return Sql(f"SELECT * FROM ({union})"), values  # noqa: S608 - as above
