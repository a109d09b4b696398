"""Error groups: the spans with an error by service, type of the error and template of its message."""

from __future__ import annotations

from typing import TypedDict

from receiver.console.queries.filters.attribute_sql import lookup
from receiver.console.queries.limits import LimitedLines, limited_lines
from receiver.console.queries.message_template import TEMPLATE_PARAMETERS, template_sql
from receiver.console.queries.question import Asked
from receiver.console.queries.selection import selection
from receiver.engine.promoted import promoted_columns
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import Store

NAMES_PER_GROUP = 20
"""Maximum number of operations and of deployments that a line names. The line also has the total numbers."""

_EXCEPTION = Sql("Events.Attributes[indexOf(Events.Name, 'exception')]")
"""Attributes of the first exception; empty if there is none."""
IS_ERROR = Sql("(StatusCode = 'Error' OR has(Events.Name, 'exception'))")
ERROR_MESSAGE = template_sql(
    compose(
        "if({exception}['exception.message'] != '', {exception}['exception.message'], StatusMessage)",
        exception=_EXCEPTION,
    )
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
WHERE {where}
GROUP BY service, type, message
ORDER BY spans DESC, service, type, message
LIMIT {limit:UInt64}
{aggregation_settings}
"""


def error_type(store: Store) -> Sql:
    """Return the expression for the type of an error."""
    found = lookup(promoted_columns(store), "span", "error.type", "'error.type'")
    template = "if({type} != '', {type}, ifNull(toString({value}), ''))"
    type_ = compose("{exception}['exception.type']", exception=_EXCEPTION)
    return compose(template, type=type_, value=found.value_sql)


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


def error_groups(store: Store, asked: Asked[None], now_s: float) -> LimitedLines:
    """Return the groups, those with the most spans first. The example is the newest trace."""
    selected = selection(store, asked, now_s)
    statement = compose(
        _ERRORS,
        type=error_type(store),
        message=ERROR_MESSAGE,
        where=selected.where(IS_ERROR),
        names_max=NAMES_PER_GROUP,
    )
    return limited_lines(store, statement, {**selected.parameters, **TEMPLATE_PARAMETERS}, asked.limit)
