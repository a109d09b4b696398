"""Slots: the hours that the rollups cover, and the state of the table that each was derived from.

Invariant: a derivation writes its slot as incomplete before it writes a row of a rollup, and as complete
after its last row. Versions only grow, and never come from a clock. So a slot that is complete with the same
version before and after a query was not derived again in between.
"""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, NamedTuple

from receiver.console.queries.rollup.tables import (
    CALLS,
    DEPLOYMENTS,
    HOUR_S,
    HOURS_OF_DAY,
    OPERATIONS,
    ROLLUPS,
    SLOTS,
    TOTALLED,
    rollup_compose,
)
from receiver.engine.retention import empty_rollups
from receiver.engine.sql_text import Sql, identifier, joined
from receiver.engine.store import Store
from receiver.errors import StoreTrouble

VERSION_STEP = 1 << 30
"""Step to the next version, with random bits, so that two derivations at once use different versions."""
RECEIVERS = 1 << 10
"""Number of receivers whose versions differ."""
DAY_VERSIONS = 1 << 10
"""Number of versions that rows by day may have for the same versions of the day's slots."""

_READ = rollup_compose("""
SELECT
    intDiv(toUnixTimestamp(Hour), {hour_s}) AS hour, Version,
    toUnixTimestamp64Milli(ReceivedTo) AS received_to, Source, Spans, RequestSpans
FROM {slots} FINAL
WHERE IsComplete
  AND Hour >= toDateTime({from_s:UInt32}, 'UTC') AND Hour < toDateTime({to_s:UInt32}, 'UTC')
""")
# Read back instead of counted among the spans: the slot then never claims rows that a rollup lacks. An hour
# without a row in a rollup has a slot, too: no spans is also an answer.
_WRITE = rollup_compose(
    """
INSERT INTO {slots}
SELECT toDateTime(slot.1 * {hour_s}, 'UTC'), slot.2, {is_complete:UInt8}, sum(spans), sum(request_spans),
    fromUnixTimestamp64Milli({received_to_ms:Int64}, 'UTC'), {source:String},
    2 * slot.2 + {is_complete:UInt8}
FROM
(
    SELECT arrayJoin(arrayZip({hours:Array(UInt32)}, {versions:Array(UInt64)})) AS slot,
        toUInt64(0) AS spans, toUInt64(0) AS request_spans
    UNION ALL
    SELECT (toUInt32(intDiv(toUnixTimestamp(Hour), {hour_s})), Version), Spans, 0
    FROM {operations} WHERE {in_hours}
    UNION ALL
    SELECT (toUInt32(intDiv(toUnixTimestamp(Hour), {hour_s})), Version), 0, Spans
    FROM {deployments} WHERE {in_hours}
)
WHERE has(arrayZip({hours:Array(UInt32)}, {versions:Array(UInt64)}), slot)
GROUP BY slot
{settings}
""",
    operations=OPERATIONS.table,
    deployments=DEPLOYMENTS.table,
    in_hours=Sql("Hour >= toDateTime({from_s:UInt32}, 'UTC') AND Hour < toDateTime({to_s:UInt32}, 'UTC')"),
)
_NEWEST_OF_TABLE = """
SELECT intDiv(max(Version), {divisor}) AS version FROM {rollup}
WHERE Hour >= toDateTime({{begin}:UInt32}, 'UTC') AND Hour < toDateTime({to_s:UInt32}, 'UTC')
"""
_NEWEST_VERSION = joined(
    " UNION ALL ",
    (
        rollup_compose(_NEWEST_OF_TABLE, rollup=table, divisor=divisor, begin=identifier(begin))
        for table, divisor, begin in (
            (SLOTS, 1, "from_s"),
            *((rollup.table, 1, "from_s") for rollup in ROLLUPS),
            *((rollup.day_table, HOURS_OF_DAY * DAY_VERSIONS, "day_s") for rollup in ROLLUPS),
            *((table, 1, "from_s") for table in (*TOTALLED, CALLS)),
        )
    ),
)
_INVALIDATE = rollup_compose("""
INSERT INTO {slots}
SELECT Hour, Version + 1, 0 AS is_complete, 0 AS spans, 0 AS requests, toDateTime64(0, 3, 'UTC'), Source,
    2 * (Version + 1)
FROM {slots} FINAL
WHERE Hour >= toDateTime({from_s:UInt32}, 'UTC')
""")
_BEGUN = rollup_compose("""
SELECT intDiv(toUnixTimestamp(Hour), {hour_s}), Version FROM {slots} FINAL
WHERE NOT IsComplete AND toUnixTimestamp64Milli(ReceivedTo) BETWEEN {from_ms:Int64} AND {to_ms:Int64}
  AND Hour >= toDateTime({from_s:UInt32}, 'UTC') AND Hour < toDateTime({to_s:UInt32}, 'UTC')
""")
RESERVED_MS = 3_600_000
"""How long an hour is left to the receiver that began to derive it."""
CLOCKS_DIFFER_MS = 300_000
"""How much the clock of another receiver may be ahead. Hours that are begun later are not left to it."""
SECONDS_END = (1 << 32) - 1
"""The last time that the type of the column can hold."""


