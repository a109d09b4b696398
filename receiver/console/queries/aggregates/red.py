"""RED: rate, errors and durations of the spans with the same service, operation, deployment or attribute."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, NamedTuple, NotRequired, TypedDict

from receiver.console.queries.aggregates import red_measures, time_buckets
from receiver.console.queries.aggregates.requests import SPANS, parse_spans
from receiver.console.queries.aggregates.rollup_lines import SOURCE, Statement, lines_of_groups, rollup_of
from receiver.console.queries.group_key import GroupKey, parse_group_key
from receiver.console.queries.limits import LimitedLines
from receiver.console.queries.parameter_types import TEXT, with_default
from receiver.console.queries.question import Asked, Parameter
from receiver.console.queries.rollup.tables import IS_REQUEST
from receiver.console.queries.selection import selection
from receiver.engine.sql_text import Sql, compose, joined
from receiver.engine.store import Store
from receiver.time_range import TimeRange

PARAMETERS: Final = (
    Parameter(
        "by",
        "a field (service, operation, project, deployment, kind or status) or an attribute; "
        "service if omitted",
        schema=with_default(TEXT, "service"),
    ),
    time_buckets.every_parameter(": prints a line for each group and interval"),
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
    {percentiles},
    max_ns / 1e6 AS max_ms,
    estimated_spans,
    estimated_errors,
    estimated_spans_margin
FROM
(
    SELECT *, {group_spans} AS group_spans
    FROM
    (
        SELECT
            {group} AS group,
            {bucket_s} AS bucket_s,
            {measures}
        FROM {source}
        GROUP BY group, bucket_s
    )
)
ORDER BY group_spans DESC, group, bucket_s
LIMIT {limit:UInt64}
{settings}
"""
_START: Final = compose(
    "{start} AS start, {complete} AS complete,", start=time_buckets.START, complete=time_buckets.COMPLETE
)


class RedRow(TypedDict):
    """Rate, errors and durations of a group, in a time bucket if the question has `every`."""

    group: str
    start: NotRequired[str]
    complete: NotRequired[bool]
    """Whether the whole bucket is in the time range; otherwise the counts cover a part of it."""
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


class RedParameters(NamedTuple):
    """Parameters of this question."""

    group: GroupKey
    counted: Sql = IS_REQUEST
    """Condition for the spans that count."""
    every_s: int = 0
    """Length of a time bucket; 0: no line for each bucket."""


def parse_own(query: Mapping[str, str], time_range: TimeRange) -> RedParameters:
    """Parse the parameters of this question."""
    return RedParameters(
        group=parse_group_key(query.get("by", "service")),
        counted=parse_spans(query),
        every_s=time_buckets.parse_every(query, time_range, time.time()),
    )


def red(
    store: Store, asked: Asked[RedParameters], now_s: float, percentiles: Sql = red_measures.PERCENTILES
) -> LimitedLines:
    """Return a line for each group, or with `every` for each of its buckets; large groups first.

    `percentiles`: the columns of the line with percentiles.
    """
    group, counted, every_s = asked.own
    selected = selection(store, asked, now_s)
    found = group.expressions(store)
    where = selected.where(counted, found.is_present_sql)
    parameters = {
        **selected.parameters,
        **group.parameters,
        **time_buckets.bucket_parameters(asked.range, every_s, now_s),
        "limit": asked.limit + 1,
    }
    statement = Statement(
        _statement(
            found.value_sql,
            time_buckets.BUCKET_S if every_s else None,
            joined(", ", (red_measures.OF_SPANS, red_measures.ESTIMATES_OF_SPANS)),
            percentiles,
            compose("{table} WHERE {where}", where=where),
        ),
        _statement(
            found.value_sql,
            time_buckets.BUCKET_S_OF_HOUR if every_s else None,
            joined(", ", (red_measures.OF_ROWS, red_measures.ESTIMATES_OF_ROWS)),
            percentiles,
            SOURCE,
        ),
        parameters,
    )
    wanted = rollup_of(asked, (group,), counted, every_s, selected, now_s)
    return lines_of_groups(store, statement, asked, (group,), wanted, now_s)


def _statement(group: Sql, bucket_s: Sql | None, measures: Sql, percentiles: Sql, source: Sql) -> Sql:
    """Return the statement. `bucket_s`: `None` without `every`."""
    return compose(
        _RED,
        start=_START if bucket_s else Sql(""),
        seconds=time_buckets.SECONDS_OF_BUCKET if bucket_s else time_buckets.SECONDS_OF_RANGE,
        group=group,
        group_spans=Sql("sum(spans) OVER (PARTITION BY group)") if bucket_s else Sql("spans"),
        bucket_s=bucket_s or Sql("toInt64(0)"),
        measures=measures,
        percentiles=percentiles,
        source=source,
    )
