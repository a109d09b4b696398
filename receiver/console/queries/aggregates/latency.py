"""Latency: numbers of spans by time and by duration, for a heatmap."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple, TypedDict

from receiver.console.queries.aggregates.requests import SPANS, parse_spans
from receiver.console.queries.aggregates.time_buckets import (
    BUCKET_S,
    COMPLETE,
    START,
    automatic_every_s,
    bucket_parameters,
    every_parameter,
    parse_every,
)
from receiver.console.queries.limits import LimitedLines, limited_lines
from receiver.console.queries.question import Asked
from receiver.console.queries.selection import selection
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import Parameters, Store
from receiver.time_range import TimeRange

PARAMETERS: Final = (every_parameter("; chosen from the time range if omitted"), SPANS)
BUCKETS_PER_OCTAVE = 4
_OCTAVES = 64

BOUNDS_NS: Final = sorted(
    {0} | {int(2 ** (step / BUCKETS_PER_OCTAVE)) for step in range(_OCTAVES * BUCKETS_PER_OCTAVE)}
)
"""Lower bounds of the duration buckets. Whole nanoseconds, so the shortest octaves have fewer than four."""
# The last bucket ends at the largest number that the column can hold.
_UPPER_NS: Final = [upper for _, upper in pairwise(BOUNDS_NS)] + [2**64 - 1]

_LATENCY = """
SELECT
    {start} AS start,
    {complete} AS complete,
    low_ns / 1e6 AS from_ms,
    transform(low_ns, {lower_ns:Array(UInt64)}, {upper_ns:Array(UInt64)}, toUInt64(0)) / 1e6 AS to_ms,
    spans,
    errors
FROM
(
    SELECT
        {bucket_s} AS bucket_s,
        roundDown(Duration, {lower_ns:Array(UInt64)}) AS low_ns,
        count() AS spans,
        countIf(StatusCode = 'Error') AS errors
    FROM {table}
    WHERE {where}
    GROUP BY bucket_s, low_ns
)
ORDER BY bucket_s, low_ns
LIMIT {limit:UInt64}
{settings}
"""


class LatencyRow(TypedDict):
    """Number of spans that started in a time bucket and took a duration of a bucket."""

    start: str
    complete: bool
    """Whether the whole time bucket is in the time range; otherwise the counts cover a part of it."""
    from_ms: float
    to_ms: float
    spans: int
    errors: int


class LatencyParameters(NamedTuple):
    """Parameters of this question."""

    counted: Sql
    every_s: int
    """Length of a time bucket; 0: chosen from the time range."""


def parse_own(query: Mapping[str, str], time_range: TimeRange) -> LatencyParameters:
    """Parse the parameters of this question."""
    return LatencyParameters(parse_spans(query), parse_every(query, time_range, time.time()))


def latency(store: Store, asked: Asked[LatencyParameters], now_s: float) -> LimitedLines:
    """Return a line for each pair of a time bucket and a duration bucket that has spans, oldest first."""
    selected = selection(store, asked, now_s)
    where = selected.where(asked.own.counted)
    statement = compose(_LATENCY, start=START, complete=COMPLETE, bucket_s=BUCKET_S, where=where)
    every_s = asked.own.every_s or automatic_every_s(asked.range, now_s)
    parameters: Parameters = {
        **selected.parameters,
        **bucket_parameters(asked.range, every_s, now_s),
        "lower_ns": BOUNDS_NS,
        "upper_ns": _UPPER_NS,
    }
    return limited_lines(store, statement, parameters, asked.limit)
