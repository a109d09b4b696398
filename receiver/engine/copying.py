"""Statements that compare and copy the rows of a store, by the hour in which they begin.

The API answers the same reads as an open store, so that a copy can be made while the receiver runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from receiver.engine.sql_text import Sql, compose, identifier, joined, names
from receiver.engine.store import TABLE, Parameters, RowSum, Store
from receiver.model import SegmentId
from receiver.transcode import COLUMNS

HOUR_S: Final = 3_600
HOUR_NS: Final = HOUR_S * 10**9
DAY_HOURS: Final = 24
HOURS_MAX: Final = 2_500_000
"""Number of the last hour: later times are out of range of the table's."""

SHARDS_MAX: Final = 1_000

Lines = Literal["days", "hours", "segments", "event-hours"]
Rows = Literal["spans", "events"]

_DAYS: Final = compose("""
SELECT partition_id AS day, sum(rows) AS spans
FROM system.parts
WHERE database = currentDatabase() AND table = '{table}' AND active
GROUP BY day
ORDER BY day
{settings}
""")
_HOURS: Final = compose(
    """
SELECT intDiv(toUnixTimestamp64Nano(Timestamp), {hour_ns}) AS hour
FROM {table}
WHERE {in_range}
GROUP BY hour
ORDER BY hour
{settings}
""",
    hour_ns=HOUR_NS,
)


def _sums_of_pieces(source: Sql) -> Sql:
    # Epoch 0 is that of the writer's probe row. The shard is as in engine/cluster.py.
    return compose(
        """
SELECT cityHash64(TraceId) % {shards:UInt32} AS shard, SegmentEpoch AS epoch, SegmentSeq AS seq,
       count() AS rows, {row_checksum} AS checksum
FROM {source}
WHERE {in_range} AND SegmentEpoch != 0
GROUP BY shard, epoch, seq
""",
        source=source,
    )


def pieces_of(table: Sql) -> Sql:
    """Return the statement that sums up the rows of segments by shard, as one array."""
    return compose(
        "SELECT groupArray((shard, epoch, seq, rows, checksum)) AS pieces FROM ({pieces})",
        pieces=_sums_of_pieces(table),
    )


_EVENT_HOURS: Final = compose(
    """
SELECT
    intDiv(toUnixTimestamp64Milli(FetchedAt), {hour_ms}) AS hour,
    count() AS rows,
    sum(cityHash64(ProjectId, DeploymentId, Created, EventId)) AS checksum
FROM {deployment_events} FINAL
GROUP BY hour
ORDER BY hour
{settings}
""",
    hour_ms=HOUR_S * 1_000,
)
# Sorted, so that equal rows make an equal body, and an INSERT that is sent again an equal block.
_SPANS: Final = compose(
    """
SELECT {columns}
FROM {table}
WHERE {in_range} AND SegmentEpoch = {epoch:UInt64} AND SegmentSeq IN {seqs:Array(UInt64)}
  AND cityHash64(TraceId) % {shards:UInt32} = {shard:UInt32}
ORDER BY ProjectId, ServiceName, Timestamp, TraceId, SpanId
{settings}
""",
    columns=names(name for name, _ in COLUMNS),
)
_EVENTS: Final = compose("""
SELECT *
FROM {deployment_events} FINAL
WHERE FetchedAt >= fromUnixTimestamp64Nano({from_ns:Int64})
  AND FetchedAt < fromUnixTimestamp64Nano({to_ns:Int64})
ORDER BY ProjectId, DeploymentId, Created, EventId
{settings}
""")
# Also after an INSERT whose answer is known: an earlier process may have sent it and not known the answer.
_COMPLETE_COMPANION: Final = compose("""
INSERT INTO {companion} (TraceId, Start, End)
SELECT TraceId, min(Timestamp), max(Timestamp)
FROM {table}
GLOBAL ANY LEFT JOIN
(
    SELECT cityHash64(TraceId) AS TraceHash, min(Start) AS First, max(End) AS Last
    FROM {companion}
    WHERE End >= fromUnixTimestamp64Nano({from_ns:Int64}) AND Start < fromUnixTimestamp64Nano({to_ns:Int64})
    GROUP BY TraceHash
) AS Known ON cityHash64(TraceId) = TraceHash
WHERE {in_range} AND TraceId != '' AND NOT Timestamp BETWEEN First AND Last
GROUP BY TraceId
{settings}, distributed_foreground_insert = 1
""")
_DELETE = """
ALTER TABLE {table} DELETE
WHERE Timestamp >= fromUnixTimestamp64Nano(toInt64({from_ns}))
  AND Timestamp < fromUnixTimestamp64Nano(toInt64({to_ns}))
  AND (SegmentEpoch, SegmentSeq) IN ({segments})
SETTINGS mutations_sync = 2
"""

