"""Chart: a measure over time of the largest groups, by up to two fields or attributes, and of the rest.

Invariant: a value is computed from the spans of its line, also the percentile of the rest and of a whole
group. It is never derived from the values of other lines.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, NotRequired, TypedDict

from receiver.console.queries.aggregates import red_measures, time_buckets
from receiver.console.queries.aggregates.requests import SPANS, parse_spans
from receiver.console.queries.aggregates.rollup_lines import SOURCE, Statement, lines_of_groups, rollup_of
from receiver.console.queries.group_key import GroupKey, parse_attribute_key, parse_group_key
from receiver.console.queries.limits import LimitedLines, parse_limit
from receiver.console.queries.parameter_types import TEXT, whole_number, with_default
from receiver.console.queries.question import Asked, Parameter
from receiver.console.queries.selection import selection
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.time_range import TimeRange

TOP_DEFAULT: Final = 8
TOP_MAX: Final = 50
KEYS_MAX: Final = 2
"""Maximum number of fields or attributes that group the spans."""


class Measure(NamedTuple):
    """A measure of a set of spans: what its groups need to have, and its value."""

    value: Sql
    of_spans: Sql = red_measures.COUNTS_OF_SPANS
    of_rows: Sql = red_measures.COUNTS_OF_ROWS
    """The same columns, of the rows of a rollup."""
    size: Sql = Sql("spans")
    """Column that orders the groups. Spans for ratios and durations: a slow span is no large group."""


def _of_durations(value: Sql) -> Measure:
    return Measure(value, red_measures.OF_SPANS, red_measures.OF_ROWS)


_MEASURES: Final[Mapping[str, Measure]] = {
    "spans": Measure(Sql("spans")),
    "rate": Measure(Sql("spans / seconds")),
    "errors": Measure(Sql("errors"), size=Sql("errors")),
    "error_rate": Measure(Sql("errors / spans")),
    "p50": _of_durations(Sql("quantiles[1] / 1e6")),
    "p95": _of_durations(Sql("quantiles[2] / 1e6")),
    "p99": _of_durations(Sql("quantiles[3] / 1e6")),
    "max": _of_durations(Sql("max_ns / 1e6")),
}
_NUMBERS_OF_SPANS = """
    {counts},
    {function}(if(isFinite(toFloat64OrNull({number}) AS number), number, NULL)) AS of_number"""
_OF_NUMBERS: Final = {
    "sum": Measure(Sql("of_number"), Sql("sumOrNull"), size=Sql("of_number")),
    "avg": Measure(Sql("of_number"), Sql("avgOrNull")),
}
"""Measures of an attribute. No rollup has attributes."""
MEASURES: Final = tuple(_MEASURES)
"""Names of the measures that need no attribute."""
PARAMETERS: Final = (
    Parameter(
        "by",
        "one or two fields (service, operation, project, deployment, kind or status) or attributes, "
        "separated by a comma, such as http.route,deployment; all spans are one group if omitted",
        is_list=True,
    ),
    Parameter(
        "measure",
        "spans, rate (per second), errors, error_rate (0 to 1), p50, p95, p99 or max (of the durations, in "
        "milliseconds), or sum:KEY or avg:KEY of a numeric attribute; spans if omitted",
        schema=with_default(TEXT, "spans"),
    ),
    Parameter(
        "top",
        "number of groups; the spans of all smaller groups are one group, the rest",
        schema=whole_number(1, TOP_MAX, TOP_DEFAULT),
    ),
    time_buckets.every_parameter(": adds a line for each group and interval"),
    SPANS,
)

_CHART = """
SELECT
    group,
    {second_group}
    is_rest,
    if(is_total, NULL, {start}) AS start,
    if(is_total, NULL, {complete}) AS complete,
    spans,
    value
