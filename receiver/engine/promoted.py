"""Columns of promoted attributes: their definitions, and the columns that a table has.

    Span_http_route         LowCardinality(Nullable(String))      NULL: the span lacks the attribute
    Resource_cloud_region   LowCardinality(Nullable(String))
    Event_exception_type    Array(LowCardinality(String))         a value for each event with the attribute
    PromotedElsewhere       Map(LowCardinality(String), String)   spans' keys that the resource has,
                                                                  resources' keys that the span has

The engine computes them from the maps, also when it reads parts that are older than the column. The comment
of a column is the entry that defines it, so queries and later versions read in the table what it contains.

Invariant: a column always agrees with its comment: it is dropped and added again if its entry or its
    expression changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from receiver.config.promoted import PromotedAttribute, parse_promoted
from receiver.engine.cluster import Layout
from receiver.engine.store import TABLE, Store, Version

ELSEWHERE = "PromotedElsewhere"
ELEMENT_OR_NULL_SINCE = Version(24, 10)
_MAP_OF = {"span": "SpanAttributes", "resource": "ResourceAttributes"}
_OTHER = {"span": "resource", "resource": "span"}
_COMPUTED = """
SELECT name, comment, formatQuerySingleLine('SELECT ' || default_expression) FROM system.columns
WHERE database = currentDatabase() AND table = {table:String} AND default_kind = 'MATERIALIZED'
"""
_SPELLED = "SELECT arrayMap(text -> formatQuerySingleLine('SELECT ' || text), {expressions:Array(String)})"


class PromotedColumns(NamedTuple):
    column_of: Mapping[tuple[str, str], str] = {}
    """Scope and key → column."""
    elsewhere: frozenset[tuple[str, str]] = frozenset()
    """Scopes and keys that `PromotedElsewhere` contains."""
    entries: str = ""
    """The entries that define the columns, one a line."""
    attributes: tuple[PromotedAttribute, ...] = ()


_READ: WeakKeyDictionary[Store, tuple[int, PromotedColumns]] = WeakKeyDictionary()
"""Promoted attributes of stores whose tables only this process changes, with the version of the tables."""


class Definition(NamedTuple):
    """A column as it should be."""

    name: str
    sql: str
    comment: str
    expression: str


def promoted_columns(store: Store) -> PromotedColumns:
    """Return the promoted attributes of the table. A table without such columns has none."""
    # Before the columns: a change while they are read makes the answer outdated at once.
    version = store.definition_version
    if version is None:
        return _read(store)
    known = _READ.get(store)
    if known is None or known[0] != version:
        known = _READ[store] = version, _read(store)
    return known[1]


def _read(store: Store) -> PromotedColumns:
    comments = _comments(store)
    attributes = _attributes_of(comments)
    return PromotedColumns(
        {(attribute.scope, attribute.key): attribute.column for attribute in attributes},
        frozenset(_place(text) for text in comments.get(ELSEWHERE, "").split()),
        "\n".join(sorted(map(str, attributes))),
        tuple(attributes),
    )


def outdated(store: Store, wanted: Sequence[PromotedAttribute], version: Version) -> list[Definition]:
    """Return the columns that the table lacks, or that have another entry or compute something else.

    None for a `Distributed` table of one server.

    Columns of attributes that are promoted no longer stay, because another receiver may want them.
    """
    if not computes_columns(store):
        return []
    computed = _computed_columns(store)
    comments = {name: comment for name, (comment, _) in computed.items()}
    # For a column in both, the entry of the settings wins; the others belong to other receivers.
    attributes = list({each.column: each for each in [*_attributes_of(comments), *wanted]}.values())
    wanted_columns = definitions(attributes, version)
    # An older version of the engine may have created the column.
    older = definitions(attributes, Version(0, 0))
    spelled = _spelled(store, [column.expression for column in [*wanted_columns, *older]])
    return [
        column
        for column, *spellings in zip(wanted_columns, spelled, spelled[len(older) :], strict=False)
        if computed.get(column.name) not in [(column.comment, spelling) for spelling in spellings]
    ]


def add(store: Store, columns: Sequence[Definition]) -> None:
    """Add columns to the table, in place of columns of these names. Adding rewrites no part of the table."""
    existing, tables = _comments(store), store.layout.tables_of_columns(TABLE)
    for column in columns:
        # Not MODIFY COLUMN: parts keep the values that they stored, and only a dropped column is computed
        # again.
        # On a cluster always: after a kill between two tables, only the other one may have the column.
        if column.name in existing or store.layout.cluster:
            for table in reversed(tables):
                store.command(
                    f"ALTER TABLE {table} DROP COLUMN IF EXISTS `{column.name}` SETTINGS mutations_sync = 1"
                )
    # If this is never reached, the dropped columns are missing and the next start adds them.
    for statement in statements(columns, store.layout):
        store.command(statement)


def statements(columns: Sequence[Definition], layout: Layout) -> list[str]:
    """Return the statements that add the columns."""
    added = ",\n    ".join(f"ADD COLUMN IF NOT EXISTS {column.sql}" for column in columns)
    return [f"ALTER TABLE {table}\n    {added}" for table in layout.tables_of_columns(TABLE)]


def definitions(attributes: Sequence[PromotedAttribute], version: Version) -> list[Definition]:
    return [*(_definition(attribute, version) for attribute in attributes), _elsewhere(attributes)]


def computes_columns(store: Store) -> bool:
    """Return whether the table computes its columns itself, or is not created yet.

    A `Distributed` table does not; on a cluster the receiver also changes the tables behind it.
    """
    rows = store.rows(
        "SELECT engine FROM system.tables WHERE database = currentDatabase() AND name = {table:String}",
        {"table": TABLE},
    )
    return not rows or str(rows[0][0]).endswith("MergeTree") or bool(store.layout.cluster)


def _comments(store: Store) -> dict[str, str]:
    return {name: comment for name, (comment, _) in _computed_columns(store).items()}


def _computed_columns(store: Store) -> dict[str, tuple[str, str]]:
    """Return the computed columns of the table with their comments and expressions."""
    rows = store.rows(_COMPUTED, {"table": TABLE})
    return {str(name): (str(comment), str(expression)) for name, comment, expression in rows}


def _spelled(store: Store, expressions: list[str]) -> list[str]:
    """Return expressions in the engine's spelling, as it shows those of columns."""
    rows = store.rows(_SPELLED, {"expressions": expressions})
    # Without a row the server is no ClickHouse, which must not end the process.
    return list(rows[0][0]) if rows else expressions


