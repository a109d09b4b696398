"""Service map: which services call which, with calls, errors and percentiles of the duration of each edge.

A call is a Server or Consumer span whose parent is stored and belongs to another service. The called span
counts: its status, its duration, and the filter. A span that two senders sent counts once.

The statement groups each span by its id, and each call also by the id of its parent, which needs no join. If
the groups do not fit the memory, the engine writes them to disk.
"""

from __future__ import annotations

from typing import TypedDict

from receiver.engine.store import TABLE, Store
from receiver.query.filters.filter_sql import check_regexes, compiled
from receiver.query.limits import GROUP_MEMORY_BYTES_MAX, SETTINGS, LimitedLines, within_time
from receiver.query.question import Asked
from receiver.query.time_range import NS_MAX

CALLER_AGE_S_MAX = 3_600
"""How long before the time range a caller may have started: calls of older callers are not found."""
CLOCK_SKEW_S_MAX = 60
"""How long after the time range a caller may have started, by its own clock."""

_EDGES = """
SELECT
    client,
    server,
    count() AS calls,
    countIf(call.4) AS errors,
    errors / calls AS error_rate,
    quantileExact(0.5)(call.3) / 1e6 AS p50_ms,
    quantileExact(0.95)(call.3) / 1e6 AS p95_ms
FROM
(
    SELECT client, call.2 AS server, call
    FROM
    (
        SELECT
            minIf(ServiceName, NOT key.2) AS client,
            countIf(NOT key.2) AS callers,
            groupUniqArrayIf((SpanId, toString(ServiceName), Duration, StatusCode = 'Error'), key.2) AS calls
        FROM
        (
            SELECT
                TraceId,
                SpanId,
                ServiceName,
                Duration,
                StatusCode,
                arrayJoin(if(
                    Timestamp >= fromUnixTimestamp64Nano({{from_ns:Int64}})
                        AND Timestamp < fromUnixTimestamp64Nano({{to_ns:Int64}})
                        AND SpanKind IN ('Server', 'Consumer') AND ParentSpanId != '' AND ({condition}),
                    [(SpanId, false), (ParentSpanId, true)],
                    [(SpanId, false)]
                )) AS key
            FROM {table}
            WHERE Timestamp >= fromUnixTimestamp64Nano({{callers_from_ns:Int64}})
              AND Timestamp < fromUnixTimestamp64Nano({{callers_to_ns:Int64}})
        )
        GROUP BY TraceId, key.1
        HAVING callers > 0 AND notEmpty(calls)
    )
    ARRAY JOIN calls AS call
    WHERE client != server
)
GROUP BY client, server
ORDER BY calls DESC, client, server
LIMIT {{limit:UInt64}}
{settings}
"""


class EdgeRow(TypedDict):
    """The calls from one service to another."""

    client: str
    server: str
    calls: int
    errors: int
    error_rate: float
    p50_ms: float
    p95_ms: float


def service_map(store: Store, asked: Asked, now_s: float) -> LimitedLines:
    """Return the edges between services, one JSON object a line, those with the most calls first."""
    check_regexes(store, asked.filter)
    condition = compiled(store, asked.filter)
    # The statement has as many groups as spans.
    settings = f"{SETTINGS}, max_bytes_before_external_group_by = {GROUP_MEMORY_BYTES_MAX}"
    statement = _EDGES.format(table=TABLE, condition=condition.sql, settings=settings)
    from_ns, to_ns = asked.range.bounds_ns(now_s)
    parameters = {
        **condition.parameters,
        "from_ns": from_ns,
        "to_ns": to_ns,
        "callers_from_ns": max(0, from_ns - CALLER_AGE_S_MAX * 10**9),
        "callers_to_ns": min(to_ns + CLOCK_SKEW_S_MAX * 10**9, NS_MAX),
        "limit": asked.limit + 1,
    }
    return LimitedLines(within_time(store.lines(statement, parameters)), asked.limit)
