"""Statements that compare and copy the rows of a store, by the hour in which they begin.

The API answers the same reads as an open store, so that a copy can be made while the receiver runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Final, Literal

import msgspec

from receiver.engine.sql_text import Sql, compose, joined, names
from receiver.engine.store import Parameters, Store
from receiver.model import SegmentId
from receiver.transcode import COLUMNS

HOUR_S: Final = 3_600
HOUR_NS: Final = HOUR_S * 10**9
DAY_HOURS: Final = 24
HOURS_MAX: Final = 2_500_000
"""Number of the last hour: later times are out of range of the table's."""

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
# Epoch 0 is that of the writer's probe row.
_SEGMENTS: Final = compose("""
SELECT SegmentEpoch AS epoch, SegmentSeq AS seq, count() AS rows, {row_checksum} AS checksum
FROM {table}
WHERE {in_range} AND SegmentEpoch != 0
GROUP BY epoch, seq
{settings}
""")
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
{settings}
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
    "segments": (_SEGMENTS, 1),
    "event-hours": (_EVENT_HOURS, 0),
}
"""Statement, and the number of hours that it reads; 0: the whole table."""
_ROWS: Final[Mapping[str, Sql]] = {"spans": _SPANS, "events": _EVENTS}


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

    @property
    def has_lines(self) -> bool:
        """Return whether the answer is a JSON object a line, and not an Arrow stream."""
        return self.what in _LINES

    def run(self, store: Store) -> Iterator[bytes]:
        """Yield the answer of a store."""
        if self.has_lines:
            statement, hours = _LINES[self.what]
            return store.lines(statement, _bounds(self.hour, hours) if hours else None)
        segments: Parameters = {"epoch": self.epoch, "seqs": list(self.seqs)} if self.what == "spans" else {}
        return store.arrow(_ROWS[self.what], {**_bounds(self.hour), **segments})


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
