"""Tables that were altered or dropped: refused or named before the schema is applied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from receiver.engine import schema
from receiver.engine.columns import columns_of
from receiver.engine.store import Store
from receiver.errors import OperatorError
from tests.support import engines
from tests.support.fake_clickhouse import schema_sources


@pytest.fixture
def store(engine_dir: Path) -> Iterator[Store]:
    database = f"altered_{uuid4().hex}"
    store = engines.bare(engine_dir, database)
    yield store
    store.command(f"DROP DATABASE {database}")
    store.close()


def test_expected_columns_are_those_that_the_engine_creates(store: Store) -> None:
    schema.apply(store, schema_sources(), 30)

    for table, columns in columns_of(schema_sources()).items():
        described = {
            name: kind for name, kind, default, *_ in store.rows(f"DESCRIBE {table}") if default != "ALIAS"
        }
        assert described == dict(columns), table
    assert {name for name, *_ in store.rows("SHOW TABLES")} - {*columns_of(schema_sources())} == {
        "otel_traces_trace_id_ts_mv"
    }


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("otel_traces", "MODIFY COLUMN Duration Int32"),
        ("otel_red", "MODIFY COLUMN Spans UInt8"),
        ("otel_red_day", "DROP COLUMN Errors"),
        ("otel_deployment_events", "MODIFY COLUMN StatusCode UInt8"),
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
