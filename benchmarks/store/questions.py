"""What operators ask, of both tables; at most 20 rows come back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from benchmarks.store.press import SHARED_SERVICE
from benchmarks.store.segments import DAYS
from benchmarks.store.tables import Name
from receiver.engine.store import COMPANION, TABLE, Store

PROJECT = "prj_000007"
OWN_SERVICE = "checkout-api-07"
COMMON = ("http.route", "/search")
RARE_KEY = "faas.invocation_id"
SETTINGS = "SETTINGS max_threads = 1, use_query_condition_cache = 0, session_timezone = 'UTC'"
"""One core; and nothing is remembered of the same question before."""
_COLUMNS = "Timestamp, TraceId, SpanId, SpanName, ServiceName, Duration, StatusCode"
_RED = "count(), countIf(StatusCode = 'Error'), quantile(0.95)(Duration)"
PLACES: dict[Name, tuple[str, str]] = {
    "ours": ("ProjectId", "DeploymentId"),
    "otel": ("ResourceAttributes['platform.projectId']", "ResourceAttributes['platform.deploymentId']"),
}
"""Where each table has project and deployment: they are columns of ours only."""


class Sought(NamedTuple):
    """What is looked for."""

    trace_id: str
    rare_value: str
    began: datetime
    ended: datetime


class Question(NamedTuple):
    """One question, as SQL."""

    name: str
    sql: str


def sought_in(store: Store, began: datetime, ended: datetime) -> Sought:
    """A trace, and a value of the rarest kind, both from the middle of the time."""
    middle = began + (ended - began) / 2
    found = store.rows(
        f"SELECT TraceId, SpanAttributes['{RARE_KEY}'] FROM {TABLE} "  # noqa: S608 - constants
        f"WHERE {_between(middle, middle + timedelta(days=1))} "
        f"AND SpanAttributes['{RARE_KEY}'] != '' ORDER BY Timestamp LIMIT 1"
    )
    return Sought(str(found[0][0]), str(found[0][1]), began, ended)


def questions(table: Name, sought: Sought) -> Sequence[Question]:
    """All of them, for one of the tables."""
    project, deployment = PLACES[table]
    always = _between(sought.began, sought.ended)
    a_day = _between(sought.ended - timedelta(days=2), sought.ended - timedelta(days=1))
    common = f"SpanAttributes['{COMMON[0]}'] = '{COMMON[1]}'"
    rare = f"SpanAttributes['{RARE_KEY}'] = '{sought.rare_value}'"
    return [
        Question("trace by id", _trace(sought.trace_id)),
        Question(f"rare attribute value, {DAYS} d", _newest(f"{always} AND {rare}")),
        Question(f"common attribute value, {DAYS} d", _newest(f"{always} AND {common}")),
        Question(f"common attribute value, {DAYS} d, counted", _count(f"{always} AND {common}")),
        Question(
            "common attribute value, 24 h, one project",
            _newest(f"{a_day} AND {project} = '{PROJECT}' AND {common}"),
        ),
        Question(
            f"RED per deployment, {DAYS} d hourly",
            _red(deployment, f"{always} AND {project} = '{PROJECT}'"),
        ),
        Question(f"a project's service, {DAYS} d", _newest(f"{always} AND ServiceName = '{OWN_SERVICE}'")),
        Question(f"a common service, {DAYS} d", _newest(f"{always} AND ServiceName = '{SHARED_SERVICE}'")),
        Question(
            f"RED of a project's service, {DAYS} d hourly",
            _red("SpanName", f"{always} AND ServiceName = '{OWN_SERVICE}'"),
        ),
        Question(
            f"RED of a common service, {DAYS} d hourly",
            _red("SpanName", f"{always} AND ServiceName = '{SHARED_SERVICE}'"),
        ),
    ]


def _between(began: datetime, ended: datetime) -> str:
    return f"Timestamp >= {_moment(began)} AND Timestamp < {_moment(ended)}"


def _moment(at: datetime) -> str:
    return f"toDateTime64('{at:%F %T}', 9, 'UTC')"


def _trace(trace_id: str) -> str:
    """As Grafana asks: the companion says when."""
    when = f"FROM {COMPANION} WHERE TraceId = '{trace_id}'"
    return (
        f"SELECT * FROM {TABLE} WHERE TraceId = '{trace_id}' "  # noqa: S608 - an id of ours
        f"AND Timestamp >= (SELECT min(Start) {when}) AND Timestamp <= (SELECT max(End) {when}) "
        f"ORDER BY Timestamp LIMIT 20 {SETTINGS}"
    )


def _newest(where: str) -> str:
    return (
        f"SELECT {_COLUMNS} FROM {TABLE} WHERE {where} "  # noqa: S608 - ours
        f"ORDER BY Timestamp DESC LIMIT 20 {SETTINGS}"
    )


def _count(where: str) -> str:
    return f"SELECT count() FROM {TABLE} WHERE {where} {SETTINGS}"  # noqa: S608 - ours


def _red(by: str, where: str) -> str:
    return (
        f"SELECT toStartOfHour(Timestamp) AS hour, {by} AS part, {_RED} FROM {TABLE} WHERE {where} "  # noqa: S608 - ours
        f"GROUP BY hour, part ORDER BY hour DESC, part LIMIT 20 {SETTINGS}"
    )
