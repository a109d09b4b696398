"""Error groups: the spans with an error by service, type of the error and template of its message."""

from __future__ import annotations

from typing import Final, TypedDict

from receiver.console.queries.aggregates.proven_hours import ProvenHours
from receiver.console.queries.aggregates.totalled import DEPLOYMENTS_SEEN, errors_of, source, totalled_lines
from receiver.console.queries.limits import LimitedLines, within_time
from receiver.console.queries.message_template import TEMPLATE_PARAMETERS
from receiver.console.queries.question import Asked
from receiver.console.queries.rollup.ranges import Values
from receiver.console.queries.selection import selection
from receiver.engine.sql_text import Sql, compose, names
from receiver.engine.store import Store

NAMES_PER_GROUP = 20
"""Maximum number of operations and of deployments that a line names. The line also has the total numbers."""
INTERVALS: Final = 30
"""Number of intervals of equal length into which the time range is divided for the counts of a group."""

_GROUPS = """
SELECT
    ServiceName AS service,
    Type AS type,
    Message AS message,
    count() AS spans,
    uniqExact(TraceId) AS traces,
    concat(replaceOne(toString(min(Timestamp)), ' ', 'T'), 'Z') AS first,
    concat(replaceOne(toString(max(Timestamp)), ' ', 'T'), 'Z') AS last,
    countResample(0, {intervals}, 1)({interval}) AS over_time,
    uniqExact(SpanName) AS operation_count,
    arraySlice(arraySort(groupUniqArray(toString(SpanName))), 1, {names_max}) AS operations,
    sumMapIf([toString(DeploymentId)], [toUInt64(1)], DeploymentId != '') AS by_deployment,
    arraySort((name, spans) -> (-spans, name), by_deployment.1, by_deployment.2) AS by_spans,
    length(by_spans) AS deployment_count,
    arraySlice(by_spans, 1, {names_max}) AS deployments,
    arraySlice(arrayReverseSort(by_deployment.2), 1, {names_max}) AS deployment_spans,
    -- the newest; a number, because comparing tuples takes ten times as long
    argMax(TraceId, bitShiftLeft(toUInt128(toUnixTimestamp64Nano(Timestamp)), 64) + cityHash64(TraceId))
        AS example_trace_id,
    if(countIf(isNull(SampleWeight)) = 0, sum(SampleWeight), NULL) AS estimated_spans
FROM {errors}
GROUP BY service, type, message
ORDER BY spans DESC, service, type, message
LIMIT {limit:UInt64}
"""
# Without `until`, spans of senders whose clocks are ahead count, too: in the last interval.
_INTERVAL = compose(
    "least(intDiv(toUnixTimestamp64Nano(Timestamp) - {from_ns:Int64}, {interval_ns:Int64}), {intervals} - 1)",
    intervals=INTERVALS,
)
_HAS_DEPLOYMENT = Sql("DeploymentId != ''")
# Without the filter of the query: an error that the filter hides in earlier deployments is not new.
_NEW_SINCE = """
SELECT
    service,
    type,
    message,
    arraySort(groupArray(first_with)) AS new_since
FROM
(
    SELECT
        service,
        type,
        message,
        argMin(deployment, place) AS first_with
    FROM
    (
        SELECT DISTINCT
            ServiceName AS service,
            Type AS type,
            Message AS message,
            ProjectId AS project,
            DeploymentId AS deployment
        FROM {errors}
    ) AS occurrences
    INNER JOIN
    (
        SELECT
            ProjectId AS project,
            DeploymentId AS deployment,
            row_number() OVER (PARTITION BY ProjectId ORDER BY min(First), DeploymentId) AS place
        FROM {seen}
        GROUP BY ProjectId, DeploymentId
    ) AS seen USING (project, deployment)
    GROUP BY service, type, message, project
    HAVING min(place) > 1
)
GROUP BY service, type, message
"""
_ERRORS = """
SELECT {columns}
FROM ({groups}) AS found
LEFT JOIN ({new_since}) AS news USING (service, type, message)
ORDER BY spans DESC, service, type, message
{aggregation_settings}
"""


class ErrorRow(TypedDict):
    """Spans of a service whose errors have the same type and the same template of the message."""

    service: str
    type: str
    message: str
    spans: int
    traces: int
    first: str
    last: str
    over_time: list[int]
    """Number of spans in each of `INTERVALS` intervals of equal length of the time range."""
    operation_count: int
    operations: list[str]
    deployment_count: int
    deployments: list[str]
    """Those with the most spans of the group first."""
    deployment_spans: list[int]
    new_since: list[str]
    """Of each project: its first deployment with the group, if earlier deployments are stored without it."""
    example_trace_id: str
    estimated_spans: float | None


def error_groups(store: Store, asked: Asked[None], now_s: float) -> LimitedLines:
    """Return the groups, those with the most spans first. The example is the newest trace."""
    selected = selection(store, asked, now_s)
    errors = errors_of(store)
    begin_s, end_s = asked.range.past_s(now_s)
    interval_ns = int((end_s - begin_s) * 1e9) // INTERVALS + 1

    def statement(hours: ProvenHours) -> tuple[Sql, Values]:
        values: Values = {**selected.parameters, **TEMPLATE_PARAMETERS}
        values |= {"interval_ns": interval_ns, "limit": asked.limit + 1}
        filtered = source(errors, hours, selected.condition, values)
        groups = compose(
            _GROUPS, errors=filtered, intervals=INTERVALS, interval=_INTERVAL, names_max=NAMES_PER_GROUP
        )
        new_since = compose(
            _NEW_SINCE,
            errors=source(errors, hours, _HAS_DEPLOYMENT, values),
            seen=source(DEPLOYMENTS_SEEN, hours, _HAS_DEPLOYMENT, values),
        )
        columns = names(ErrorRow.__annotations__)
        return compose(_ERRORS, columns=columns, groups=groups, new_since=new_since), values

    lines = totalled_lines(store, asked, now_s, [errors, DEPLOYMENTS_SEEN], statement)
    return LimitedLines(within_time(lines), asked.limit)