FROM
(
    SELECT
        *,
        if(is_total, {seconds_of_range}, {seconds_of_bucket}) AS seconds,
        {value} AS value,
        max(if(is_total, ifNull(toFloat64({size}), -inf), -inf)) OVER of_group AS group_size,
        max(if(is_total, spans, 0)) OVER of_group AS group_spans
    FROM
    (
        SELECT
            toBool({is_rest}) AS is_rest,
            if(is_rest, '', {first_key}) AS group,
            if(is_rest, '', {second_key}) AS second,
            {bucket_s} AS bucket_s,
            {is_total} AS is_total,
            {measures}
        FROM {source}
        GROUP BY GROUPING SETS {sets}
        -- Without keys, the set of the whole range has a line even if no span matches.
        HAVING spans > 0
    )
    WINDOW of_group AS (PARTITION BY group, second, is_rest)
)
ORDER BY is_total DESC, is_rest, group_size DESC, group_spans DESC, group, second, bucket_s
LIMIT {limit:UInt64}
{settings}
"""
_IS_REST = """({first_key}, {second_key}) NOT IN
            (
                SELECT first_key, second_key
                FROM
                (
                    SELECT {first_key} AS first_key, {second_key} AS second_key, {measures}
                    FROM {source}
                    GROUP BY first_key, second_key
                )
                ORDER BY {size} DESC NULLS LAST, spans DESC, first_key, second_key
                LIMIT {top:UInt64}
            )"""
_SETS: Final = Sql("((is_rest, group, second))")
_SETS_WITH_INTERVALS: Final = Sql("((is_rest, group, second), (is_rest, group, second, bucket_s))")


class ChartRow(TypedDict):
    """A measure of a group: over the whole range, and with `every` also in each interval that has spans."""

    group: str
    """Value of the first field or attribute; empty for the rest."""
    second_group: NotRequired[str]
    """Value of the second, if there are two."""
    is_rest: bool
    """Whether the group is all spans outside of the largest groups."""
    start: str | None
    """Start of the interval; null for the line of the whole range, which comes first."""
    complete: bool | None
    """Whether the whole interval is in the time range; null without an interval."""
    spans: int
    value: float | None
    """The measure; null if it is not defined, such as the average of an attribute that no span has.

    Also null if a sum is beyond the largest number, 1.8e308.
    """


class ChartParameters(NamedTuple):
    """Parameters of this question."""

    groups: tuple[GroupKey, ...]
    measure: Measure
    number: GroupKey | None
    """Attribute of which the measure is the sum or the average."""
    top: int
    counted: Sql
    every_s: int
    """Length of an interval; 0: only the lines of the whole range."""


class ChartSource(NamedTuple):
    """Table expression of a statement, and the columns that it computes."""

    table: Sql
    measures: Sql
    sizes: Sql


def parse_own(query: Mapping[str, str], time_range: TimeRange) -> ChartParameters:
    """Parse the parameters of this question."""
    measure, number = _parse_measure(query.get("measure", "spans"))
    return ChartParameters(
        groups=_parse_groups(query.get("by", "")),
        measure=measure,
        number=number,
        top=parse_limit(query.get("top", str(TOP_DEFAULT)), TOP_MAX, "top"),
        counted=parse_spans(query),
        every_s=time_buckets.parse_every(query, time_range, time.time()),
    )


def _parse_groups(text: str) -> tuple[GroupKey, ...]:
    keys = [key.strip() for key in text.split(",")] if text.strip() else []
    if len(set(keys)) < len(keys) or len(keys) > KEYS_MAX:
        raise MalformedBody("by: expected at most two different fields or attributes", field="by")
    return tuple(
        parse_group_key(key)._replace(parameter=name)
        for name, key in zip(("first_key", "second_key"), keys, strict=False)
    )


def _parse_measure(text: str) -> tuple[Measure, GroupKey | None]:
    if text in _MEASURES:
        return _MEASURES[text], None
    function, _, key = text.partition(":")
    if function not in _OF_NUMBERS:
        expected = ", ".join((*MEASURES, *(f"{name}:KEY" for name in _OF_NUMBERS)))
        raise MalformedBody(f"measure: expected one of {expected}", field="measure")
    return _OF_NUMBERS[function], parse_attribute_key(key, "measure")._replace(parameter="number_key")


def chart(store: Store, asked: Asked[ChartParameters], now_s: float) -> LimitedLines:
    """Return a line for each group, the largest first and the rest last, then the lines of its intervals."""
    own = asked.own
    selected = selection(store, asked, now_s)
    found = [group.expressions(store) for group in own.groups]
    where = selected.where(own.counted, *(key.is_present_sql for key in found))
    keys = [key.value_sql for key in found]
    parameters: dict[str, str | int] = {
        **selected.parameters,
        **time_buckets.bucket_parameters(asked.range, own.every_s, now_s),
        "top": own.top,
        "limit": asked.limit + 1,
    }
    for key in (*own.groups, *filter(None, (own.number,))):
        parameters |= key.parameters
    measure = own.measure
    if own.number:
        number = own.number.expressions(store).value_sql
        of_spans = compose(
            _NUMBERS_OF_SPANS, counts=red_measures.COUNTS_OF_SPANS, function=measure.of_spans, number=number
        )
        sizes, wanted = of_spans, None
    else:
        of_spans, sizes = measure.of_spans, red_measures.COUNTS_OF_SPANS
        wanted = rollup_of(asked, own.groups, own.counted, own.every_s, selected, now_s)
    spans = compose("{table} WHERE {where}", where=where)
    statement = Statement(
        _statement(own, keys, time_buckets.BUCKET_S, ChartSource(spans, of_spans, sizes)),
        _statement(
            own,
            keys,
            time_buckets.BUCKET_S_OF_HOUR,
            ChartSource(SOURCE, measure.of_rows, red_measures.COUNTS_OF_ROWS),
        ),
        parameters,
    )
    return lines_of_groups(store, statement, asked, own.groups, wanted, now_s)


def _statement(own: ChartParameters, keys: Sequence[Sql], bucket_s: Sql, source: ChartSource) -> Sql:
    """Return the statement. `keys`: expressions of the groups."""
    first_key, second_key = (*keys, *(Sql("''"),) * KEYS_MAX)[:KEYS_MAX]
    pieces = {"first_key": first_key, "second_key": second_key, "size": own.measure.size}
    of_intervals = own.every_s > 0
    return compose(
        _CHART,
        **pieces,
        source=source.table,
        measures=source.measures,
        second_group=Sql("second AS second_group,") if len(keys) == KEYS_MAX else Sql(""),
        is_rest=compose(_IS_REST, **pieces, source=source.table, measures=source.sizes) if keys else Sql("0"),
        start=time_buckets.START,
        complete=time_buckets.COMPLETE,
        bucket_s=bucket_s if of_intervals else Sql("toInt64(0)"),
        is_total=Sql("grouping(bucket_s) = 1") if of_intervals else Sql("1 = 1"),
        sets=_SETS_WITH_INTERVALS if of_intervals else _SETS,
        seconds_of_bucket=time_buckets.SECONDS_OF_BUCKET if of_intervals else time_buckets.SECONDS_OF_RANGE,
        seconds_of_range=time_buckets.SECONDS_OF_RANGE,
        value=own.measure.value,
    )
