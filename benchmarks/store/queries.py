"""Queries that operators typically run, for both tables; each returns at most 20 rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from benchmarks.store.bodies import SHARED_SERVICE
from benchmarks.store.segments import DAYS
from benchmarks.store.tables import Name
from receiver.engine.store import COMPANION, TABLE, Store

PROJECT = "prj_000007"
OWN_SERVICE = "checkout-api-07"
RARE_KEY = "faas.invocation_id"
SETTINGS = "SETTINGS max_threads = 1, use_query_condition_cache = 0, session_timezone = 'UTC'"
"""One core, and no cached results of earlier runs of the query."""
_COLUMNS = "Timestamp, TraceId, SpanId, SpanName, ServiceName, Duration, StatusCode"
_RED = "count(), countIf(StatusCode = 'Error'), quantile(0.95)(Duration)"
PROJECT_AND_DEPLOYMENT: dict[Name, tuple[str, str]] = {
    "ours": ("ProjectId", "DeploymentId"),
    "otel": ("ResourceAttributes['platform.projectId']", "ResourceAttributes['platform.deploymentId']"),
}
"""Expressions for project and deployment; only our table has columns for them."""
COMMON: dict[Name, str] = {
    "ours": "Span_http_route = '/search'",
    "otel": "SpanAttributes['http.route'] = '/search'",
}
"""A common attribute value; our table has a column for this attribute."""


class SearchValues(NamedTuple):
    """Values that the queries search for."""

    trace_id: str
    rare_value: str
    began: datetime
    ended: datetime


class Query(NamedTuple):
    """A named SQL query."""

    name: str
    sql: str


def choose_search_values(store: Store, began: datetime, ended: datetime) -> SearchValues:
    """Choose a trace and a rare value from the middle of the period."""
    middle = began + (ended - began) / 2
    rows = store.rows(
        f"SELECT TraceId, SpanAttributes['{RARE_KEY}'] FROM {TABLE} "  # noqa: S608 - constants
        f"WHERE {between(middle, middle + timedelta(days=1))} "
        f"AND SpanAttributes['{RARE_KEY}'] != '' ORDER BY Timestamp LIMIT 1"
    )
    return SearchValues(str(rows[0][0]), str(rows[0][1]), began, ended)


def queries(table: Name, search_values: SearchValues) -> Sequence[Query]:
    """Return all queries for a table."""
    project, deployment = PROJECT_AND_DEPLOYMENT[table]
    whole_period = between(search_values.began, search_values.ended)
    one_day = between(search_values.ended - timedelta(days=2), search_values.ended - timedelta(days=1))
    common = COMMON[table]
    rare = f"SpanAttributes['{RARE_KEY}'] = '{search_values.rare_value}'"
    return [
        Query("trace by id", _trace(search_values.trace_id)),
        Query(f"rare attribute value, {DAYS} d", _newest(f"{whole_period} AND {rare}")),
        Query(f"common attribute value, {DAYS} d", _newest(f"{whole_period} AND {common}")),
        Query(f"common attribute value, {DAYS} d, counted", _count(f"{whole_period} AND {common}")),
        Query(
            "common attribute value, 24 h, one project",
            _newest(f"{one_day} AND {project} = '{PROJECT}' AND {common}"),
        ),
        Query(
            f"RED per deployment, {DAYS} d hourly",
            _red(deployment, f"{whole_period} AND {project} = '{PROJECT}'"),
        ),
        Query(f"a project's service, {DAYS} d", _newest(f"{whole_period} AND ServiceName = '{OWN_SERVICE}'")),
        Query(f"a common service, {DAYS} d", _newest(f"{whole_period} AND ServiceName = '{SHARED_SERVICE}'")),
        Query(
            f"RED of a project's service, {DAYS} d hourly",
            _red("SpanName", f"{whole_period} AND ServiceName = '{OWN_SERVICE}'"),
        ),
        Query(
            f"RED of a common service, {DAYS} d hourly",
            _red("SpanName", f"{whole_period} AND ServiceName = '{SHARED_SERVICE}'"),
        ),
    ]


def between(began: datetime, ended: datetime) -> str:
    """Return the condition of a time range."""
    return f"Timestamp >= {_moment(began)} AND Timestamp < {_moment(ended)}"


def _moment(at: datetime) -> str:
    return f"toDateTime64('{at:%F %T}', 9, 'UTC')"


def _trace(trace_id: str) -> str:
    """Return Grafana's query for a trace: the companion table restricts the period."""
    when = f"FROM {COMPANION} WHERE TraceId = '{trace_id}'"
    return (
        f"SELECT * FROM {TABLE} WHERE TraceId = '{trace_id}' "  # noqa: S608 - an id from our own data
        f"AND Timestamp >= (SELECT min(Start) {when}) AND Timestamp <= (SELECT max(End) {when}) "
        f"ORDER BY Timestamp LIMIT 20 {SETTINGS}"
    )


def _newest(where: str) -> str:
    return (
        f"SELECT {_COLUMNS} FROM {TABLE} WHERE {where} "  # noqa: S608 - built from constants
        f"ORDER BY Timestamp DESC LIMIT 20 {SETTINGS}"
    )


def _count(where: str) -> str:
    return f"SELECT count() FROM {TABLE} WHERE {where} {SETTINGS}"  # noqa: S608 - built from constants


def _red(by: str, where: str) -> str:
    return (
        f"SELECT toStartOfHour(Timestamp) AS hour, {by} AS part, {_RED} FROM {TABLE} WHERE {where} "  # noqa: S608 - built from constants
        f"GROUP BY hour, part ORDER BY hour DESC, part LIMIT 20 {SETTINGS}"
    )
