"""Arrivals: the spans that were received last, for a client that polls.

A span becomes readable some time after its receipt, and spans of several intakes in any order. A client
therefore requests the last minute that it has seen again, and recognizes a span by its segment and ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from receiver.console.queries.limits import LimitedLines, decimal_number, limited_lines
from receiver.console.queries.question import Asked
from receiver.console.queries.selection import selection
from receiver.engine.sql_text import compose
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.time_range import TimeRange

AFTER_MS_MAX = 2**43
"""The year 2248, before the end of the table's type."""
OVERLAP_MS = 60_000
"""Time before their newest span that clients request again: spans become readable out of order."""
_ARRIVALS = """
SELECT
    toUnixTimestamp64Milli(ReceivedAt) AS received_ms,
    concat(replaceOne(toString(Timestamp), ' ', 'T'), 'Z') AS start,
    ProjectId AS project,
    ServiceName AS service,
    SpanName AS name,
    SpanKind AS kind,
    Duration / 1e6 AS duration_ms,
    StatusCode AS status,
    StatusMessage AS status_message,
    TraceId AS trace_id,
    SpanId AS span_id,
    concat(lower(hex(SegmentEpoch)), '-', toString(SegmentSeq)) AS segment
FROM {table}
WHERE ReceivedAt >= fromUnixTimestamp64Milli({after_ms:Int64}, 'UTC')
  AND {where}
ORDER BY ReceivedAt DESC, Timestamp DESC, SpanId
LIMIT {limit:UInt64}
{settings}
"""


class ArrivalRow(TypedDict):
    """A received span."""

    received_ms: int
    start: str
    project: str
    service: str
    name: str
    kind: str
    duration_ms: float
    status: str
    status_message: str
    trace_id: str
    span_id: str
    segment: str


def arrivals(store: Store, asked: Asked[int], now_s: float) -> LimitedLines:
    """Return the matching spans that were received last, one JSON object a line, the last first.

    The own parameter is the earliest receive time in milliseconds since 1970.
    """
    selected = selection(store, asked, now_s)
    statement = compose(_ARRIVALS, where=selected.where())
    return limited_lines(store, statement, {**selected.parameters, "after_ms": asked.own}, asked.limit)


def parse_after(query: Mapping[str, str], _: TimeRange) -> int:
    """Parse the earliest receive time."""
    after_ms = decimal_number(query.get("after", "0"), len(str(AFTER_MS_MAX)))
    if after_ms is None:
        raise MalformedBody("after: expected milliseconds since 1970", field="after")
    return min(after_ms, AFTER_MS_MAX)