_LINES: Final[Mapping[str, tuple[Sql, int]]] = {
    "days": (_DAYS, 0),
    "hours": (_HOURS, DAY_HOURS),
    "segments": (compose("{pieces} {settings}", pieces=_sums_of_pieces(identifier(TABLE))), 1),
    "event-hours": (_EVENT_HOURS, 0),
}
"""Statement, and the number of hours that it reads; 0: the whole table."""
_ROWS: Final[Mapping[str, Sql]] = {"spans": _SPANS, "events": _EVENTS}


class Piece(NamedTuple):
    """Rows of a segment that begin in an hour and belong to a shard."""

    shard: int
    """From 0, in the order of the `Distributed` table; 0 without a cluster."""
    segment: SegmentId


Pieces = Mapping[Piece, RowSum]


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is read: lines with counts and checksums, or rows."""

    what: Lines | Rows
    hour: Annotated[int, msgspec.Meta(ge=0, le=HOURS_MAX)] = 0
    """Hour in which the rows begin, or in which events were fetched, counted from 1970 in UTC.

    For `hours`: the first hour of a day.
    """
    epoch: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Epoch of the segments whose spans are read."""
    seqs: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] = ()
    shards: Annotated[int, msgspec.Meta(ge=1, le=SHARDS_MAX)] = 1
    """Number of shards that the rows of segments are divided by."""
    shard: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Shard whose spans are read."""

    @property
    def has_lines(self) -> bool:
        """Return whether the answer is a JSON object a line, and not an Arrow stream."""
        return self.what in _LINES

    def run(self, store: Store) -> Iterator[bytes]:
        """Yield the answer of a store."""
        if self.has_lines:
            return store.lines(_LINES[self.what][0], self.parameters())
        return store.arrow(_ROWS[self.what], self.parameters())

    def parameters(self) -> Parameters:
        """Return the values of the parameters of the statement."""
        _, hours = _LINES.get(self.what, ("", 1))
        values: dict[str, int | Sequence[int]] = dict(_bounds(self.hour, hours)) if hours else {}
        if self.what in {"segments", "spans"}:
            values |= {"shards": self.shards}
        if self.what == "spans":
            values |= {"epoch": self.epoch, "seqs": list(self.seqs), "shard": self.shard}
        return values


def named_pieces(sums: Iterable[Sequence[int]]) -> Pieces:
    """Return the rows of each piece, from the fields of `pieces_of`."""
    return {
        Piece(shard, SegmentId(epoch, seq)): RowSum(rows, checksum)
        for shard, epoch, seq, rows, checksum in sums
    }


def complete_companion(store: Store, hour: int) -> None:
    """Add what the companion table lacks of the spans of an hour. Idempotent."""
    store.rows(_COMPLETE_COMPANION, _bounds(hour))


def delete_segments(store: Store, hour: int, segments: Collection[SegmentId]) -> None:
    """Delete the rows of these segments that begin in an hour, and wait until they are gone."""
    pairs = (compose("({epoch}, {seq})", epoch=segment.epoch, seq=segment.seq) for segment in segments)
    bounds = {name: int(value) for name, value in _bounds(hour).items()}
    store.command(compose(_DELETE, segments=joined(", ", tuple(pairs)), **bounds))


def _bounds(hour: int, hours: int = 1) -> dict[str, int]:
    return {"from_ns": hour * HOUR_NS, "to_ns": (hour + hours) * HOUR_NS}
