"""Questions in SQL on the exporter's table: the same lines as our answers, as an operator would ask for them.

Bounds of the time range are inserted into the text; all other values are query parameters.
"""

from __future__ import annotations

from datetime import datetime

from benchmarks.store.queries import PROJECT_AND_DEPLOYMENT, between
from receiver.engine.store import COMPANION, TABLE

PROJECT, DEPLOYMENT = PROJECT_AND_DEPLOYMENT["otel"]
_ERROR = "StatusCode = 'Error'"
_PERCENTILES = "quantileExact(0.5)(Duration), quantileExact(0.95)(Duration), quantileExact(0.99)(Duration)"


def trace() -> str:
    """Return Grafana's query for a trace: the companion table restricts the period."""
    when = f"FROM {COMPANION} WHERE TraceId = {{trace:String}}"
    return (
        f"SELECT * FROM {TABLE} WHERE TraceId = {{trace:String}} "  # noqa: S608 - constants
        f"AND Timestamp >= (SELECT min(Start) {when}) AND Timestamp <= (SELECT max(End) {when}) "
        "ORDER BY Timestamp"
    )


def search(period: tuple[datetime, datetime], condition: str, limit: int) -> str:
    """Return the summaries of the traces with the newest matching spans; only spans of the period count."""
    root_first = "(ParentSpanId != '', Timestamp, SpanId)"
    return (
        f"SELECT TraceId, argMin(ServiceName, {root_first}), argMin(SpanName, {root_first}), min(Timestamp), "  # noqa: S608 - constants
        "max(toUnixTimestamp64Nano(Timestamp) + Duration) - min(toUnixTimestamp64Nano(Timestamp)), "
        f"uniqExact(SpanId), uniqExactIf(SpanId, {_ERROR}) FROM {TABLE} "
        f"WHERE {between(*period)} AND TraceId IN (SELECT TraceId FROM {TABLE} "
        f"WHERE {between(*period)} AND {condition} GROUP BY TraceId ORDER BY max(Timestamp) DESC, TraceId "
        f"LIMIT {limit}) GROUP BY TraceId"
    )


def newest(period: tuple[datetime, datetime], condition: str, limit: int) -> str:
    """Return all columns of the newest matching spans."""
    return (
        f"SELECT * FROM {TABLE} WHERE {between(*period)} AND {condition} "  # noqa: S608 - constants
        f"ORDER BY Timestamp DESC LIMIT {limit}"
    )


def services(period: tuple[datetime, datetime]) -> str:
    """Return the services."""
    return (
        f"SELECT ServiceName, count() AS spans, countIf({_ERROR}), uniqExact(SpanName) FROM {TABLE} "  # noqa: S608 - constants
        f"WHERE {between(*period)} GROUP BY ServiceName ORDER BY spans DESC, ServiceName LIMIT 1000"
    )


def operations(period: tuple[datetime, datetime]) -> str:
    """Return the operations of a service."""
    return (
        f"SELECT SpanName, SpanKind, count() AS spans, countIf({_ERROR}), {_PERCENTILES} FROM {TABLE} "  # noqa: S608 - constants
        f"WHERE {between(*period)} AND ServiceName = {{service:String}} "
        "GROUP BY SpanName, SpanKind ORDER BY spans DESC, SpanName, SpanKind LIMIT 1000"
    )


def keys(period: tuple[datetime, datetime]) -> str:
    """Return the keys of attributes."""
    return " UNION ALL ".join(
        f"SELECT '{column}', arrayJoin(mapKeys({column})) AS key, count() FROM {TABLE} "  # noqa: S608 - constants
        f"WHERE {between(*period)} GROUP BY key"
        for column in ("SpanAttributes", "ResourceAttributes")
    )


def attribute_values(period: tuple[datetime, datetime], key: str) -> str:
    """Return the values of an attribute of spans or resources."""
    return " UNION ALL ".join(
        f"SELECT '{column}', {column}['{key}'] AS value, count() AS spans FROM {TABLE} "  # noqa: S608 - constants
        f"WHERE {between(*period)} AND mapContains({column}, '{key}') GROUP BY value"
        for column in ("SpanAttributes", "ResourceAttributes")
    )


def red(period: tuple[datetime, datetime], by: str, condition: str) -> str:
    """Return counts, errors and percentiles of the requests of each group."""
    return (
        f"SELECT {by} AS part, count() AS spans, countIf({_ERROR}), {_PERCENTILES} FROM {TABLE} "  # noqa: S608 - constants
        f"WHERE {between(*period)} AND (SpanKind IN ('Server', 'Consumer') OR ParentSpanId = '') "
        f"AND {condition} "
        "GROUP BY part ORDER BY spans DESC LIMIT 1000"
    )


def errors(period: tuple[datetime, datetime]) -> str:
    """Return the errors by service, type and message."""
    exception = "Events.Attributes[indexOf(Events.Name, 'exception')]"
    return (
        f"SELECT ServiceName, {exception}['exception.type'] AS type, "  # noqa: S608 - constants
        f"{exception}['exception.message'] AS text, "
        "count() AS spans, uniqExact(TraceId), min(Timestamp), max(Timestamp), groupUniqArray(20)(SpanName) "
        f"FROM {TABLE} WHERE {between(*period)} AND ({_ERROR} OR has(Events.Name, 'exception')) "
        "GROUP BY ServiceName, type, text ORDER BY spans DESC LIMIT 1000"
    )


def deployments(period: tuple[datetime, datetime], condition: str) -> str:
    """Return the deployments."""
    return (
        f"SELECT {PROJECT} AS project, {DEPLOYMENT} AS deployment, min(Timestamp) AS first, max(Timestamp), "  # noqa: S608 - constants
        f"count(), countIf({_ERROR}) FROM {TABLE} WHERE {between(*period)} AND {condition} "
        "GROUP BY project, deployment ORDER BY first DESC LIMIT 1000"
    )


def service_map(period: tuple[datetime, datetime]) -> str:
    """Return the calls between services, as a join of spans with their parents."""
    return (
        "SELECT parent.ServiceName, child.ServiceName, count() AS calls, "  # noqa: S608 - constants
        "countIf(child.StatusCode = 'Error'), "
        "quantileExact(0.5)(child.Duration), quantileExact(0.95)(child.Duration) "
        f"FROM (SELECT * FROM {TABLE} WHERE {between(*period)} "
        "AND SpanKind IN ('Server', 'Consumer')) AS child "
        f"INNER JOIN (SELECT TraceId, SpanId, ServiceName FROM {TABLE} WHERE {between(*period)}) AS parent "
        "ON child.TraceId = parent.TraceId AND child.ParentSpanId = parent.SpanId "
        "WHERE parent.ServiceName != child.ServiceName GROUP BY 1, 2 ORDER BY calls DESC LIMIT 1000"
    )
