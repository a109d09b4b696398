"""Time buckets: the intervals of equal length, aligned to the epoch, of an answer over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from receiver.console.queries.parameter_types import LENGTH
from receiver.console.queries.question import Parameter
from receiver.engine.sql_text import Sql, compose
from receiver.errors import MalformedBody
from receiver.time_range import TimeRange, parse_seconds

BUCKETS_MAX = 1_000
_BUCKETS_AUTOMATIC = 60
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
_STEPS_S: Final = (
    *(1, 5, 10, 30),
    *(step * _MINUTE_S for step in (1, 5, 10, 30)),
    *(step * _HOUR_S for step in (1, 3, 6, 12)),
    *(step * _DAY_S for step in (1, 7, 30, 365)),
)
_BUCKET_S = "intDiv(toUnixTimestamp({time}), {every_s:Int64}) * {every_s:Int64}"
BUCKET_S: Final = compose(_BUCKET_S, time=Sql("Timestamp"))
"""Expression for the start of a span's bucket, in seconds since 1970."""
BUCKET_S_OF_HOUR: Final = compose(_BUCKET_S, time=Sql("Hour"))
"""The same for a row of a rollup, whose hour is in one bucket."""
START: Final = Sql("concat(replaceOne(toString(toDateTime(bucket_s)), ' ', 'T'), 'Z')")
"""Expression for the start of the bucket `bucket_s` as RFC 3339. The session's time zone is UTC."""

COMPLETE: Final = Sql(
    "toBool(bucket_s >= {begin_s:Float64} AND bucket_s + {every_s:Int64} <= {end_s:Float64})"
)
"""Expression for whether the whole bucket `bucket_s` is in the time range, and in the past."""

SECONDS_OF_BUCKET: Final = Sql(
    "if(bucket_s >= {end_s:Float64}, toFloat64({every_s:Int64}), "
    "least(toFloat64(bucket_s + {every_s:Int64}), {end_s:Float64}) "
    "- greatest(toFloat64(bucket_s), {begin_s:Float64}))"
)
"""Seconds of a bucket that are in the time range. Buckets after now hold spans of a clock that is ahead."""
SECONDS_OF_RANGE: Final = Sql("({end_s:Float64} - {begin_s:Float64})")


def every_parameter(about: str) -> Parameter:
    """Return the parameter for the length of a bucket."""
    return Parameter("every", f"the length of an interval, such as 5m{about}", schema=LENGTH)


def bucket_parameters(time_range: TimeRange, every_s: int, now_s: float) -> dict[str, str | int]:
    """Return the parameters of the expressions of this module."""
    begin_s, end_s = time_range.past_s(now_s)
    # Parameters are whole numbers or texts; the engine parses the text.
    return {"begin_s": str(begin_s), "end_s": str(end_s), "every_s": every_s}


def parse_every(query: Mapping[str, str], time_range: TimeRange, now_s: float) -> int:
    """Parse the length of a bucket, such as `5m`, into seconds; 0 if it is omitted."""
    if "every" not in query:
        return 0
    every_s = parse_seconds(query["every"])
    begin_s, end_s = time_range.past_s(now_s)
    if not every_s or end_s - begin_s > every_s * BUCKETS_MAX:
        raise MalformedBody(
            "every: expected a number and s, m, h or d, like 5m, for at most "
            f"{BUCKETS_MAX} intervals in the time range",
            field="every",
        )
    return every_s


def automatic_every_s(time_range: TimeRange, now_s: float) -> int:
    """Return the shortest usual length that divides the range into few enough buckets for a terminal."""
    begin_s, end_s = time_range.past_s(now_s)
    fitting = (step_s for step_s in _STEPS_S if end_s - begin_s <= step_s * _BUCKETS_AUTOMATIC)
    return next(fitting, _STEPS_S[-1])
