"""Error groups: the spans with an error by service, type of the error and template of its message."""

from __future__ import annotations

from typing import TypedDict

from receiver.console.queries.filters.attribute_sql import lookup
from receiver.console.queries.filters.filter_sql import check_regexes, compiled
from receiver.console.queries.limits import AGGREGATION_SETTINGS, LimitedLines, within_time
from receiver.console.queries.message_template import TEMPLATE_PARAMETERS, template_sql
from receiver.console.queries.question import Asked
from receiver.engine.promoted import promoted_columns
from receiver.engine.store import TABLE, Store

NAMES_PER_GROUP = 20
"""Maximum number of operations and of deployments that a line names. The line also has the total numbers."""

_EXCEPTION = "Events.Attributes[indexOf(Events.Name, 'exception')]"
"""Attributes of the first exception; empty if there is none."""
IS_ERROR = "(StatusCode = 'Error' OR has(Events.Name, 'exception'))"
ERROR_MESSAGE = template_sql(
    f"if({_EXCEPTION}['exception.message'] != '', {_EXCEPTION}['exception.message'], StatusMessage)"
)
"""Template of the message. It needs `TEMPLATE_PARAMETERS`."""
_ERRORS = """
SELECT
    ServiceName AS service,
    {type} AS type,
    {message} AS message,
    count() AS spans,
    uniqExact(TraceId) AS traces,
    concat(replaceOne(toString(min(Timestamp)), ' ', 'T'), 'Z') AS first,
    concat(replaceOne(toString(max(Timestamp)), ' ', 'T'), 'Z') AS last,
    uniqExact(SpanName) AS operation_count,
    arraySlice(arraySort(groupUniqArray(toString(SpanName))), 1, {names_max}) AS operations,
    uniqExactIf(DeploymentId, DeploymentId != '') AS deployment_count,
    arraySlice(arraySort(groupUniqArrayIf(toString(DeploymentId), DeploymentId != '')), 1, {names_max})
        AS deployments,
    -- the newest; a number, because comparing tuples takes ten times as long
    argMax(TraceId, bitShiftLeft(toUInt128(toUnixTimestamp64Nano(Timestamp)), 64) + cityHash64(TraceId))
        AS example_trace_id,
    if(countIf(isNull(SampleWeight)) = 0, sum(SampleWeight), NULL) AS estimated_spans
FROM {table}
WHERE Timestamp >= fromUnixTimestamp64Nano({{from_ns:Int64}})
  AND Timestamp < fromUnixTimestamp64Nano({{to_ns:Int64}})
  AND {is_error}
  AND ({condition})
GROUP BY service, type, message
ORDER BY spans DESC, service, type, message
LIMIT {{limit:UInt64}}
{settings}
"""


def error_type(store: Store) -> str:
    """Return the expression for the type of an error."""
    found = lookup(promoted_columns(store), "span", "error.type", "'error.type'")
    exception_type = f"{_EXCEPTION}['exception.type']"
    return f"if({exception_type} != '', {exception_type}, ifNull(toString({found.value}), ''))"


class ErrorRow(TypedDict):
    """Spans of a service whose errors have the same type and the same template of the message."""

    service: str
    type: str
    message: str
    spans: int
    traces: int
    first: str
    last: str
    operation_count: int
    operations: list[str]
    deployment_count: int
    deployments: list[str]
    example_trace_id: str
    estimated_spans: float | None


def error_groups(store: Store, asked: Asked, now_s: float) -> LimitedLines:
    """Return the groups, those with the most spans first. The example is the newest trace."""
    check_regexes(store, asked.filter)
    condition = compiled(store, asked.filter)
    statement = _ERRORS.format(
        type=error_type(store),
        message=ERROR_MESSAGE,
        is_error=IS_ERROR,
        names_max=NAMES_PER_GROUP,
        table=TABLE,
        condition=condition.sql,
        settings=AGGREGATION_SETTINGS,
    )
    lines = store.lines(
        statement,
        {
            **condition.parameters,
            **TEMPLATE_PARAMETERS,
            **asked.range.parameters(now_s),
            "limit": asked.limit + 1,
        },
    )
    return LimitedLines(within_time(lines), asked.limit)
