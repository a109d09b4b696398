"""Derivation of the attributes of some hours: all keys, and the values that are cheap to count.

    otel_attribute_keys      every key of spans and resources
    otel_attribute_values    values of the promoted attributes, and of all attributes of resources

Spans are grouped before their attributes are counted: few spans differ in their keys, in all promoted
attributes or in their resource, and counting each attribute of each span takes twice as long. The values of
other attributes of spans would take longer than all rollups together, so queries read them from the spans.

The total row of an hour has the promoted attributes, whose change changes what the rows mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from receiver.console.queries.rollup.replicas import ROWS_OF_VERSION, await_replicas
from receiver.console.queries.rollup.tables import rollup_compose
from receiver.engine.promoted import PromotedColumns, promoted_columns
from receiver.engine.sql_text import Sql, identifier, joined, names
from receiver.engine.store import Parameters, Store

SPAN_MAP: Final = Sql("SpanAttributes")
RESOURCE_MAP: Final = Sql("ResourceAttributes")
VALUES_MAX = 200
"""Maximum number of values of an attribute that are listed for an hour and a project."""
VALUE_BYTES_MAX = 1_024
"""Maximum length of a listed value. An attribute with a longer value has no list for that hour."""

_GROUPS = """
SELECT toDateTime({hour} * {hour_s}, 'UTC') AS hour, ProjectId, {columns}, count() AS grouped
FROM {table}
WHERE {is_derived}
GROUP BY hour, ProjectId, {keys}
"""
_SPAN_KEYS = """
INSERT INTO {attribute_keys} (Hour, ProjectId, Source, Key, Version, Spans)
SELECT hour, ProjectId, '{span_map}', arrayJoin(keys) AS key, {version:UInt64}, sum(grouped)
FROM ({groups})
GROUP BY hour, ProjectId, key
{settings}
"""
# The values of an attribute of resources, listed or not, add up to the spans that have it.
_RESOURCE_KEYS = rollup_compose(
    """
INSERT INTO {attribute_keys} (Hour, ProjectId, Source, Key, Version, Spans)
SELECT Hour, ProjectId, Source, Key, Version, sum(Spans)
FROM {attribute_values}
WHERE {rows} AND Source = '{resource_map}'
GROUP BY Hour, ProjectId, Source, Key, Version
{settings}
""",
    rows=ROWS_OF_VERSION,
    resource_map=RESOURCE_MAP,
)
_VALUES = """
INSERT INTO {attribute_values} (Hour, ProjectId, Source, Key, Value, IsOmitted, Version, Spans)
SELECT hour, ProjectId, source, key, listed.1, listed.2, {version:UInt64}, listed.3
FROM
(
    SELECT
        hour, ProjectId, source, key,
        if(count() > {values_max} OR max(length(value)) > {value_bytes_max},
            [('', 1, sum(spans))],
            groupArray({values_max})((left(value, {value_bytes_max}), 0, spans))) AS lists
    FROM
    (
        SELECT
            hour, ProjectId, item.1 AS source, item.2 AS key, assumeNotNull(item.3) AS value,
            sum(grouped) AS spans
        FROM ({groups})
        ARRAY JOIN {items} AS item
        GROUP BY hour, ProjectId, source, key, value
    )
    GROUP BY hour, ProjectId, source, key
)
ARRAY JOIN lists AS listed
{settings}
"""


def derive_attributes(store: Store, parameters: Parameters) -> None:
    """Derive the attributes of hours. `parameters`: as for the other rollups."""
    for statement in _statements(promoted_columns(store)):
        store.rows(store.layout.on_shards(statement), parameters)
    await_replicas(store, parameters)
    store.rows(store.layout.on_shards(_RESOURCE_KEYS), parameters)


def _statements(promoted: PromotedColumns) -> Iterator[Sql]:
    groups = _groups(rollup_compose("{map}.keys AS keys", map=SPAN_MAP), Sql("keys"))
    yield rollup_compose(_SPAN_KEYS, span_map=SPAN_MAP, groups=groups)
    if columns := _columns_of("span", promoted):
        yield _values(_groups(names(columns), names(columns)), _items(columns))
    columns = _columns_of("resource", promoted)
    selected = [rollup_compose("{map}.keys AS keys, {map}.values AS values", map=RESOURCE_MAP)]
    # The engine computes the columns from the map, so they are the same for all spans of a group.
    selected += [rollup_compose("any({column}) AS {column}", column=column) for column in columns]
    items = rollup_compose("arrayMap((key, value) -> ('{map}', key, value), keys, values)", map=RESOURCE_MAP)
    if columns:
        items = rollup_compose("arrayConcat({items}, {promoted})", items=items, promoted=_items(columns))
    yield _values(_groups(joined(", ", selected), Sql("keys, values")), items)


def _columns_of(scope: str, promoted: PromotedColumns) -> list[Sql]:
    return [identifier(column) for (place, _), column in promoted.column_of.items() if place == scope]


def _items(columns: Sequence[Sql]) -> Sql:
    """Return the expression for the promoted attributes that a span has."""
    items = joined(", ", (rollup_compose("('{column}', '', {column})", column=column) for column in columns))
    return rollup_compose("arrayFilter(item -> isNotNull(item.3), [{items}])", items=items)


def _groups(columns: Sql, keys: Sql) -> Sql:
    return rollup_compose(_GROUPS, columns=columns, keys=keys)


def _values(groups: Sql, items: Sql) -> Sql:
    return rollup_compose(
        _VALUES, values_max=VALUES_MAX, value_bytes_max=VALUE_BYTES_MAX, groups=groups, items=items
    )
