"""Check that the tables still have the columns that the receiver writes and reads, and merge the same rows.

An engine converts inserted values to the type of an altered column, and does not report values that the
conversion changes. An altered table is therefore refused before the INSERT, and the segments wait until it is
repaired. Tables that replace or add up rows with an equal sorting key need this key and their engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from receiver.engine.cluster import local_table
from receiver.engine.store import TABLE, Store
from receiver.errors import StoreTrouble
from receiver.transcode import COLUMNS

Columns = Sequence[tuple[str, str]]
"""Names and types."""

_TIME = "toDateTime64('1970-01-01 00:00:00', 9, 'UTC')"
_TRACE_ID, _SPAN_ID = "repeat('f', 32)", "repeat('f', 16)"
_MAP = "map('key', 'value')"
PROBE_ROW = {
    "Timestamp": _TIME,
    "TraceId": _TRACE_ID,
    "SpanId": _SPAN_ID,
    "ParentSpanId": "''",
    "TraceState": "'k=v'",
    "SpanName": "'probe'",
    "SpanKind": "'Internal'",
    "ServiceName": "'trace-drain'",
    "ResourceAttributes": _MAP,
    "ScopeName": "'scope'",
    "ScopeVersion": "'v1'",
    "SpanAttributes": _MAP,
    "Duration": "toUInt64(1)",
    "StatusCode": "'Unset'",
    "StatusMessage": "'text'",
    "Events.Timestamp": f"[{_TIME}]",
    "Events.Name": "['event']",
    "Events.Attributes": f"[{_MAP}]",
    "Links.TraceId": f"[{_TRACE_ID}]",
    "Links.SpanId": f"[{_SPAN_ID}]",
    "Links.TraceState": "['k=v']",
    "Links.Attributes": f"[{_MAP}]",
    "ProjectId": "'project'",
    "DeploymentId": "'deployment'",
    "Drain": "'trace-drain probe'",
    "ReceivedAt": "toDateTime64('1970-01-01 00:00:00', 3, 'UTC')",
    "SegmentEpoch": "toUInt64(0)",
    "SegmentSeq": "toUInt64(0)",
    "TraceFlags": "toUInt32(1)",
    "DroppedAttributesCount": "toUInt32(1)",
    "DroppedEventsCount": "toUInt32(1)",
    "DroppedLinksCount": "toUInt32(1)",
    "ScopeAttributes": _MAP,
    "ResourceSchemaUrl": "'url'",
    "ScopeSchemaUrl": "'url'",
    "SampleWeight": "toFloat64(1)",
    "SampleThreshold": "toUInt64(1)",
    "SampleReason": "'reason'",
}
"""Column → value of the writer's probe row, which has a value in every column."""
_PROBED = ", ".join(f"`{name}`" for name, _ in COLUMNS)
PROBE = f"INSERT INTO {TABLE} ({_PROBED}) SELECT {', '.join(PROBE_ROW[name] for name, _ in COLUMNS)}"
_A_TRACE_OF_EACH_SHARD = """
FROM
(
    SELECT any(candidate) AS id
    FROM (SELECT lower(hex(sipHash128(number))) AS candidate FROM numbers({shards:UInt64} * 64))
    GROUP BY cityHash64(candidate) % {shards:UInt64}
)
"""
PROBE_OF_SHARDS = PROBE.replace(_TRACE_ID, "id") + _A_TRACE_OF_EACH_SHARD
"""One probe row for each shard. Of 64 traces for each shard, some belong to it."""

_COLUMNS_OF_TABLES = """
SELECT table, groupArray((name, concat(
    type,
    if(default_kind IN ('', 'DEFAULT'), '', ' ' || default_kind),
    if(default_kind = 'ALIAS', ' ' || default_expression, '')
)))
FROM system.columns
WHERE database = currentDatabase() AND table IN {tables:Array(String)}
GROUP BY table
"""
_MERGED_TABLES = """
SELECT name, engine, engine_full, sorting_key FROM system.tables
WHERE database = currentDatabase() AND name IN {tables:Array(String)} AND engine LIKE '%MergeTree'
"""
_TABLES_WITH_COLUMN_TTL = r"""
SELECT name FROM system.tables
WHERE database = currentDatabase() AND name IN {tables:Array(String)}
AND replaceRegexpAll(splitByString(' ENGINE = ', create_table_query)[1], '\'[^\']*\'', '') LIKE '% TTL %'
"""
_VIEW = """
SELECT replaceRegexpOne(as_select, ' FROM .* WHERE ', ' FROM otel_traces WHERE '),
       formatQuerySingleLine({expected:String})
FROM system.tables WHERE database = currentDatabase() AND name = {view:String}
"""
_HARMLESS = re.compile(r"LowCardinality\(|Nullable\(|, '[^']*'|\)")
"""Parts of a type that change no value: `LowCardinality`, `Nullable`, a time zone."""
_CREATED = re.compile(r"^CREATE TABLE IF NOT EXISTS (\w+)\n\(\n(.*?)^\)", re.DOTALL | re.MULTILINE)
_QUOTED = re.compile("'[^']*'")
_ARGUMENTS = re.compile(r"\w+\(([^)]*)\)")
_SELECTED = re.compile(
    r"^CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+) TO \w+\nAS (.*)", re.DOTALL | re.MULTILINE
)
_COPIED = re.compile(r"^CREATE TABLE IF NOT EXISTS (\w+) AS (\w+)$", re.MULTILINE)
_MERGED = re.compile(
    r"^CREATE TABLE IF NOT EXISTS (\w+).*?^ENGINE = ((?:Replacing|Aggregating)MergeTree)(?:\((\w+)\))?$"
    r".*?^ORDER BY \(?(.*?)\)?$",
    re.DOTALL | re.MULTILINE,
)
_COLUMN = re.compile(r"^    (?!INDEX )(\w+) ((?:(?! CODEC\(| ALIAS | DEFAULT |,$).)+)(.*)$", re.MULTILINE)


