"""RED: rate, errors and durations of the spans with the same service, operation, deployment or attribute."""

from __future__ import annotations

import time
from typing import Final, NotRequired, TypedDict

from receiver.engine.store import TABLE, Store
from receiver.query.filters.filter_sql import check_regexes, compiled
from receiver.query.group_key import parse_group_key
from receiver.query.limits import SETTINGS, LimitedLines, within_time
from receiver.query.parameter_types import LENGTH, TEXT, with_default
from receiver.query.question import Asked, Parameter
from receiver.query.requests import ESTIMATES, SPANS, counted_spans
from receiver.query.time_buckets import BUCKET_S, START, parse_every

PARAMETERS: Final = (
    Parameter(
        "by",
        "a field (service, operation, project, deployment, kind or status) or an attribute; "
        "service if omitted",
        schema=with_default(TEXT, "service"),
    ),
    Parameter(
        "every",
        "the length of an interval, such as 5m: prints a line for each group and interval",
        schema=LENGTH,
    ),
    SPANS,
)

_RED = """
SELECT
    group,
    {start}
    spans,
    errors,
    errors / spans AS error_rate,
    spans / {seconds} AS rate_per_s,
    quantiles[1] / 1e6 AS p50_ms,
    quantiles[2] / 1e6 AS p95_ms,
    quantiles[3] / 1e6 AS p99_ms,
    max_ns / 1e6 AS max_ms,
    estimated_spans,
    estimated_errors,
    estimated_spans_margin
FROM
(
    SELECT *, sum(spans) OVER (PARTITION BY group) AS group_spans
    FROM
    (
        SELECT
            {group} AS group,
            {bucket_s} AS bucket_s,
            count() AS spans,
            countIf(StatusCode = 'Error') AS errors,
            quantilesExact(0.5, 0.95, 0.99)(Duration) AS quantiles,
            max(Duration) AS max_ns,
            {estimates}
        FROM {table}
        WHERE Timestamp >= fromUnixTimestamp64Nano({{from_ns:Int64}})
          AND Timestamp < fromUnixTimestamp64Nano({{to_ns:Int64}})
          AND {counted}
          AND {has_group}
          AND ({condition})
        GROUP BY group, bucket_s
    )
)
ORDER BY group_spans DESC, group, bucket_s
LIMIT {{limit:UInt64}}
{settings}
"""
_SECONDS_OF_BUCKET: Final = (
    "if(bucket_s >= {end_s:Float64}, toFloat64({every_s:Int64}), "
    "least(toFloat64(bucket_s + {every_s:Int64}), {end_s:Float64}) "
    "- greatest(toFloat64(bucket_s), {begin_s:Float64}))"
)
"""Seconds of a bucket that are in the time range. Buckets after now hold spans of a clock that is ahead."""


class RedRow(TypedDict):
    """Rate, errors and durations of a group, in a time bucket if the question has `every`."""

    group: str
    start: NotRequired[str]
    spans: int
    errors: int
    error_rate: float
    rate_per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    estimated_spans: float | None
    estimated_errors: float | None
    estimated_spans_margin: float | None


def check(asked: Asked) -> None:
    """Raise `MalformedBody` for a parameter that is not valid."""
    # The query parses these again. Checked here, an error is reported before the query waits for a place.
    parse_group_key(asked.texts.get("by", "service"))
    counted_spans(asked.texts.get("spans", "requests"))
    if "every" in asked.texts:
        parse_every(asked.texts["every"], asked.range, time.time())


def red(store: Store, asked: Asked, now_s: float) -> LimitedLines:
    """Return a line for each group, or with `every` for each of its buckets; large groups first."""
    group = parse_group_key(asked.texts.get("by", "service"))
    check_regexes(store, asked.filter)
    condition, found = compiled(store, asked.filter), group.expressions(store)
    has_buckets = "every" in asked.texts
    statement = _RED.format(
        start=f"{START} AS start," if has_buckets else "",
        seconds=_SECONDS_OF_BUCKET if has_buckets else "({end_s:Float64} - {begin_s:Float64})",
        group=found.value,
        bucket_s=BUCKET_S if has_buckets else "toInt64(0)",
        estimates=ESTIMATES,
        table=TABLE,
        counted=counted_spans(asked.texts.get("spans", "requests")),
        has_group=found.is_present,
        condition=condition.sql,
        settings=SETTINGS,
    )
    every_s = parse_every(asked.texts["every"], asked.range, now_s) if has_buckets else 0
    begin_s, end_s = asked.range.past_s(now_s)
    lines = store.lines(
        statement,
        {
            **condition.parameters,
            **group.parameters,
            **asked.range.parameters(now_s),
            # Parameters are whole numbers or texts; the engine parses the text.
            "begin_s": str(begin_s),
            "end_s": str(end_s),
            "every_s": every_s,
            "limit": asked.limit + 1,
        },
    )
    return LimitedLines(within_time(lines), asked.limit)
