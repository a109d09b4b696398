"""Names that occur in spans: services, and operations of a service, with counts."""

from __future__ import annotations

from typing import Any, TypedDict

from receiver.console.queries.aggregates.red_measures import (
    COUNTS_OF_ROWS,
    COUNTS_OF_SPANS,
    OF_ROWS,
    OF_SPANS,
    PERCENTILES,
)
from receiver.console.queries.aggregates.red_source import Wanted
from receiver.console.queries.aggregates.rollup_lines import SOURCE, Statement, rollup_lines, wanted_in
from receiver.console.queries.limits import LimitedLines, within_time
from receiver.console.queries.question import Asked
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import Store

# `groupUniqArray` takes half the CPU of `uniqExact`, which hashes the text of each row.
_SERVICES = """
SELECT ServiceName AS service, {counts}, length(groupUniqArray(SpanName)) AS operations
FROM {source}
GROUP BY service
ORDER BY spans DESC, service
LIMIT {limit:UInt64}
{settings}
"""
_OPERATIONS = """
SELECT name, kind, spans, errors, {percentiles}
FROM
(
    SELECT SpanName AS name, SpanKind AS kind, {measures}
    FROM {source}
    GROUP BY name, kind
)
ORDER BY spans DESC, name, kind
LIMIT {limit:UInt64}
{settings}
"""
_OPERATION_NAMES = """
SELECT SpanName AS name, SpanKind AS kind
FROM {source}
GROUP BY name, kind
ORDER BY name, kind
LIMIT {limit:UInt64}
{settings}
"""
_OF_SERVICE = Sql("ServiceName = {service:String}")
_SPANS = compose("{table} WHERE {in_range}")
_SPANS_OF_SERVICE = compose("{table} WHERE {in_range} AND {of_service}", of_service=_OF_SERVICE)


class ServiceRow(TypedDict):
    """A service."""

    service: str
    spans: int
    errors: int
    operations: int


class OperationRow(TypedDict):
    """An operation of a service."""

    name: str
    kind: str
    spans: int
    errors: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


def services(store: Store, asked: Asked[None], now_s: float) -> LimitedLines:
    """Return the services, those with the most spans first, one JSON object a line."""
    of_spans = compose(_SERVICES, counts=COUNTS_OF_SPANS, source=_SPANS)
    of_rows = compose(_SERVICES, counts=COUNTS_OF_ROWS, source=SOURCE)
    return _by_rollup(store, (of_spans, of_rows), Wanted(measures=("Spans", "Errors")), asked, now_s)


def operations(store: Store, asked: Asked[str], now_s: float) -> LimitedLines:
    """Return the operations of a service with counts and percentiles of their duration.

    The own parameter is the name of the service.
    """
    of_spans = compose(_OPERATIONS, percentiles=PERCENTILES, measures=OF_SPANS, source=_SPANS_OF_SERVICE)
    of_rows = compose(_OPERATIONS, percentiles=PERCENTILES, measures=OF_ROWS, source=SOURCE)
    return _by_rollup(store, (of_spans, of_rows), _of_service(asked), asked, now_s)


def operation_names(store: Store, asked: Asked[str], now_s: float) -> LimitedLines:
    """Return the names and kinds of the operations of a service, by name."""
    of_spans = compose(_OPERATION_NAMES, source=_SPANS_OF_SERVICE)
    of_rows = compose(_OPERATION_NAMES, source=SOURCE)
    return _by_rollup(store, (of_spans, of_rows), _of_service(asked), asked, now_s)


def _of_service(asked: Asked[str]) -> Wanted:
    return Wanted(condition=_OF_SERVICE, parameters={"service": asked.own})


def _by_rollup(
    store: Store, statements: tuple[Sql, Sql], wanted: Wanted, asked: Asked[Any], now_s: float
) -> LimitedLines:
    """Run the statement over the spans or over the rollup. `wanted`: without its time range."""
    parameters = {**wanted.parameters, **asked.range.parameters(now_s), "limit": asked.limit + 1}
    lines = rollup_lines(store, Statement(*statements, parameters), wanted_in(asked.range, now_s, wanted))
    return LimitedLines(within_time(lines), asked.limit)
