"""Slots: the hours that the rollups cover, and the state of the table that each was derived from.

Invariant: a derivation writes its slot as incomplete before it writes a row of a rollup, and as complete
after its last row. Versions only grow, and never come from a clock. So a slot that is complete with the same
version before and after a query was not derived again in between.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from receiver.console.queries.rollup.tables import (
    CALLS,
    HOUR_S,
    HOURS_OF_DAY,
    ROLLUPS,
    SLOTS,
    TOTALLED,
    rollup_compose,
)
from receiver.engine.retention import empty_rollups
from receiver.engine.sql_text import identifier, joined
from receiver.engine.store import Store

VERSION_STEP_MAX = 1 << 20
"""Maximum random step to the next version, so that two receivers on a server use different versions."""
DAY_VERSIONS = 1 << 10
"""Number of versions that rows by day may have for the same versions of the day's slots."""

_READ = rollup_compose("""
SELECT
    intDiv(toUnixTimestamp(Hour), {hour_s}), Version, Spans, RequestSpans,
    toUnixTimestamp64Milli(ReceivedTo), Source
FROM {slots} FINAL
WHERE IsComplete
  AND Hour >= toDateTime({from_s:UInt32}, 'UTC') AND Hour < toDateTime({to_s:UInt32}, 'UTC')
""")
_WRITE = rollup_compose("""
INSERT INTO {slots}
SELECT toDateTime(slot.1 * {hour_s}, 'UTC'), slot.2, {is_complete:UInt8}, slot.3, slot.4,
    fromUnixTimestamp64Milli({received_to_ms:Int64}, 'UTC'), {source:String},
    2 * slot.2 + {is_complete:UInt8}
FROM
(
    SELECT arrayJoin(arrayZip(
        {hours:Array(UInt32)}, {versions:Array(UInt64)},
        {spans:Array(UInt64)}, {request_spans:Array(UInt64)}
    )) AS slot
)
""")
_NEWEST_OF_TABLE = """
SELECT intDiv(max(Version), {divisor}) FROM {rollup}
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
SELECT Hour, Version + 1, 0, 0, 0, ReceivedTo, Source, 2 * (Version + 1)
FROM {slots} FINAL
WHERE Hour >= toDateTime({from_s:UInt32}, 'UTC')
""")
SECONDS_END = (1 << 32) - 1
"""The last time that the type of the column can hold."""


class Slot(NamedTuple):
    """An hour that the rollups cover."""

    hour: int
    """Hours since 1970."""
    version: int
    spans: int
    request_spans: int
    received_to_ms: int
    """Only spans that were received until then are covered."""
    source: str
    """Id of the table and the last mutation of the day's parts."""


def read_slots(store: Store, from_hour: int, to_hour: int) -> dict[int, Slot]:
    """Return the complete slots of a range of hours."""
    # FINAL in the statement: an incomplete row must hide the complete row that it replaces before the engine
    # merges both, and there is only a row for each hour.
    rows = store.rows(_READ, {"from_s": _seconds(from_hour), "to_s": _seconds(to_hour)})
    return {slot.hour: slot for slot in (Slot(*row) for row in rows)}


def write_slots(store: Store, slots: Sequence[Slot], *, is_complete: bool) -> None:
    """Write slots as incomplete before their derivation, and as complete after it.

    All have the same `received_to_ms` and source.
    """
    store.rows(
        _WRITE,
        {
            "hours": [slot.hour for slot in slots],
            "spans": [slot.spans for slot in slots],
            "request_spans": [slot.request_spans for slot in slots],
            "versions": [slot.version for slot in slots],
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
    versions = store.rows(
        _NEWEST_VERSION, {"from_s": _seconds(from_hour), "to_s": _seconds(to_hour), "day_s": _seconds(day)}
    )
    return max(int(version) for (version,) in versions) + 1 + secrets.randbelow(VERSION_STEP_MAX)


def invalidate(store: Store, from_hour: int | None) -> None:
    """Mark every slot from this hour on as incomplete; without an hour, empty the rollups."""
    if from_hour is not None:
        # With a higher version: of two rows with the same version, the engine keeps the complete one.
        store.rows(_INVALIDATE, {"from_s": _seconds(from_hour)})
        return
    empty_rollups(store)


def _seconds(hour: int) -> int:
    # A question may ask for times beyond those that the type of the column can hold.
    return min(max(0, hour * HOUR_S), SECONDS_END)