def _attributes_of(comments: Mapping[str, str]) -> list[PromotedAttribute]:
    attributes = ((name, parse_promoted(comment)) for name, comment in comments.items())
    # An operator may have computed columns too: their comments are no entries, or those of another name.
    return [attribute for name, attribute in attributes if attribute and attribute.column == name]


def _place(text: str) -> tuple[str, str]:
    scope, _, key = text.partition(":")
    return scope, key


def _definition(attribute: PromotedAttribute, version: Version) -> Definition:
    if attribute.scope == "event":
        kind, expression = "Array(LowCardinality(String))", _of_events(attribute.keys)
    else:
        kind = "LowCardinality(Nullable(String))"
        expression = _of_map(_MAP_OF[attribute.scope], attribute.keys, version)
    return _computed(attribute.column, kind, expression, str(attribute))


def _computed(name: str, kind: str, expression: str, comment: str) -> Definition:
    sql = f"`{name}` {kind} MATERIALIZED {expression} COMMENT '{comment}' CODEC(ZSTD(1))"
    return Definition(name, sql, comment, expression)


def _of_map(attributes: str, keys: Sequence[str], version: Version) -> str:
    """Return the value of the first key present. Older engines need four times the CPU for it."""
    if version >= ELEMENT_OR_NULL_SINCE:
        values = [f"arrayElementOrNull({attributes}, '{key}')" for key in keys]
        return f"coalesce({', '.join(values)})" if len(values) > 1 else values[0]
    cases = ", ".join(f"mapContains({attributes}, '{key}'), {attributes}['{key}']" for key in keys)
    return f"multiIf({cases}, NULL)"


def _of_events(keys: Sequence[str]) -> str:
    has = " OR ".join(f"mapContains(item, '{key}')" for key in keys)
    cases = "".join(f"mapContains(item, '{key}'), item['{key}'], " for key in keys[:-1])
    # The last key needs no condition: the filter below keeps only items with one of the keys.
    last = f"item['{keys[-1]}']"
    value = f"multiIf({cases}{last})" if cases else last
    return f"arrayMap(item -> {value}, arrayFilter(item -> {has}, Events.Attributes))"


def _elsewhere(attributes: Sequence[PromotedAttribute]) -> Definition:
    """Return the column of attributes that occur in the other scope: rare, so it is read nearly for free."""
    promoted = {(attribute.scope, attribute.key) for attribute in attributes}
    places = sorted(
        (_OTHER[scope], key)
        for scope, key in promoted
        if scope in _OTHER and (_OTHER[scope], key) not in promoted
    )
    parts = []
    for scope, attributes_map in _MAP_OF.items():
        keys = ", ".join(f"'{key}'" for place, key in places if place == scope)
        parts.append(f"mapFilter((key, value) -> key IN ({keys}), {attributes_map})")
    return _computed(
        ELSEWHERE,
        "Map(LowCardinality(String), String)",
        f"mapConcat({', '.join(parts)})",
        " ".join(f"{scope}:{key}" for scope, key in places),
    )
