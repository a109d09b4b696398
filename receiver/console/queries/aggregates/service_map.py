"""Service map: which services call which, with calls, errors and percentiles of the duration of each edge.

A call is a Server or Consumer span whose parent is stored and belongs to another service. The called span
counts: its status, its duration, and the filter. A span that two senders sent counts once.

The statement joins the spans with the calls by hashes of trace and span id, which are faster than the ids and
differ for different spans in practice. If the calls do not fit the memory, the engine writes them to disk.
"""

from __future__ import annotations

from typing import TypedDict

from receiver.console.queries.limits import (
    GROUP_MEMORY_BYTES_MAX,
    LimitedLines,
    limited_lines,
)
from receiver.console.queries.question import Asked
from receiver.console.queries.selection import selection
from receiver.engine.sql_text import Sql, compose, started_between
from receiver.engine.store import Store
from receiver.time_range import NS_MAX

CALLER_AGE_S_MAX = 3_600
"""How long before the time range a caller may have started: calls of older callers are not found."""
CLOCK_SKEW_S_MAX = 60
"""How long after the time range a caller may have started, by its own clock."""

_EDGES = """
SELECT
    client,
    server,
    count() AS calls,
    countIf(is_error) AS errors,
    errors / calls AS error_rate,
    quantileExact(0.5)(duration_ns) / 1e6 AS p50_ms,
    quantileExact(0.95)(duration_ns) / 1e6 AS p95_ms
FROM
(
    SELECT caller.service AS client, call.service AS server, call.duration_ns, call.is_error
    FROM
    (
        SELECT cityHash64(TraceId, SpanId) AS id, ServiceName AS service
        FROM {table}
        WHERE {callers_in_range}
    ) AS caller
    -- the engine keeps the second table in memory: calls are a small part of the spans
    INNER JOIN
    (
        SELECT
            cityHash64(TraceId, SpanId) AS id,
            cityHash64(TraceId, ParentSpanId) AS caller_id,
            ServiceName AS service,
            Duration AS duration_ns,
            StatusCode = 'Error' AS is_error
        FROM {table}
        WHERE {where}
    ) AS call
    ON caller.id = call.caller_id
    WHERE client != server
    -- after the join, because a caller that was stored twice joins twice
    LIMIT 1 BY client, server, call.id, call.caller_id, call.duration_ns, call.is_error
)
GROUP BY client, server
ORDER BY calls DESC, client, server
LIMIT {limit:UInt64}
{aggregation_settings}, join_algorithm = 'grace_hash', max_bytes_in_join = {join_bytes_max}
"""

_IS_CALL = Sql("SpanKind IN ('Server', 'Consumer') AND ParentSpanId != ''")


class EdgeRow(TypedDict):
    """The calls from one service to another."""

    client: str
    server: str
    calls: int
    errors: int
    error_rate: float
    p50_ms: float
    p95_ms: float


def service_map(store: Store, asked: Asked[None], now_s: float) -> LimitedLines:
    """Return the edges between services, one JSON object a line, those with the most calls first."""
    selected = selection(store, asked, now_s)
    statement = compose(
        _EDGES,
        callers_in_range=started_between("callers_from_ns", "callers_to_ns"),
        where=selected.where(_IS_CALL),
        join_bytes_max=GROUP_MEMORY_BYTES_MAX,
    )
    from_ns, to_ns = asked.range.bounds_ns(now_s)
    parameters = {
        **selected.parameters,
        "callers_from_ns": max(0, from_ns - CALLER_AGE_S_MAX * 10**9),
        "callers_to_ns": min(to_ns + CLOCK_SKEW_S_MAX * 10**9, NS_MAX),
    }
    return limited_lines(store, statement, parameters, asked.limit)
