"""Names that occur in spans: services, operations of a service, attributes and their values, with counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, NotRequired, TypedDict

from receiver.engine.promoted import PromotedColumns, promoted_columns
from receiver.engine.store import TABLE, Parameters, Store
from receiver.errors import StoreTrouble
from receiver.logs import limited
from receiver.query.filters.attribute_sql import Lookup, lookup
from receiver.query.filters.filter import Scope
from receiver.query.limits import NAMES_DEFAULT, SETTINGS, LimitedLines, within_time
from receiver.query.red_source import RedSource, raw_source, red_source
from receiver.query.time_range import TimeRange

_SCOPES: Final[tuple[Scope, ...]] = ("span", "resource")
_WHERE = """
WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64})
  AND Timestamp < fromUnixTimestamp64Nano({to_ns:Int64})
"""
_SERVICES = f"""
SELECT
    ServiceName AS service,
    sum(Spans) AS spans,
    sum(Errors) AS errors,
    uniqExact(SpanName) AS operations
FROM {{source}}
GROUP BY service
ORDER BY spans DESC, service
LIMIT {{{{limit:UInt64}}}}
{SETTINGS}
"""  # noqa: S608 - constants of this module
_OPERATIONS = f"""
SELECT
    SpanName AS name,
    SpanKind AS kind,
    count() AS spans,
    countIf(StatusCode = 'Error') AS errors,
    quantileExact(0.5)(Duration) / 1e6 AS p50_ms,
    quantileExact(0.95)(Duration) / 1e6 AS p95_ms,
    quantileExact(0.99)(Duration) / 1e6 AS p99_ms
FROM {TABLE}
{_WHERE}
  AND ServiceName = {{service:String}}
GROUP BY name, kind
ORDER BY spans DESC, name, kind
LIMIT {{limit:UInt64}}
{SETTINGS}
"""  # noqa: S608 - as above
_OPERATION_NAMES = f"""
SELECT SpanName AS name, SpanKind AS kind
FROM {{source}}
WHERE ServiceName = {{{{service:String}}}}
GROUP BY name, kind
ORDER BY name, kind
LIMIT {{{{limit:UInt64}}}}
{SETTINGS}
"""  # noqa: S608 - as above
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
    lines = _lines_of_rollup(store, _SERVICES, bounds, now_s)
    return LimitedLines(within_time(lines), bounds.limit)


def operations(store: Store, bounds: Bounds, service: str, *, now_s: float) -> LimitedLines:
    """Return the operations of a service with counts and percentiles of their duration."""
    return _listed(store, _OPERATIONS, {"service": service}, bounds, now_s)


def operation_names(store: Store, bounds: Bounds, service: str, *, now_s: float) -> LimitedLines:
    """Return the names and kinds of the operations of a service, by name."""
    lines = _lines_of_rollup(store, _OPERATION_NAMES, bounds, now_s, {"service": service})
    return LimitedLines(within_time(lines), bounds.limit)


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


def _lines_of_rollup(
    store: Store, statement: str, bounds: Bounds, now_s: float, more: Parameters | None = None
) -> Iterator[bytes]:
    """Run a statement over the rollup, or over the spans if the rollup changed meanwhile or is unreadable."""
    values = bounds.range.parameters(now_s)
    from_ns, to_ns = int(values["from_ns"]), int(values["to_ns"])

    def lines_of(source: RedSource) -> Iterator[bytes]:
        return store.lines(
            statement.format(source=source.sql),
            {**source.parameters, **(more or {}), "limit": bounds.limit + 1},
        )

    try:
        source = red_source(store, from_ns, to_ns)
        if source.slots:
            # Held back until the slots are checked again: a line that was sent cannot be taken back.
            lines = list(lines_of(source))
            if source.is_unchanged(store):
                yield from lines
                return
    # The rollups only save time. Trouble with the spans themselves appears again below.
    except StoreTrouble as trouble:
        limited.warning("rollup", "rollup cannot be read", error=trouble.label)
    yield from lines_of(raw_source(from_ns, to_ns))


def _listed(
    store: Store, statement: str, parameters: dict[str, str], bounds: Bounds, now_s: float
) -> LimitedLines:
    lines = store.lines(
        statement, {**parameters, **bounds.range.parameters(now_s), "limit": bounds.limit + 1}
    )
    return LimitedLines(within_time(lines), bounds.limit)
