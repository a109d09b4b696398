"""Names that occur in spans: services, operations of a service, attributes and their values, with counts."""

from __future__ import annotations

from typing import Final, NamedTuple, NotRequired, TypedDict

from receiver.engine.promoted import PromotedColumns, promoted_columns
from receiver.engine.store import TABLE, Store
from receiver.query.filters.attribute_sql import Lookup, lookup
from receiver.query.filters.filter import Scope
from receiver.query.limits import NAMES_DEFAULT, SETTINGS, LimitedLines, within_time
from receiver.query.red_measures import COUNTS_OF_ROWS, COUNTS_OF_SPANS, OF_ROWS, OF_SPANS, PERCENTILES
from receiver.query.red_source import Wanted
from receiver.query.rollup_lines import SOURCE, Statement, rollup_lines, wanted_in
from receiver.query.time_range import TimeRange

_SCOPES: Final[tuple[Scope, ...]] = ("span", "resource")
_WHERE = """
WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64})
  AND Timestamp < fromUnixTimestamp64Nano({to_ns:Int64})
"""
_SERVICES = """
SELECT ServiceName AS service, {counts}, uniqExact(SpanName) AS operations
FROM {source}
GROUP BY service
ORDER BY spans DESC, service
LIMIT {{limit:UInt64}}
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
LIMIT {{limit:UInt64}}
{settings}
"""
_OF_SERVICE = "ServiceName = {service:String}"
# The subcolumn, because the engine reads the values, too, for arrayJoin(mapKeys(…)).
_KEYS = f"""
SELECT scope, key, spans
FROM
(
    SELECT 'span' AS scope, arrayJoin(SpanAttributes.keys) AS key, count() AS spans
    FROM {TABLE}
    {_WHERE}
    GROUP BY key
    UNION ALL
    SELECT 'resource' AS scope, arrayJoin(ResourceAttributes.keys) AS key, count() AS spans
    FROM {TABLE}
    {_WHERE}
    GROUP BY key
)
ORDER BY spans DESC, scope, key
LIMIT {{limit:UInt64}}
{SETTINGS}
"""  # noqa: S608 - as above


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


class AttributeRow(TypedDict):
    """The key of an attribute, or a value of it."""

    scope: str
    key: str
    value: NotRequired[str]
    spans: int


class Bounds(NamedTuple):
    """Time range and limit of a list of names."""

    range: TimeRange = TimeRange()
    limit: int = NAMES_DEFAULT


def services(store: Store, bounds: Bounds, *, now_s: float) -> LimitedLines:
    """Return the services, those with the most spans first, one JSON object a line."""

    def statement(counts: str, source: str) -> str:
        return _SERVICES.format(counts=counts, source=source, settings=SETTINGS)

    of_spans, of_rows = statement(COUNTS_OF_SPANS, f"{TABLE} {_WHERE}"), statement(COUNTS_OF_ROWS, SOURCE)
    return _by_rollup(store, (of_spans, of_rows), Wanted(measures=("Spans", "Errors")), bounds, now_s)


def operations(store: Store, bounds: Bounds, service: str, *, now_s: float) -> LimitedLines:
    """Return the operations of a service with counts and percentiles of their duration."""

    def statement(measures: str, source: str) -> str:
        return _OPERATIONS.format(
            percentiles=PERCENTILES, measures=measures, source=source, settings=SETTINGS
        )

    of_spans = statement(OF_SPANS, f"{TABLE} {_WHERE} AND {_OF_SERVICE}")
    of_rows = statement(OF_ROWS, SOURCE)
    wanted = Wanted(condition=_OF_SERVICE, parameters={"service": service})
    return _by_rollup(store, (of_spans, of_rows), wanted, bounds, now_s)


def attributes(store: Store, bounds: Bounds, key: str | None, *, now_s: float) -> LimitedLines:
    """Return the attributes of spans and resources, or the values of an attribute, with counts of spans."""
    if key is None:
        return _listed(store, _KEYS, {}, bounds, now_s)
    return _listed(store, _values(promoted_columns(store), key), {"key": key}, bounds, now_s)


def _values(promoted: PromotedColumns, key: str) -> str:
    """Return the statement that counts the values of an attribute."""
    counted = " UNION ALL ".join(
        _values_in(scope, lookup(promoted, scope, key, "{key:String}")) for scope in _SCOPES
    )
    return f"""
SELECT scope, {{key:String}} AS key, assumeNotNull(value) AS value, spans
FROM ({counted})
ORDER BY spans DESC, scope, value
LIMIT {{limit:UInt64}}
{SETTINGS}
"""  # noqa: S608 - constants, and names of promoted columns


def _values_in(scope: Scope, found: Lookup) -> str:
    return f"""
SELECT '{scope}' AS scope, {found.value} AS value, count() AS spans
FROM {TABLE}
{_WHERE}
  AND {found.is_present}
GROUP BY value
"""  # noqa: S608 - as above


def _by_rollup(
    store: Store, statements: tuple[str, str], wanted: Wanted, bounds: Bounds, now_s: float
) -> LimitedLines:
    """Run the statement over the spans or over the rollup. `wanted`: without its time range."""
    parameters = {**wanted.parameters, **bounds.range.parameters(now_s), "limit": bounds.limit + 1}
    lines = rollup_lines(store, Statement(*statements, parameters), wanted_in(bounds.range, now_s, wanted))
    return LimitedLines(within_time(lines), bounds.limit)


def _listed(
    store: Store, statement: str, parameters: dict[str, str], bounds: Bounds, now_s: float
) -> LimitedLines:
    lines = store.lines(
        statement, {**parameters, **bounds.range.parameters(now_s), "limit": bounds.limit + 1}
    )
    return LimitedLines(within_time(lines), bounds.limit)
