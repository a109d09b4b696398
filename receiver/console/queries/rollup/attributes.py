"""Derivation of the attributes of some hours: all keys, and the values that are cheap to count.

    otel_attribute_keys      every key of spans and resources
    otel_attribute_values    values of the promoted attributes, and of all attributes of resources

Spans are grouped before their attributes are counted: few spans differ in their keys, in all promoted
attributes or in their resource, and counting each attribute of each span takes twice as long. The values of
other attributes of spans would take longer than all rollups together, so queries read them from the spans.

Invariant: an hour's total row is written last. It holds the sum of the other rows, so that lost, repeated and
missing rows are noticed, and the promoted attributes, whose change changes what the rows mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from receiver.console.queries.rollup.tables import ATTRIBUTE_KEYS, ATTRIBUTE_VALUES, HOUR, HOUR_S, SETTINGS
from receiver.engine.promoted import PromotedColumns, promoted_columns
from receiver.engine.store import TABLE, Parameters, Store

SPAN_MAP: Final = "SpanAttributes"
RESOURCE_MAP: Final = "ResourceAttributes"
VALUES_MAX = 200
"""Maximum number of values of an attribute that are listed for an hour and a project."""
VALUE_BYTES_MAX = 1_024
"""Maximum length of a listed value. An attribute with a longer value has no list for that hour."""

# The batch may have gaps, so the statements also compare the hours and not only the first and the end.
_GROUPS = f"""
SELECT toDateTime({HOUR} * {HOUR_S}, 'UTC') AS hour, ProjectId, {{columns}}, count() AS grouped
FROM {TABLE}
WHERE Timestamp >= fromUnixTimestamp64Nano({{{{from_ns:Int64}}}})
  AND Timestamp < fromUnixTimestamp64Nano({{{{to_ns:Int64}}}})
  AND has({{{{hours:Array(Int64)}}}}, toInt64({HOUR}))
  AND ReceivedAt <= fromUnixTimestamp64Milli({{{{received_to_ms:Int64}}}}, 'UTC')
GROUP BY hour, ProjectId, {{keys}}
"""  # noqa: S608 - constants, and names of promoted columns
_SPAN_KEYS = f"""
INSERT INTO {ATTRIBUTE_KEYS} (Hour, ProjectId, Source, Key, Version, Spans)
SELECT hour, ProjectId, '{SPAN_MAP}', arrayJoin(keys) AS key, {{version:UInt64}}, sum(grouped)
FROM ({_GROUPS.format(columns=f"{SPAN_MAP}.keys AS keys", keys="keys")})
GROUP BY hour, ProjectId, key
{SETTINGS}
"""  # noqa: S608 - as above
_ROWS_OF_VERSION = """
Hour >= toDateTime({from_s:UInt32}, 'UTC') AND Hour < toDateTime({to_s:UInt32}, 'UTC')
    AND Version = {version:UInt64}
"""
# The values of an attribute of resources, listed or not, add up to the spans that have it.
_RESOURCE_KEYS = f"""
INSERT INTO {ATTRIBUTE_KEYS} (Hour, ProjectId, Source, Key, Version, Spans)
SELECT Hour, ProjectId, Source, Key, Version, sum(Spans)
FROM {ATTRIBUTE_VALUES}
WHERE {_ROWS_OF_VERSION} AND Source = '{RESOURCE_MAP}'
GROUP BY Hour, ProjectId, Source, Key, Version
{SETTINGS}
"""  # noqa: S608 - as above
_VALUES = f"""
INSERT INTO {ATTRIBUTE_VALUES} (Hour, ProjectId, Source, Key, Value, IsOmitted, Version, Spans)
SELECT hour, ProjectId, source, key, listed.1, listed.2, {{version:UInt64}}, listed.3
FROM
(
    SELECT
        hour, ProjectId, source, key,
        if(count() > {VALUES_MAX} OR max(length(value)) > {VALUE_BYTES_MAX},
            [('', 1, sum(spans))],
            groupArray({VALUES_MAX})((left(value, {VALUE_BYTES_MAX}), 0, spans))) AS lists
    FROM
    (
        SELECT
            hour, ProjectId, item.1 AS source, item.2 AS key, assumeNotNull(item.3) AS value,
            sum(grouped) AS spans
        FROM ([groups])
        ARRAY JOIN [items] AS item
        GROUP BY hour, ProjectId, source, key, value
    )
    GROUP BY hour, ProjectId, source, key
)
ARRAY JOIN lists AS listed
{SETTINGS}
"""  # noqa: S608 - as above
_ROWS_IN_FORMAT = _ROWS_OF_VERSION.replace("{", "{{").replace("}", "}}")
_TOTAL = f"""
INSERT INTO {{table}} (Hour, Key, Version, Spans)
SELECT hour, {{{{promoted:String}}}}, {{{{version:UInt64}}}}, sum(spans)
FROM
(
    SELECT toDateTime(arrayJoin({{{{hours:Array(UInt32)}}}}) * {HOUR_S}, 'UTC') AS hour, toUInt64(0) AS spans
    UNION ALL
    SELECT Hour AS hour, Spans AS spans FROM {{table}} WHERE {_ROWS_IN_FORMAT}
)
GROUP BY hour
{SETTINGS}
"""  # noqa: S608 - as above


def derive_attributes(store: Store, parameters: Parameters) -> None:
    """Derive the attributes of hours. `parameters`: as for the other rollups."""
    promoted = promoted_columns(store)
    values: Parameters = {**parameters, "promoted": promoted.entries}
    for statement in _statements(promoted):
        store.rows(statement, values)


def _statements(promoted: PromotedColumns) -> Iterator[str]:
    yield _SPAN_KEYS
    if columns := _columns_of("span", promoted):
        yield _values(columns, ", ".join(columns), _items(columns))
    columns = _columns_of("resource", promoted)
    selected = [f"{RESOURCE_MAP}.keys AS keys", f"{RESOURCE_MAP}.values AS values"]
    # The engine computes the columns from the map, so they are the same for all spans of a group.
    selected += [f"any({column}) AS {column}" for column in columns]
    items = f"arrayMap((key, value) -> ('{RESOURCE_MAP}', key, value), keys, values)"
    yield _values(selected, "keys, values", f"arrayConcat({items}, {_items(columns)})" if columns else items)
    yield _RESOURCE_KEYS
    yield from (_TOTAL.format(table=table) for table in (ATTRIBUTE_KEYS, ATTRIBUTE_VALUES))


def _columns_of(scope: str, promoted: PromotedColumns) -> list[str]:
    return [column for (place, _), column in promoted.column_of.items() if place == scope]


def _items(columns: Sequence[str]) -> str:
    """Return the expression for the promoted attributes that a span has."""
    items = ", ".join(f"('{column}', '', {column})" for column in columns)
    return f"arrayFilter(item -> isNotNull(item.3), [{items}])"


def _values(columns: Sequence[str], keys: str, items: str) -> str:
    groups = _GROUPS.format(columns=", ".join(columns), keys=keys)
    return _VALUES.replace("[groups]", groups).replace("[items]", items)
