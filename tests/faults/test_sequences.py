"""Repeated lost responses, statements that continue alone, forgotten tokens, and differing clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from receiver.engine.clickhouse import ClickHouseStore
from receiver.writer.outcome import CLOCK_MARGIN_S
from tests.faults import failures
from tests.faults.proxy import Exchange, Request
from tests.faults.writer_harness import WAITS_MAX, WriterHarness
from tests.support.fake_clickhouse import NOW_S
from tests.support.segments import day_of


def test_insert_is_one_block_with_one_token_and_answered_when_it_ends(harness: WriterHarness) -> None:
    inserts: list[Request] = []

    def record(exchange: Exchange) -> None:
        inserts.append(exchange.request)
        exchange.answer(exchange.forward())

    harness.add_segment(0, 1)
    harness.proxy.inject(record)

    harness.drain_journal()

    (insert,) = inserts
    parameters = dict(parse_qsl(urlsplit(insert.target).query))
    assert parameters["query_id"] == f"trace-drain-{parameters['insert_deduplication_token']}"
    assert parameters.items() >= {
        ("wait_end_of_query", "1"),
        ("async_insert", "0"),
        ("insert_deduplicate", "1"),
        ("max_insert_threads", "1"),
        ("max_insert_block_size", "1000000000"),
        ("min_insert_block_size_rows", "1000000000"),
        ("min_insert_block_size_bytes", "0"),
        ("input_format_skip_unknown_fields", "0"),
        ("deduplicate_blocks_in_dependent_materialized_views", "1"),
    }


@pytest.mark.fault("the INSERT is applied and its response lost, every k-th time")
@pytest.mark.parametrize("every", [1, 2, 3])
def test_insert_whose_response_was_lost_is_counted_and_not_sent_again(
    harness: WriterHarness, every: int
) -> None:
    for _ in range(6):
        harness.add_segment(0, 1)
    harness.proxy.inject(failures.lost, every=every)

    harness.drain_journal()

    harness.assert_stored_once()
    assert len(harness.proxy.inserts) == 6
    assert harness.proxy.failed_count == 6 // every


class WriterDied(BaseException):
    """The writer's process was killed."""


@pytest.mark.fault("the INSERT is applied, its response lost, and the writer killed at that moment")
def test_writer_killed_with_the_response_counts_rows_before_it_inserts_again(harness: WriterHarness) -> None:
    for _ in range(3):
        harness.add_segment(0, 1)
    for start in range(3):
        harness.proxy.inject(failures.lost, times=1)
        harness.on_wait[len(harness.waits) + 1] = die
        with pytest.raises(WriterDied):
            harness.drain_journal(fresh=not start)
        harness.proxy.heal()

    harness.drain_journal(fresh=False)

    harness.assert_stored_once()
    assert len(set(harness.proxy.inserts)) == len(harness.proxy.inserts) == 3


def die() -> None:
    raise WriterDied


@pytest.mark.fault("the INSERT continues after its connection was lost, and succeeds")
def test_writer_waits_for_an_insert_that_still_runs(harness: WriterHarness) -> None:
    harness.add_segment(0, 1)
    failures.RunsOn(polls=5).install(harness.proxy)

    harness.drain_journal()

    harness.assert_stored_once()
    assert len(harness.proxy.inserts) == 1
    assert len(harness.waits) >= 5


@pytest.mark.fault("the INSERT continues after its connection was lost, and never ends")
def test_insert_that_never_ends_is_killed_and_sent_again_with_its_token(harness: WriterHarness) -> None:
    segment = harness.add_segment(0, 1)
    failures.RunsOn(polls=10_000).install(harness.proxy)

    harness.drain_journal()

    harness.assert_stored_once()
    assert harness.proxy.requests["kill"] >= 1
    assert harness.proxy.inserts == [f"trace-drain-{segment.location.segment}#0"] * 2


@pytest.mark.fault("an INSERT is delayed in the network and arrives after its retry")
def test_insert_that_arrives_after_its_retry_is_deduplicated_by_its_token(harness: WriterHarness) -> None:
    segment = harness.add_segment(0, 1)
    failures.ArrivesLate().install(harness.proxy)

    harness.drain_journal()

    harness.assert_stored_once()
    assert harness.proxy.inserts == [f"trace-drain-{segment.location.segment}#0"] * 2


@pytest.mark.fault("the server forgets tokens: its deduplication window overflows between two attempts")
def test_forgotten_token_loses_and_duplicates_no_row(
    own_harness: WriterHarness, operator_store: ClickHouseStore
) -> None:
    operator_store.command("ALTER TABLE otel_traces MODIFY SETTING non_replicated_deduplication_window = 1")
    lost, others = own_harness.add_segment(0, 1, 2), [own_harness.maker.make(0, 1, 2) for _ in range(5)]
    own_harness.proxy.inject(
        lost_after_window_overflow(operator_store, [str(other.path) for other in others]), times=1
    )

    own_harness.drain_journal()

    own_harness.assert_stored_once()
    assert own_harness.proxy.inserts == [f"trace-drain-{lost.location.segment}#0"]


