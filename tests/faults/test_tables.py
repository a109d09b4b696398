"""The table is dropped, altered, or somebody else's, while the journal holds segments for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from receiver.engine import schema
from receiver.engine.clickhouse import ClickHouseStore
from receiver.errors import OperatorError
from tests.faults import wrongs
from tests.faults.conftest import schema_applied
from tests.faults.desk import Desk
from tests.faults.proxy import Proxy
from tests.support.fake_clickhouse import schema_sources

NAPS = 3
"""Of the writer, before a human has mended it."""


def fill(desk: Desk, count: int = 3) -> None:
    """Put segments of one day and of several into the journal."""
    for number in range(count):
        desk.file(*range(number + 1), 0)


@pytest.mark.fault("table dropped under a full journal, made again by `trace-drain schema apply`")
def test_a_dropped_table_is_held_for_and_alarmed_until_it_is_made_again(
    own_desk: Desk, by_hand: ClickHouseStore
) -> None:
    fill(own_desk)
    by_hand.command("DROP TABLE otel_traces SYNC")
    own_desk.on_nap[NAPS] = lambda: schema_applied(by_hand)

    own_desk.carry()

    own_desk.assert_stored_once()
    assert own_desk.told == ["hold: UNKNOWN_TABLE (60)"] * NAPS
    assert own_desk.progress.alarms >= NAPS


@pytest.mark.fault("table dropped and made again, empty, between two segments and under one that was sent")
def test_a_table_made_again_empty_gets_what_was_not_let_go_of(
    own_desk: Desk, by_hand: ClickHouseStore
) -> None:
    fill(own_desk)
    segment = own_desk.segments[0]
    own_desk.store.insert(segment.path, token=f"{segment.held.segment}#0", query_id="trace-drain-before")
    for table in ("otel_traces", "otel_traces_trace_id_ts", "otel_traces_trace_id_ts_mv"):
        by_hand.command(f"DROP TABLE {table} SYNC")
    schema_applied(by_hand)

    own_desk.carry(fresh=False)

    own_desk.assert_stored_once()
    assert own_desk.progress.alarms == 0


@pytest.mark.fault("database dropped under a full journal, made again by `trace-drain schema apply`")
def test_a_dropped_database_is_held_for_and_alarmed(own_desk: Desk, by_hand: ClickHouseStore) -> None:
    fill(own_desk, 1)
    own_desk.store.version()
    by_hand.command(f"DROP DATABASE {by_hand.rows('SELECT currentDatabase()')[0][0]} SYNC")
    own_desk.on_nap[NAPS] = lambda: schema_applied(by_hand)

    own_desk.carry()

    own_desk.assert_stored_once()
    assert own_desk.progress.troubles == {"hold": NAPS}
    assert own_desk.progress.alarms >= NAPS


NAME = "LowCardinality(String) CODEC(ZSTD(1))"
HELD = [
    pytest.param("DROP COLUMN SpanName", f"ADD COLUMN SpanName {NAME}", id="column dropped"),
    pytest.param("RENAME COLUMN SpanName TO Name", "RENAME COLUMN Name TO SpanName", id="column renamed"),
    pytest.param(
        "MODIFY COLUMN SpanName UInt64", f"MODIFY COLUMN SpanName {NAME}", id="type that refuses all"
    ),
    pytest.param(
        "MODIFY COLUMN SpanName Enum8('probe' = 1)",
        f"MODIFY COLUMN SpanName {NAME}",
        id="type that takes our own row and no other",
    ),
    pytest.param(
        "MODIFY COLUMN TraceFlags UInt8", "MODIFY COLUMN TraceFlags UInt32", id="type that would cut values"
    ),
    pytest.param("ADD CONSTRAINT c CHECK 0", "DROP CONSTRAINT c", id="constraint that refuses all"),
    pytest.param(
        "ADD COLUMN Extra String, ADD CONSTRAINT c CHECK Extra != ''",
        "DROP CONSTRAINT c, DROP COLUMN Extra",
        id="extra column without default, and a constraint on it",
    ),
]


@pytest.mark.fault("table altered under a full journal so that it does not take our rows as they are")
@pytest.mark.parametrize(("alter", "mend"), HELD)
def test_an_altered_table_is_held_for_and_alarmed_until_it_is_mended(
    own_desk: Desk, by_hand: ClickHouseStore, alter: str, mend: str
) -> None:
    fill(own_desk)
    by_hand.command(f"ALTER TABLE otel_traces {alter}")
    own_desk.on_nap[NAPS] = lambda: by_hand.command(f"ALTER TABLE otel_traces {mend}")

    own_desk.carry()

    own_desk.assert_stored_once()
    assert own_desk.naps[:NAPS] == [2.0, 4.0, 8.0]
    assert own_desk.progress.alarms == NAPS


HARMLESS = [
    pytest.param("ADD COLUMN Extra String", id="extra column without default"),
    pytest.param("ADD COLUMN Extra UInt64 MATERIALIZED Duration + 1", id="materialized column"),
    pytest.param("MODIFY COLUMN SpanName String", id="LowCardinality taken off"),
    pytest.param("MODIFY COLUMN ScopeName Nullable(String)", id="Nullable put on"),
    pytest.param("ADD INDEX i SpanName TYPE bloom_filter GRANULARITY 1", id="index"),
]


@pytest.mark.fault("table altered under a full journal in a way that costs nothing")
@pytest.mark.parametrize("alter", HARMLESS)
def test_an_alteration_that_costs_nothing_is_not_in_the_way(
    own_desk: Desk, by_hand: ClickHouseStore, alter: str
) -> None:
    fill(own_desk, 1)
    by_hand.command(f"ALTER TABLE otel_traces {alter}")

    own_desk.carry()

    own_desk.assert_stored_once()
    assert own_desk.naps == []


COLLECTORS = """
CREATE TABLE otel_traces (Timestamp DateTime64(9), TraceId String, SpanAttributes Map(String, String))
ENGINE = MergeTree ORDER BY Timestamp
"""


@pytest.mark.fault("a Collector's own `otel_traces` is in the way")
def test_a_collectors_table_is_refused_with_the_way_to_adopt_it_and_that_way_works(
    by_hand: ClickHouseStore,
) -> None:
    for table in ("otel_traces", "otel_traces_trace_id_ts", "otel_traces_trace_id_ts_mv"):
        by_hand.command(f"DROP TABLE {table} SYNC")
    by_hand.command(COLLECTORS)
    by_hand.command("INSERT INTO otel_traces SELECT now64(9), 'a', map('k', 'v')")

    with pytest.raises(OperatorError, match="RENAME TABLE otel_traces TO otel_traces_before"):
        schema_applied(by_hand)
    by_hand.command("RENAME TABLE otel_traces TO otel_traces_before")
    schema_applied(by_hand)
    by_hand.command(
        "INSERT INTO otel_traces (Timestamp, TraceId, SpanAttributes) SELECT * FROM otel_traces_before"
    )

    assert by_hand.rows("SELECT TraceId FROM otel_traces_trace_id_ts") == [("a",)]


@pytest.mark.fault("ClickHouse is older than what was ever tried")
def test_a_server_that_is_too_old_is_refused_by_name(
    proxy: Proxy, connected: Callable[[str], ClickHouseStore], own_database: str
) -> None:
    proxy.meet(wrongs.of_version("21.8.15.7"), on="any")

    with pytest.raises(OperatorError, match=r"ClickHouse is 21\.8; expected 24\.3 or newer"):
        schema.apply(connected(own_database), schema_sources(), 30)
