"""Table side of the ledger comparison: row counts and checksums by drain, project, hour and epoch.

One statement counts rows by epoch and hour. Further statements read the rows of our epochs with checksums and
the companion table, each for one hour or for several hours with few rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import Parameters, Store
from receiver.ledger.balance import Balance
from receiver.ledger.line_sums import CHECKSUMS, HOUR_MS
from receiver.model import Heading, SegmentId

VERIFY_ROWS_MAX = 10_000_000
"""Maximum number of rows that one statement of `ledger --verify` reads; a single hour may have more."""

RECENT_S = 600
"""Rows received this recently are counted by segment, because they may change during the count."""
HOURS_END = 2_777_777
"""End of the last range of hours: in the year 2286."""

_RANGE = Sql("""ReceivedAt >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
  AND ReceivedAt < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')""")

_compose = compose.knowing(hour_ms=HOUR_MS, range=_RANGE)
_EPOCHS = _compose("""
SELECT SegmentEpoch, toUInt32(intDiv(toUnixTimestamp64Milli(ReceivedAt), {hour_ms})) AS Hour, count()
FROM {table}
WHERE {range} AND SegmentEpoch != 0
GROUP BY SegmentEpoch, Hour
{settings}
""")

_ROWS = _compose("""
WITH (SELECT (min(Timestamp), max(Timestamp)) FROM {table} WHERE {range}) AS Times
SELECT
    Drain, ProjectId, toUInt32(intDiv(toUnixTimestamp64Milli(ReceivedAt), {hour_ms})) AS Hour,
    ReceivedAt >= fromUnixTimestamp64Milli({recent_ms:Int64}, 'UTC')
        OR SegmentSeq IN {seqs:Array(UInt64)} AND SegmentEpoch IN {waiting:Array(UInt64)} AS MayMove,
    if(MayMove, SegmentEpoch, 0) AS Epoch, if(MayMove, SegmentSeq, 0) AS Seq,
    count(), {row_checksum}, countIf(TraceId != '' AND NOT Timestamp BETWEEN First AND Last)
FROM {table}
GLOBAL ANY LEFT JOIN
(
    SELECT cityHash64(TraceId) AS TraceHash, min(Start) AS First, max(End) AS Last
    FROM {companion}
    WHERE End >= Times.1 AND Start <= Times.2
    GROUP BY TraceHash
) AS Companion ON cityHash64(TraceId) = TraceHash
WHERE SegmentEpoch IN {epochs:Array(UInt64)} AND {range}
GROUP BY Drain, ProjectId, Hour, MayMove, Epoch, Seq
{settings}
""")


class Rows(NamedTuple):
    rows: int = 0
    checksum: int = 0
    unreachable: int = 0
    """Rows that the companion table lacks or has at other times, so that a trace query misses them."""

    def plus(self, other: Rows) -> Rows:
        checksum = (self.checksum + other.checksum) % CHECKSUMS
        return Rows(self.rows + other.rows, checksum, self.unreachable + other.unreachable)


class UnknownEpoch(msgspec.Struct, frozen=True):
    """Rows of an epoch that the ledger does not know."""

    epoch: str
    rows: int
    first_hour: int
    last_hour: int


class TableRows(NamedTuple):
    by_segment: list[tuple[Heading, SegmentId, Rows]]
    """The segment is filled only for rows that may change during the count."""
    by_epoch: Mapping[int, Counter[int]]
    """Epoch → hour → rows, of all receivers that write to this table."""


def read_table(store: Store, before: Balance, since_hour: int, now_s: float) -> TableRows:
    """Return counts and checksums of the rows received in this hour or later."""
    by_epoch: dict[int, Counter[int]] = {}
    for epoch, hour, rows in store.rows(_EPOCHS, _range(since_hour, HOURS_END)):
        by_epoch.setdefault(epoch, Counter())[hour] = rows
    # Others may write to the same table, and their rows have no entry in our ledger.
    epochs = {*before.sums.epochs, *(segment.epoch for segment in before.waiting)}
    hours = sum((by_epoch[epoch] for epoch in epochs if epoch in by_epoch), Counter[int]())
    parameters: Parameters = {
        "recent_ms": int(now_s - RECENT_S) * 1_000,
        "seqs": sorted({segment.seq for segment in before.waiting}),
        "waiting": sorted({segment.epoch for segment in before.waiting}),
        "epochs": sorted(epochs),
    }
    sums = [
        (Heading(drain, project, hour), SegmentId(epoch, seq), Rows(*sums))
        for first, end in hours_at_a_time(hours, since_hour)
        for drain, project, hour, _, epoch, seq, *sums in store.rows(
            _ROWS, {**parameters, **_range(first, end)}
        )
    ]
    return TableRows(sums, by_epoch)


def hours_at_a_time(hours: Mapping[int, int], since_hour: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of hours from `since_hour` on, each with a limited number of rows or a single hour."""
    first, rows = since_hour, 0
    for hour in sorted(hours):
        if rows and rows + hours[hour] > VERIFY_ROWS_MAX:
            yield first, hour
            first, rows = hour, 0
        rows += hours[hour]
    # Without an end, so that rows which arrive meanwhile or were received by a clock ahead are counted.
    yield first, HOURS_END


def unknown_epochs(by_epoch: Mapping[int, Counter[int]], *balances: Balance) -> Sequence[UnknownEpoch]:
    """Return the epochs that are in the table and in none of these balances."""
    # From the balance before and the one after the count: an intake may start, or be recorded, during it.
    known = {epoch for balance in balances for epoch in (*balance.sums.epochs, *balance.part_epochs)}
    known |= {segment.epoch for balance in balances for segment in balance.waiting}
    return [
        UnknownEpoch(f"{epoch:016x}", hours.total(), min(hours), max(hours))
        for epoch, hours in sorted(by_epoch.items())
        if epoch not in known
    ]


def _range(first_hour: int, end_hour: int) -> Parameters:
    return {"from_ms": first_hour * HOUR_MS, "to_ms": end_hour * HOUR_MS}