class SpansOfNode(NamedTuple):
    """Spans that the rollups of a node count in an hour."""

    spans: int
    request_spans: int


class Slot(NamedTuple):
    """An hour that the rollups cover."""

    hour: int
    """Hours since 1970."""
    version: int
    received_to_ms: int
    """Only spans that were received until then are covered."""
    source: str
    """Of each shard, the ids of the tables of its nodes, and the last mutation of the day's parts."""
    spans_of_nodes: Mapping[int, SpansOfNode] = {}
    """Spans of the shard of each node."""

    @property
    def spans(self) -> int:
        """Return the number of spans; of the largest shard."""
        return max((of.spans for of in self.spans_of_nodes.values()), default=0)


def read_slots(store: Store, from_hour: int, to_hour: int) -> dict[int, Slot]:
    """Return the complete slots of a range of hours that the nodes agree on."""
    # FINAL in the statement: an incomplete row must hide the complete row that it replaces before the engine
    # merges both, and there is only a row for each hour.
    times = {"from_s": _seconds(from_hour), "to_s": _seconds(to_hour)}
    rows = store.layout.rows_of_nodes(store, _READ, times)
    spans_of_nodes = defaultdict[tuple[Any, ...], dict[int, SpansOfNode]](dict)
    for node, *state, spans, request_spans in rows:
        spans_of_nodes[*state,][node] = SpansOfNode(spans, request_spans)
    states = Counter(hour for hour, *_ in spans_of_nodes)
    slots = (Slot(*state)._replace(spans_of_nodes=spans) for state, spans in spans_of_nodes.items())
    return {slot.hour: slot for slot in slots if states[slot.hour] == 1}


def write_slots(store: Store, slots: Sequence[Slot], *, is_complete: bool) -> None:
    """Write slots as incomplete before their derivation, and as complete after it.

    All have the same `received_to_ms` and source.
    """
    hours = [slot.hour for slot in slots]
    store.rows(
        store.layout.on_shards(_WRITE),
        {
            "hours": hours,
            "versions": [slot.version for slot in slots],
            "from_s": min(hours) * HOUR_S,
            "to_s": (max(hours) + 1) * HOUR_S,
            "received_to_ms": slots[0].received_to_ms,
            "source": slots[0].source,
            "is_complete": int(is_complete),
        },
    )


def next_version(store: Store, from_hour: int, to_hour: int) -> int:
    """Return a version that is higher than any that was used for these hours."""
    # Also of the rollups: if the slots were lost, rows of old versions remain, and must not match a new slot.
    # The versions of rows by day are higher by `DAY_VERSIONS` than the sum of the versions of 24 slots.
    day = from_hour // HOURS_OF_DAY * HOURS_OF_DAY
    times = {"from_s": _seconds(from_hour), "to_s": _seconds(to_hour), "day_s": _seconds(day)}
    versions = store.layout.rows_of_nodes(store, _NEWEST_VERSION, times)
    step = max(int(version) for _, version in versions) // VERSION_STEP + 1
    return step * VERSION_STEP + secrets.randbelow(VERSION_STEP // RECEIVERS) * RECEIVERS + _id_of(store)


def _id_of(store: Store) -> int:
    """Return what versions of this receiver end with, also after a restart."""
    return int.from_bytes(blake2b(store.receiver.encode(), digest_size=4).digest()) % RECEIVERS


def is_of_other(store: Store, slot: Slot, received_to_ms: int) -> bool:
    """Return whether another receiver derived an hour just now. The embedded store has one receiver."""
    is_recent = slot.received_to_ms in _reserving_times(received_to_ms)
    return is_recent and not store.embedded and slot.version % RECEIVERS != _id_of(store)


def reserved_hours(store: Store, from_hour: int, to_hour: int, received_to_ms: int) -> set[int]:
    """Return the hours of a range that another receiver derives now. `received_to_ms`: of now."""
    if store.embedded:
        return set()
    times = {"from_s": _seconds(from_hour), "to_s": _seconds(to_hour)}
    reserving = _reserving_times(received_to_ms)
    begun = store.rows(_BEGUN, {**times, "from_ms": reserving.start, "to_ms": reserving.stop - 1})
    return {hour for hour, version in begun if version % RECEIVERS != _id_of(store)}


def _reserving_times(now_ms: int) -> range:
    return range(now_ms - RESERVED_MS + 1, now_ms + CLOCKS_DIFFER_MS)


def release(store: Store, slots: Sequence[Slot]) -> None:
    """Let other receivers derive hours that are still incomplete."""
    if not store.embedded:
        with suppress(StoreTrouble):
            write_slots(store, [slot._replace(received_to_ms=0) for slot in slots], is_complete=False)


def invalidate(store: Store, from_hour: int | None) -> None:
    """Mark every slot from this hour on as incomplete; without an hour, empty the rollups."""
    if from_hour is not None:
        # With a higher version: of two rows with the same version, the engine keeps the complete one.
        store.rows(store.layout.on_shards(_INVALIDATE), {"from_s": _seconds(from_hour)})
        return
    empty_rollups(store)


def _seconds(hour: int) -> int:
    # A question may ask for times beyond those that the type of the column can hold.
    return min(max(0, hour * HOUR_S), SECONDS_END)
