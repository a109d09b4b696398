"""The table is dropped, altered, or belongs to a Collector, while the journal holds segments for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from receiver.engine import schema
from receiver.engine.clickhouse import ClickHouseStore
from receiver.errors import OperatorError
from receiver.writer.store_watch import FIRST_S
from tests.faults import failures
from tests.faults.conftest import apply_schema
from tests.faults.proxy import Proxy
from tests.faults.writer_harness import WriterHarness
from tests.support.fake_clickhouse import schema_sources

WAITS_BEFORE_REPAIR = 3
"""Waits of the writer before the operator repairs the table."""


def add_segments(harness: WriterHarness, count: int = 3) -> None:
    """Add segments of one day and of several to the journal."""
    for number in range(count):
        harness.add_segment(*range(number + 1), 0)


@pytest.mark.fault(
    "table dropped while the journal holds segments, created again by `trace-drain schema apply`"
)
def test_segments_wait_with_an_alarm_until_a_dropped_table_is_created_again(
    own_harness: WriterHarness, operator_store: ClickHouseStore
) -> None:
    add_segments(own_harness)
    operator_store.command("DROP TABLE otel_traces SYNC")
    own_harness.on_wait[WAITS_BEFORE_REPAIR] = lambda: apply_schema(operator_store)

    own_harness.drain_journal()

    own_harness.assert_stored_once()
    assert own_harness.errors[:WAITS_BEFORE_REPAIR] == ["hold: UNKNOWN_TABLE (60)"] * WAITS_BEFORE_REPAIR
    # No refusal after the repair, which waits for seconds: only for a refused INSERT that is still listed.
    assert set(own_harness.waits[WAITS_BEFORE_REPAIR:]) <= {FIRST_S}
    assert own_harness.progress.alarms >= WAITS_BEFORE_REPAIR


@pytest.mark.fault("table dropped and created again, empty, between two segments and after an INSERT")
def test_recreated_empty_table_receives_every_segment_that_is_still_in_the_journal(
    own_harness: WriterHarness, operator_store: ClickHouseStore
) -> None:
    add_segments(own_harness)
    segment = own_harness.segments[0]
    own_harness.store.insert(
        segment.path, token=f"{segment.location.segment}#0", query_id="trace-drain-before"
    )
    for table in ("otel_traces", "otel_traces_trace_id_ts", "otel_traces_trace_id_ts_mv"):
        operator_store.command(f"DROP TABLE {table} SYNC")
    apply_schema(operator_store)

    own_harness.drain_journal(fresh=False)

    own_harness.assert_stored_once()
    assert own_harness.progress.alarms == 0


@pytest.mark.fault(
    "database dropped while the journal holds segments, created again by `trace-drain schema apply`"
)
def test_segments_wait_with_an_alarm_until_a_dropped_database_is_created_again(
    own_harness: WriterHarness, operator_store: ClickHouseStore
) -> None:
    add_segments(own_harness, 1)
    own_harness.store.version()
    operator_store.command(f"DROP DATABASE {operator_store.rows('SELECT currentDatabase()')[0][0]} SYNC")
    own_harness.on_wait[WAITS_BEFORE_REPAIR] = lambda: apply_schema(operator_store)

    own_harness.drain_journal()

    own_harness.assert_stored_once()
    assert own_harness.progress.troubles == {"hold": WAITS_BEFORE_REPAIR}
    assert own_harness.progress.alarms >= WAITS_BEFORE_REPAIR


NAME = "LowCardinality(String) CODEC(ZSTD(1))"
ALTERATIONS_THAT_BLOCK = [
    pytest.param("DROP COLUMN SpanName", f"ADD COLUMN SpanName {NAME}", id="column dropped"),
    pytest.param("RENAME COLUMN SpanName TO Name", "RENAME COLUMN Name TO SpanName", id="column renamed"),
    pytest.param(
        "MODIFY COLUMN SpanName UInt64", f"MODIFY COLUMN SpanName {NAME}", id="type that refuses every row"
    ),
    pytest.param(
        "MODIFY COLUMN SpanName Enum8('probe' = 1)",
        f"MODIFY COLUMN SpanName {NAME}",
        id="type that accepts only the probe row",
    ),
    pytest.param(
        "MODIFY COLUMN TraceFlags UInt8",
        "MODIFY COLUMN TraceFlags UInt32",
        id="type that would truncate values",
    ),
    pytest.param("ADD CONSTRAINT c CHECK 0", "DROP CONSTRAINT c", id="constraint that refuses every row"),
    pytest.param(
        "ADD COLUMN Extra String, ADD CONSTRAINT c CHECK Extra != ''",
        "DROP CONSTRAINT c, DROP COLUMN Extra",
        id="extra column without default, and a constraint on it",
    ),
]


@pytest.mark.fault(
    "table altered while the journal holds segments, so that it would not store rows unchanged"
)
@pytest.mark.parametrize(("alter", "repair"), ALTERATIONS_THAT_BLOCK)
def test_segments_wait_with_an_alarm_until_an_altered_table_is_repaired(
    own_harness: WriterHarness, operator_store: ClickHouseStore, alter: str, repair: str
) -> None:
    add_segments(own_harness)
    operator_store.command(f"ALTER TABLE otel_traces {alter}")
    own_harness.on_wait[WAITS_BEFORE_REPAIR] = lambda: operator_store.command(
        f"ALTER TABLE otel_traces {repair}"
    )

    own_harness.drain_journal()

    own_harness.assert_stored_once()
    assert own_harness.waits[:WAITS_BEFORE_REPAIR] == [2.0, 4.0, 8.0]
    assert own_harness.progress.alarms == WAITS_BEFORE_REPAIR


HARMLESS_ALTERATIONS = [
    pytest.param("ADD COLUMN Extra String", id="extra column without default"),
    pytest.param("ADD COLUMN Extra UInt64 MATERIALIZED Duration + 1", id="materialized column"),
    pytest.param("MODIFY COLUMN SpanName String", id="LowCardinality removed"),
    pytest.param("MODIFY COLUMN ScopeName Nullable(String)", id="Nullable added"),
    pytest.param("ADD INDEX i SpanName TYPE bloom_filter GRANULARITY 1", id="index"),
]


@pytest.mark.fault("table altered while the journal holds segments, in a way that stores rows unchanged")
@pytest.mark.parametrize("alter", HARMLESS_ALTERATIONS)
def test_harmless_alteration_does_not_delay_segments(
    own_harness: WriterHarness, operator_store: ClickHouseStore, alter: str
) -> None:
    add_segments(own_harness, 1)
    operator_store.command(f"ALTER TABLE otel_traces {alter}")

    own_harness.drain_journal()

    own_harness.assert_stored_once()
    assert own_harness.waits == []


COLLECTOR_TABLE = """
CREATE TABLE otel_traces (Timestamp DateTime64(9), TraceId String, SpanAttributes Map(String, String))
ENGINE = MergeTree ORDER BY Timestamp
"""


@pytest.mark.fault("the table `otel_traces` belongs to a Collector")
def test_table_of_a_collector_is_refused_with_instructions_to_adopt_it_and_they_work(
    operator_store: ClickHouseStore,
) -> None:
    for table in ("otel_traces", "otel_traces_trace_id_ts", "otel_traces_trace_id_ts_mv"):
        operator_store.command(f"DROP TABLE {table} SYNC")
    operator_store.command(COLLECTOR_TABLE)
    operator_store.command("INSERT INTO otel_traces SELECT now64(9), 'a', map('k', 'v')")

    with pytest.raises(OperatorError, match="RENAME TABLE otel_traces TO otel_traces_before"):
        apply_schema(operator_store)
    operator_store.command("RENAME TABLE otel_traces TO otel_traces_before")
    apply_schema(operator_store)
    operator_store.command(
        "INSERT INTO otel_traces (Timestamp, TraceId, SpanAttributes) SELECT * FROM otel_traces_before"
    )

    assert operator_store.rows("SELECT TraceId FROM otel_traces_trace_id_ts") == [("a",)]


@pytest.mark.fault("ClickHouse is older than the oldest supported version")
def test_unsupported_server_version_is_refused_with_its_version(
    proxy: Proxy, connected: Callable[[str], ClickHouseStore], own_database: str
) -> None:
    proxy.inject(failures.of_version("21.8.15.7"), on="any")

    with pytest.raises(OperatorError, match=r"ClickHouse is 21\.8; expected 24\.3 or newer"):
        schema.apply(connected(own_database), schema_sources(), 30)
