"""Schema migrations: emitted for the engine, applied once, never to the table of another program."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from receiver.engine import schema
from receiver.engine.schema import Engine
from receiver.engine.store import Store, Version
from receiver.errors import OperatorError, StoreTrouble
from tests.support.cases import each_case
from tests.support.fake_clickhouse import development_sources, schema_sources

NAMES = [
    "0000_trace_drain_migrations",
    "0001_otel_traces",
    "0002_otel_traces_trace_id_ts",
    "0003_otel_traces_trace_id_ts_mv",
    "0004_otel_red",
    "0005_otel_red_deployment",
    "0006_otel_rollup_slots",
    "0007_otel_red_day",
    "0008_otel_red_deployment_day",
    "0009_otel_attribute_keys",
    "0010_otel_attribute_values",
    "0011_otel_deployment_events",
    "0012_otel_errors",
    "0013_otel_deployments",
    "0014_otel_traces_codecs",
    "0015_otel_calls",
    "0016_otel_traces_resource_values",
]
LATER_SOURCES = [
    ("0017_index.sql", "ALTER TABLE otel_traces ADD INDEX IF NOT EXISTS idx_later SpanId TYPE set(8)"),
    (
        "0018_setting.sql",
        "-- Comment.\nALTER TABLE otel_traces MODIFY SETTING merge_selector_base = 11 -- if merge_base",
    ),
]
"""Statements as a later release may add them."""
LATER_NAMES = ["0017_index", "0018_setting"]
COLLECTOR_TABLE = """
CREATE TABLE otel_traces (Timestamp DateTime64(9), TraceId String, SpanAttributes Map(String, String))
ENGINE = MergeTree ORDER BY Timestamp
"""
ATTRIBUTES = "Map(LowCardinality(String), String)"
COLUMNS = {
    **dict.fromkeys(
        ["TraceId", "SpanId", "ParentSpanId", "TraceState", "ScopeName", "ScopeVersion", "StatusMessage"],
        "String",
    ),
    **dict.fromkeys(["SpanName", "SpanKind", "ServiceName", "StatusCode"], "LowCardinality(String)"),
    **dict.fromkeys(["ResourceAttributes", "SpanAttributes"], ATTRIBUTES),
    "Timestamp": "DateTime64(9)",
    "Duration": "UInt64",
    "Events.Timestamp": "Array(DateTime64(9))",
    "Events.Name": "Array(LowCardinality(String))",
    "Events.Attributes": f"Array({ATTRIBUTES})",
    **dict.fromkeys(["Links.TraceId", "Links.SpanId", "Links.TraceState"], "Array(String)"),
    "Links.Attributes": f"Array({ATTRIBUTES})",
}
"""Columns that Grafana, HyperDX and hand-written SQL rely on."""


def test_statements_are_applied_once_in_order_and_listed(store: Store) -> None:
    before = schema.status(store, schema_sources(), 30)
    applied, again = (schema.apply(store, schema_sources(), 30) for _ in range(2))
    after = schema.status(store, schema_sources(), 30)

    assert (applied, again) == (NAMES, [])
    assert (before.missing, before.retention_days) == (tuple(NAMES), None)
    assert (after.applied, after.missing, after.retention_days) == (tuple(NAMES), (), 30)
    assert after.unusable == ""


def test_tables_have_the_columns_that_tools_rely_on(store: Store) -> None:
    schema.apply(store, schema_sources(), 30)

    described = {name: kind for name, kind, *_ in store.rows("DESCRIBE TABLE otel_traces")}
    companion = [name for name, *_ in store.rows("DESCRIBE TABLE otel_traces_trace_id_ts")]

    assert described.items() >= COLUMNS.items()
    assert companion == ["TraceId", "Start", "End"]


def with_later_sources() -> list[tuple[str, str]]:
    return schema_sources() + LATER_SOURCES


def definition_of(store: Store, table: str = "otel_traces") -> str:
    [[definition]] = store.rows(
        "SELECT create_table_query FROM system.tables "
        "WHERE database = currentDatabase() AND name = {table:String}",
        {"table": table},
    )
    return str(definition)


def test_table_of_an_older_release_gets_new_indexes_and_keeps_its_rows(store: Store) -> None:
    schema.apply(store, schema_sources(), 30)
    store.command("INSERT INTO otel_traces (Timestamp, ServiceName) VALUES (now64(9), 'shop')")

    applied = schema.apply(store, with_later_sources(), 30)
    store.command("INSERT INTO otel_traces (Timestamp, ServiceName) VALUES (now64(9), 'cart')")
    store.command("OPTIMIZE TABLE otel_traces FINAL")

    assert applied == LATER_NAMES
    rows = store.rows("SELECT ServiceName FROM otel_traces WHERE ServiceName IN ('shop', 'cart') ORDER BY 1")
    assert [name for (name,) in rows] == ["cart", "shop"]
    assert "idx_later" in {
        str(name)
        for (name,) in store.rows(
            "SELECT name FROM system.data_skipping_indices "
            "WHERE database = currentDatabase() AND table = 'otel_traces' AND data_compressed_bytes > 0"
        )
    }


def test_dropped_table_is_created_again_with_all_later_changes(store: Store) -> None:
    schema.apply(store, with_later_sources(), 30)
    store.command("DROP TABLE otel_traces SYNC")

    missing = schema.status(store, with_later_sources(), 30).missing
    applied = schema.apply(store, with_later_sources(), 30)

    assert list(missing) == applied == [NAMES[1], NAMES[14], NAMES[16], *LATER_NAMES]
    assert "idx_later" in definition_of(store)
    assert "merge_selector_base = 11" in definition_of(store)


def test_interrupted_recreation_of_a_dropped_table_is_completed_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema.apply(store, with_later_sources(), 30)
    store.command("DROP TABLE otel_traces SYNC")
    command = store.command

    def interrupted(statement: str) -> None:
        if "ALTER TABLE otel_traces" in statement:
            raise StoreTrouble("gone")
        command(statement)

    with monkeypatch.context() as patch:
        patch.setattr(store, "command", interrupted)
        with pytest.raises(StoreTrouble):
            schema.apply(store, with_later_sources(), 30)

    missing = [NAMES[14], NAMES[16], *LATER_NAMES]
    assert list(schema.status(store, with_later_sources(), 30).missing) == missing
    assert schema.apply(store, with_later_sources(), 30) == missing
    assert schema.apply(store, with_later_sources(), 30) == []


def test_embedded_tables_sync_inserts_and_merges(store: Store) -> None:
    schema.apply(store, schema_sources(), 30)

    status = schema.status(store, schema_sources(), 30)
    definitions = [
        str(row[0])
        for row in store.rows(
            "SELECT create_table_query FROM system.tables "
            "WHERE database = currentDatabase() AND engine LIKE '%MergeTree'"
        )
    ]

    assert dict(status.settings)["fsync_after_insert"] == "1"
    assert len(definitions) == 14
    for settings in (
        "fsync_after_insert = 1",
        "fsync_part_directory = 1",
        "min_rows_to_fsync_after_merge = 1",
        "old_parts_lifetime = 480",
    ):
        assert all(settings in statement for statement in definitions)


def test_crash_between_a_statement_and_its_record_is_repaired(store: Store) -> None:
    schema.apply(store, schema_sources(), 30)
    store.command("ALTER TABLE trace_drain_migrations DELETE WHERE Number >= 3 SETTINGS mutations_sync = 1")

    assert schema.apply(store, schema_sources(), 30) == NAMES[3:]


@each_case("days", [7, 0, 90])
def test_ttl_follows_the_setting_and_the_companion_expires_last(store: Store, days: int) -> None:
    schema.apply(store, schema_sources(), 30)

    schema.apply(store, schema_sources(), days)

    companion = definition_of(store, "otel_traces_trace_id_ts")
    assert schema.status(store, schema_sources(), days).retention_days == days
    assert (f"toIntervalDay({days})) + toIntervalDay(2)" in companion) == bool(days)
    assert schema.apply(store, schema_sources(), days) == []


@each_case("days", [7, 0, 90])
def test_deployment_events_have_a_retention_of_their_own(store: Store, days: int) -> None:
    schema.apply(store, schema_sources(), 20, (), 30)

    applied = schema.apply(store, schema_sources(), 20, (), days)

    definition = definition_of(store, "otel_deployment_events")
    assert applied == [f"retention of {days} days for deployment events"]
    assert (f"toIntervalDay({days})" in definition) == bool(days)
    assert "toIntervalDay(20)" in definition_of(store)
    assert schema.apply(store, schema_sources(), 20, (), days) == []


def test_new_codecs_change_no_value_and_rewrite_no_part_of_an_older_release(store: Store) -> None:
    schema.apply(store, schema_sources()[:14], 30)
    # A granule of unordered times, the ends of the range of times, and durations of every length.
    store.command(
        "INSERT INTO otel_traces (Timestamp, Duration, ResourceAttributes, Events.Timestamp) SELECT "
        "addNanoseconds(now64(9), cityHash64(number) % 1000000000000 - 500000000000), "
        "bitShiftRight(toUInt64(-1), number % 65), map('key', toString(number % 3)), "
        "[toDateTime64('1900-01-01 00:00:00', 9, 'UTC'), toDateTime64('2262-04-11 23:47:16', 9, 'UTC')] "
        "FROM numbers(10000)"
    )
    values = (
        "SELECT sum(cityHash64(Timestamp, Duration, ResourceAttributes, Events.Timestamp)) FROM otel_traces"
    )
    parts = "SELECT DISTINCT _part FROM otel_traces ORDER BY 1"
    before = store.rows(values), store.rows(parts)

    applied = schema.apply(store, schema_sources(), 30)

    assert applied == NAMES[14:]
    assert (store.rows(values), store.rows(parts)) == before
    store.command("OPTIMIZE TABLE otel_traces FINAL")
    assert store.rows(values) == before[0]
    assert store.rows(parts) != before[1]
    assert "`Duration` UInt64 CODEC(T64, ZSTD(1))" in definition_of(store)


@pytest.mark.parametrize("count", [11, 12])
def test_store_of_an_older_release_gets_the_later_tables(store: Store, count: int) -> None:
    assert schema.apply(store, schema_sources()[:count], 30) == NAMES[:count]

    assert schema.status(store, schema_sources(), 30).missing == tuple(NAMES[count:])
    assert schema.apply(store, schema_sources(), 30) == NAMES[count:]


def development_statements(store: Store) -> list[str]:
    engine = Engine(store.version(), embedded=True)
    return [statement.sql for statement in schema.emit(development_sources(), engine, 30)]


@pytest.mark.parametrize(
    ("statements", "error", "unusable"),
    [
        pytest.param(
            lambda _store: [COLLECTOR_TABLE],
            r"made by an OpenTelemetry Collector.*RENAME TABLE",
            "OpenTelemetry Collector",
            id="of a collector",
        ),
        pytest.param(
            development_statements,
            r"made by a development version.*export.*docs/operations\.md",
            "development version",
            id="of a development version",
        ),
    ],
)
def test_table_of_another_program_or_version_is_refused_and_not_changed(
    store: Store, statements: Callable[[Store], list[str]], error: str, unusable: str
) -> None:
    for statement in statements(store):
        store.command(statement)
    before = definition_of(store), store.rows("SHOW TABLES")

    with pytest.raises(OperatorError, match=error):
        schema.apply(store, schema_sources(), 7)

    assert (definition_of(store), store.rows("SHOW TABLES")) == before
    assert unusable in schema.status(store, schema_sources(), 30).unusable


def test_each_file_has_one_statement_without_a_database_name() -> None:
    for name, text in schema_sources():
        code = "\n".join(line.partition("--")[0] for line in text.splitlines())
        assert ";" not in code, name
        assert "otel." not in code, name


@pytest.mark.parametrize(
    ("engine", "days", "contains", "lacks"),
    [
        pytest.param(
            Engine(Version(25, 9), embedded=False),
            30,
            "merge_selector_base",
            "string_serialization_version",
            id="old: single stream without a setting",
        ),
        pytest.param(
            Engine(Version(24, 11), embedded=False),
            30,
            "INTERVAL 30 DAY",
            "merge_selector_base",
            id="older: default merges",
        ),
        pytest.param(
            Engine(Version(25, 10), embedded=False),
            30,
            "string_serialization_version = 'single_stream'",
            "fsync",
            id="server: its own sync settings",
        ),
        pytest.param(
            Engine(Version(26, 9), embedded=True),
            0,
            "fsync_after_insert = 1",
            "TTL",
            id="embedded, without retention",
        ),
    ],
)
def test_statements_depend_on_the_engine(engine: Engine, days: int, contains: str, lacks: str) -> None:
    main = schema.emit(schema_sources(), engine, days)[1].sql

    assert contains in main
    assert lacks not in "\n".join(line for line in main.splitlines() if not line.strip().startswith("--"))
    assert "-- if" not in main


def test_empty_statement_waits_for_a_newer_engine() -> None:
    old, new = (
        [statement.name for statement in schema.emit(LATER_SOURCES, Engine(version, embedded=False), 30)]
        for version in (Version(24, 11), Version(24, 12))
    )

    assert (old, new) == (LATER_NAMES[:1], LATER_NAMES)


class LockedServer:
    """Server whose schema lock another receiver holds for the next `refusals` attempts."""

    embedded = False

    def __init__(self, refusals: int, *, is_stale: bool = False) -> None:
        self.refusals = refusals
        self.is_stale = is_stale
        self.commands: list[str] = []

    def version(self) -> Version:
        return Version(26, 9)

    def create_database(self) -> None:
        raise AssertionError

    def command(self, statement: str) -> None:
        self.commands.append(statement.split(" (", maxsplit=1)[0].split(" COMMENT", maxsplit=1)[0].strip())
        if statement.startswith("CREATE TABLE trace_drain_schema_lock") and self.refusals:
            self.refusals -= 1
            raise StoreTrouble("exists", code=57)

    def rows(self, statement: str, _parameters: object = None) -> list[tuple[object, ...]]:
        return [(1,)] if self.is_stale and "metadata_modification_time" in statement else []


def test_two_receivers_do_not_apply_statements_at_the_same_time() -> None:
    server, slept = LockedServer(2), list[float]()

    schema.apply(server, schema_sources(), 30, sleep=slept.append)  # type: ignore[arg-type]  # only what is used

    assert slept == [1.0, 1.0]
    assert server.commands[:3] == ["CREATE TABLE trace_drain_schema_lock"] * 3
    assert server.commands[-1] == "DROP TABLE IF EXISTS trace_drain_schema_lock"


def test_lock_of_a_dead_process_is_dropped() -> None:
    server = LockedServer(1, is_stale=True)

    schema.apply(server, schema_sources(), 30, sleep=lambda _: None)  # type: ignore[arg-type]  # as above

    assert server.commands[:3] == [
        "CREATE TABLE trace_drain_schema_lock",
        "DROP TABLE IF EXISTS trace_drain_schema_lock",
        "CREATE TABLE trace_drain_schema_lock",
    ]