class ColumnCheck:
    """Check of the table of spans before an INSERT."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._checked_version: int | None = None

    def run(self) -> None:
        """Raise if the columns were altered. The engine itself reports a missing table better."""
        version = self._store.definition_version
        # `None`: another client of a server may alter the table at any time, so each INSERT is checked.
        if version is not None and version == self._checked_version:
            return
        if altered := altered_table(self._store, {TABLE: COLUMNS}):
            raise StoreTrouble(altered, name="TABLE_ALTERED")
        self._checked_version = version


def altered_table(store: Store, expected: Mapping[str, Columns]) -> str:
    """Describe the first table whose columns would change values; empty if there is none."""
    actual = dict(store.rows(_COLUMNS_OF_TABLES, {"tables": _with_local(expected)}))
    for table, columns in expected.items():
        for name in {table, local_table(table)} & actual.keys():
            if difference := alteration(actual[name], columns):
                return f"'{name}' was altered: {difference}"
    return ""


def _with_local(tables: Iterable[str]) -> list[str]:
    """Return the names of tables, and of those that have their rows on a cluster."""
    return sorted({name for table in tables for name in (table, local_table(table))})


def columns_of(sources: Sequence[tuple[str, str]]) -> dict[str, Columns]:
    """Return the columns of each table that the migrations create. `sources`: see `schema.emit`."""
    tables: dict[str, Columns] = {
        table: [
            (name, kind + rest.rstrip(",") if " ALIAS " in rest else kind)
            for name, kind, rest in _COLUMN.findall(body)
        ]
        for _, text in sources
        for table, body in _CREATED.findall(text)
    }
    copies = {table: tables[of] for _, text in sources for table, of in _COPIED.findall(text)}
    # A segment fills every column of the table of spans, and names the nested ones as the engine does.
    return tables | copies | ({TABLE: COLUMNS} if TABLE in tables else {})


def alteration(table_columns: Iterable[tuple[str, str]], expected: Columns) -> str:
    """Describe the first difference between the columns of a table and the expected ones; empty if equal."""
    types = dict(table_columns)
    for name, kind in expected:
        if name not in types:
            return f"column '{name}' is gone"
        if _without_harmless_parts(types[name]) != _without_harmless_parts(kind):
            return f"column '{name}' is {types[name]}; expected {kind}"
    return ""


def altered_merging(store: Store, sources: Sequence[tuple[str, str]]) -> str:
    """Describe the first table whose engine would merge other rows than it should; empty if there is none.

    Other engines than `MergeTree` and its variants merge nothing.
    """
    merged = {table: rest for _, text in sources for table, *rest in _MERGED.findall(text)}
    for name, engine, definition, key in store.rows(_MERGED_TABLES, {"tables": _with_local(merged)}):
        kind, version, sorted_by = merged[name.removesuffix("_local")]
        # Replicated and Shared tables have more arguments, before the version.
        arguments = _ARGUMENTS.match(_QUOTED.sub("", definition))
        is_version = arguments is not None and arguments[1].split(", ")[-1] == version
        if not engine.endswith(kind) or (version and not is_version):
            return f"'{name}' has the engine {engine}; expected {kind}{f'({version})' if version else ''}"
        if key != sorted_by:
            return f"'{name}' is sorted by ({key}); expected ({sorted_by})"
    return ""


def altered_values(store: Store, sources: Sequence[tuple[str, str]]) -> str:
    """Describe the first column that loses its values by age, or the view that selects other rows, if any."""
    for (table,) in store.rows(_TABLES_WITH_COLUMN_TTL, {"tables": _with_local(columns_of(sources))}):
        return f"'{table}' was altered: a column has a TTL, which deletes its values"
    for view, expected in (found for _, text in sources for found in _SELECTED.findall(text)):
        for actual, select in store.rows(_VIEW, {"view": view, "expected": expected}):
            if actual != select:
                return f"'{view}' was altered: it is {actual}; expected {select}"
    return ""


def _without_harmless_parts(kind: str) -> str:
    stored, alias, expression = kind.partition(" ALIAS ")
    return f"{_HARMLESS.sub('', stored)}{alias}{expression}"
