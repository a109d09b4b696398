"""Tables that were altered or dropped: refused or named before the schema is applied."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from receiver.engine import schema
from receiver.engine.cluster import ONE_SERVER
from receiver.engine.columns import altered_merging, columns_of
from receiver.engine.store import Parameters, Store
from receiver.errors import OperatorError
from tests.support.cases import each_case
from tests.support.fake_clickhouse import schema_sources

VIEW = "otel_traces_trace_id_ts_mv"
SELECT = (
    "SELECT TraceId, {}(Timestamp) AS Start, max(Timestamp) AS End FROM otel_traces WHERE TraceId != '' {}"
)
GROUPED = "GROUP BY TraceId"


def test_expected_columns_are_those_that_the_engine_creates(store: Store) -> None:
    schema.apply(store, schema_sources(), 30)

    for table, columns in columns_of(schema_sources()).items():
        described = {
            name: f"{kind} ALIAS {expression}" if default == "ALIAS" else kind
            for name, kind, default, expression, *_ in store.rows(f"DESCRIBE {table}")
        }
        assert described == dict(columns), table
    assert {name for name, *_ in store.rows("SHOW TABLES")} - {*columns_of(schema_sources())} == {VIEW}


@each_case(
    ("table", "change"),
    [
        ("otel_traces", "MODIFY COLUMN Duration Int32"),
        ("otel_red", "MODIFY COLUMN Spans UInt8"),
        ("otel_red_day", "DROP COLUMN Errors"),
        ("otel_deployment_events", "MODIFY COLUMN StatusCode UInt8"),
        (
            "otel_deployment_events",
            "MODIFY COLUMN Text String ALIAS JSONExtractString(Event, 'payload', 'x')",
        ),
    ],
)
def test_altered_column_of_any_table_is_refused_until_it_is_restored(
    store: Store, table: str, change: str
) -> None:
    schema.apply(store, schema_sources(), 30)
    kinds = dict(columns_of(schema_sources())[table])
    column = change.split()[2]
    store.command(f"ALTER TABLE {table} {change}")

    with pytest.raises(OperatorError, match=f"'{table}' was altered: column '{column}' is"):
        schema.apply(store, schema_sources(), 30)
    reason = schema.status(store, schema_sources(), 30).unusable
    verb = "ADD" if change.startswith("DROP") else "MODIFY"
    store.command(f"ALTER TABLE {table} {verb} COLUMN {column} {kinds[column]}")

    assert reason.startswith(f"'{table}' was altered: column '{column}'")
    assert schema.apply(store, schema_sources(), 30) == []


@each_case(("kind", "is_refused"), [("DEFAULT", False), ("MATERIALIZED", True)])
def test_stored_column_that_the_table_computes_is_refused(
    store: Store, kind: str, *, is_refused: bool
) -> None:
    schema.apply(store, schema_sources(), 30)
    store.command(f"ALTER TABLE otel_traces MODIFY COLUMN Duration UInt64 {kind} 7")

    reason = schema.status(store, schema_sources(), 30).unusable

    expected = "'otel_traces' was altered: column 'Duration' is UInt64 MATERIALIZED; expected UInt64"
    assert reason == (expected if is_refused else "")


@pytest.mark.parametrize(
    ("change", "restore", "reason"),
    [
        (
            "otel_traces MODIFY COLUMN StatusMessage TTL toDateTime(Timestamp) + INTERVAL 1 DAY",
            "otel_traces MODIFY COLUMN StatusMessage REMOVE TTL",
            "'otel_traces' was altered: a column has a TTL, which deletes its values",
        ),
        (
            f"{VIEW} MODIFY QUERY {SELECT.format('max', GROUPED)}",
            f"{VIEW} MODIFY QUERY {SELECT.format('min', GROUPED)}",
            f"'{VIEW}' was altered: it is SELECT TraceId, max(Timestamp) AS Start, ",
        ),
    ],
)
def test_table_that_loses_values_and_view_that_selects_others_are_refused(
    store: Store, change: str, restore: str, reason: str
) -> None:
    schema.apply(store, schema_sources(), 30)
    store.command(f"ALTER TABLE {change}")

    with pytest.raises(OperatorError, match=re.escape(reason)):
        schema.apply(store, schema_sources(), 30)
    assert schema.status(store, schema_sources(), 30).unusable.startswith(reason)
    store.command(f"ALTER TABLE {restore}")

    assert schema.apply(store, schema_sources(), 30) == []


@pytest.mark.parametrize("change", ["CODEC(ZSTD(3))", "COMMENT 'ours'", "UInt64 DEFAULT 7"])
def test_changes_that_alter_no_value_are_accepted(store: Store, change: str) -> None:
    schema.apply(store, schema_sources(), 30)
    store.command(f"ALTER TABLE otel_traces MODIFY COLUMN Duration {change}")

    assert schema.apply(store, schema_sources(), 30) == []


class TableOf:
    """Tables of a server, of which one is `otel_red` with this engine."""

    definition_version = None
    layout = ONE_SERVER
    receiver = "tests"

    def __init__(self, definition: str) -> None:
        self._definition = definition

    def rows(self, _statement: str, _parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        key = "Hour, ServiceName, ProjectId, SpanName, SpanKind, IsRequest"
        return [("otel_red", self._definition.partition("(")[0], self._definition, key)]


@each_case(
    ("definition", "is_refused"),
    [
        ("ReplicatedReplacingMergeTree('/a(b)/{shard}', '{replica}', Version) ORDER BY Hour", False),
        ("SharedReplacingMergeTree('/a', '{replica}', Version) ORDER BY Hour", False),
        ("ReplicatedReplacingMergeTree('/a', '{replica}') ORDER BY Hour", True),
        ("ReplicatedMergeTree('/a', '{replica}') ORDER BY Hour", True),
    ],
)
def test_replicated_table_merges_as_the_table_of_the_schema(definition: str, *, is_refused: bool) -> None:
    assert bool(altered_merging(cast("Store", TableOf(definition)), schema_sources())) == is_refused


@each_case(
    ("table", "definition", "reason"),
    [
        (
            "otel_red",
            "ReplacingMergeTree(Version) ORDER BY (Hour, ServiceName)",
            "is sorted by (Hour, ServiceName); expected (Hour, ServiceName, ProjectId, SpanName, ",
        ),
        (
            "otel_red_deployment_day",
            "MergeTree ORDER BY (Hour, ProjectId, DeploymentId, ServiceName, SpanKind)",
            "has the engine MergeTree; expected ReplacingMergeTree(Version)",
        ),
        (
            "otel_rollup_slots",
            "ReplacingMergeTree ORDER BY Hour",
            "has the engine ReplacingMergeTree; expected ReplacingMergeTree(Step)",
        ),
        (
            "otel_traces_trace_id_ts",
            "MergeTree ORDER BY TraceId",
            "has the engine MergeTree; expected AggregatingMergeTree",
        ),
    ],
)
def test_table_that_merges_other_rows_is_refused_until_it_is_restored(
    store: Store, table: str, definition: str, reason: str
) -> None:
    schema.apply(store, schema_sources(), 30)
    # With another sorting key than the table, which `CREATE TABLE AS` alone would copy.
    store.command(f"CREATE TABLE other ENGINE = {definition} AS SELECT * FROM {table}")  # noqa: S608 - ours
    store.command(f"EXCHANGE TABLES other AND {table}")

    with pytest.raises(OperatorError, match=re.escape(reason)):
        schema.apply(store, schema_sources(), 30)
    assert reason in schema.status(store, schema_sources(), 30).unusable
    store.command(f"EXCHANGE TABLES other AND {table}")
    store.command("DROP TABLE other SYNC")

    assert schema.apply(store, schema_sources(), 30) == []


def test_dropped_tables_are_named_before_they_are_created_again_except_rollups(store: Store) -> None:
    schema.apply(store, schema_sources(), 30)
    for table in ("otel_traces_trace_id_ts", "otel_deployment_events", "otel_red"):
        store.command(f"DROP TABLE {table} SYNC")

    dropped = schema.dropped(store, schema_sources(), has_stored=False)
    schema.apply(store, schema_sources(), 30)

    assert dropped == ["otel_deployment_events", "otel_traces_trace_id_ts"]
    assert schema.dropped(store, schema_sources(), has_stored=True) == []


def test_table_of_spans_is_missed_in_an_empty_store_only_if_it_contained_spans(store: Store) -> None:
    assert schema.dropped(store, schema_sources(), has_stored=False) == []
    assert schema.dropped(store, schema_sources(), has_stored=True) == ["otel_traces"]