def lost_after_window_overflow(
    operator_store: ClickHouseStore, others: list[str]
) -> Callable[[Exchange], None]:
    """The INSERT is applied, five more INSERTs displace its token, and its response is lost."""

    def overflow(exchange: Exchange) -> None:
        exchange.forward()
        for number, path in enumerate(others):
            operator_store.insert(Path(path), token=f"other#{number}", query_id=f"other#{number}")
        exchange.reset()

    return overflow


@pytest.mark.fault(
    "some days of an INSERT over several days are stored, others lost, and their tokens remembered"
)
@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1), (1, 2), (0, 1, 2)], ids=str)
def test_lost_days_of_an_insert_are_stored_separately(
    own_harness: WriterHarness, operator_store: ClickHouseStore, lost: tuple[int, ...]
) -> None:
    own_harness.add_segment(0, 0, 1, 2, 2, 2)
    own_harness.proxy.inject(lost_days(operator_store, [day_of(age) for age in lost]), times=1)

    own_harness.drain_journal()

    own_harness.assert_stored_once()


def lost_days(operator_store: ClickHouseStore, lost: list[str]) -> Callable[[Exchange], None]:
    """The INSERT is applied, these days of it disappear from both tables, and its response is lost."""

    def lose(exchange: Exchange) -> None:
        exchange.forward()
        for day in lost:
            for table in ("otel_traces", "otel_traces_trace_id_ts"):
                operator_store.command(f"ALTER TABLE {table} DROP PARTITION ID '{day}'")
        exchange.reset()

    return lose


@pytest.mark.fault("a materialized view of the operator fails, and with it every INSERT")
def test_failing_view_raises_the_alarm_and_loses_no_span(
    own_harness: WriterHarness, operator_store: ClickHouseStore
) -> None:
    operator_store.command("CREATE TABLE operator_table (n UInt8) ENGINE = MergeTree ORDER BY n")
    operator_store.command(
        "CREATE MATERIALIZED VIEW bad TO operator_table AS "
        "SELECT toUInt8(throwIf(TraceId != '')) AS n FROM otel_traces"
    )
    own_harness.add_segment(0, 1)
    own_harness.on_wait[2] = lambda: operator_store.command("DROP TABLE bad SYNC")

    own_harness.drain_journal()

    own_harness.assert_stored_once()
    assert own_harness.progress.alarms >= 1


@pytest.mark.fault("the server is repeatedly unavailable")
def test_server_that_restarts_repeatedly_stores_every_row_once(harness: WriterHarness) -> None:
    for _ in range(4):
        harness.add_segment(0, 1)
    harness.proxy.down()
    for wait in (2, 6):
        harness.on_wait[wait] = harness.proxy.up
    harness.proxy.inject(apply_and_stop, every=3, times=1)

    harness.drain_journal()

    harness.assert_stored_once()
    assert harness.errors[0].startswith("unknown_outcome: no answer at 127.0.0.1:")


def apply_and_stop(exchange: Exchange) -> None:
    """The server stops after the INSERT."""
    exchange.forward()
    exchange.proxy.down()


@pytest.mark.fault("a proxy limits the size of request bodies: 413 for one segment, not for others")
def test_segment_too_large_for_a_proxy_waits_and_others_are_stored(harness: WriterHarness) -> None:
    large, small = harness.add_segment(*[0] * 40), harness.add_segment(0)
    harness.proxy.inject(failures.too_large(small.path.stat().st_size + 100))
    writer = harness.start()

    writer.drain()
    harness.wait_for_retry()
    writer.drain()

    (reason,) = harness.progress.stalled.values()
    assert "HTTP 413 at " in reason
    assert harness.progress.alarms >= 1
    assert large.path.exists()
    assert not small.path.exists()

    harness.proxy.heal()
    harness.clock_offset_s = 3_600
    writer.drain()
    harness.assert_stored_once()


@pytest.mark.fault("the server's clock differs from the receiver's by an hour, at the edge of the retention")
@pytest.mark.parametrize("offset_s", [-CLOCK_MARGIN_S, 0.0, CLOCK_MARGIN_S])
def test_rows_that_only_one_clock_treats_as_expired_do_not_delay_the_journal(
    harness: WriterHarness, offset_s: float
) -> None:
    # The spans are of yesterday's noon: those of 29 days before expire at noon of today.
    segments = [harness.add_segment(28, 0), harness.add_segment(29, 0), harness.add_segment(30, 0)]
    harness.clock_offset_s = time.time() - NOW_S + offset_s

    harness.drain_journal()

    assert harness.dead_letters == []
    assert len(harness.waits) < WAITS_MAX
    for segment in segments:
        counted = harness.store.counts([segment.location])[segment.location.segment]
        assert counted[day_of(0)] == 1
        assert not segment.path.exists()
    assert harness.store.counts([segments[0].location])[segments[0].location.segment] == segments[0].days
