"""Answers that are lost again and again, statements that go on alone, tokens that are forgotten, clocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from receiver.engine.clickhouse import ClickHouseStore
from receiver.writer.outcome import CLOCK_MARGIN_S
from tests.faults import wrongs
from tests.faults.desk import NAPS_MAX, Desk
from tests.faults.proxy import Exchange, Request
from tests.support.segments import day_of


def test_an_insert_is_one_block_and_one_token_and_answered_at_its_end(desk: Desk) -> None:
    inserts: list[Request] = []

    def seen(exchange: Exchange) -> None:
        inserts.append(exchange.request)
        exchange.answer(exchange.forward())

    desk.file(0, 1)
    desk.proxy.meet(seen)

    desk.carry()

    (insert,) = inserts
    asked = dict(parse_qsl(urlsplit(insert.target).query))
    assert asked["query_id"] == f"trace-drain-{asked['insert_deduplication_token']}"
    assert asked.items() >= {
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


@pytest.mark.fault("the INSERT is applied and its answer lost, every k-th time")
@pytest.mark.parametrize("every", [1, 2, 3])
def test_an_insert_whose_answer_was_lost_is_counted_and_not_sent_again(desk: Desk, every: int) -> None:
    for _ in range(6):
        desk.file(0, 1)
    desk.proxy.meet(wrongs.lost, every=every)

    desk.carry()

    desk.assert_stored_once()
    assert len(desk.proxy.inserts) == 6
    assert desk.proxy.harmed == 6 // every


class Died(BaseException):
    """The writer's process is no more."""


@pytest.mark.fault("the INSERT is applied, the answer lost, and the writer's process dies at that moment")
def test_a_writer_that_dies_with_the_answer_counts_before_it_sends(desk: Desk) -> None:
    for _ in range(3):
        desk.file(0, 1)
    for life in range(3):
        desk.proxy.meet(wrongs.lost, times=1)
        desk.on_nap[len(desk.naps) + 1] = died
        with pytest.raises(Died):
            desk.carry(fresh=not life)
        desk.proxy.mend()

    desk.carry(fresh=False)

    desk.assert_stored_once()
    assert len(set(desk.proxy.inserts)) == len(desk.proxy.inserts) == 3


def died() -> None:
    raise Died


@pytest.mark.fault("the INSERT runs on after its answer was lost, and ends well")
def test_an_insert_that_still_runs_is_waited_for(desk: Desk) -> None:
    desk.file(0, 1)
    wrongs.RunsOn(looks=5).meet(desk.proxy)

    desk.carry()

    desk.assert_stored_once()
    assert len(desk.proxy.inserts) == 1
    assert len(desk.naps) > 5


@pytest.mark.fault("the INSERT runs on after its answer was lost, and does not end")
def test_an_insert_that_never_ends_is_killed_and_sent_again_under_its_token(desk: Desk) -> None:
    segment = desk.file(0, 1)
    wrongs.RunsOn(looks=10_000).meet(desk.proxy)

    desk.carry()

    desk.assert_stored_once()
    assert desk.proxy.passed["kill"] >= 1
    assert desk.proxy.inserts == [f"trace-drain-{segment.held.segment}#0"] * 2


@pytest.mark.fault(
    "the INSERT is held up before the server, taken for lost, and arrives after its repetition"
)
def test_an_insert_that_arrives_late_meets_its_own_token(desk: Desk) -> None:
    segment = desk.file(0, 1)
    wrongs.ArrivesLate().meet(desk.proxy)

    desk.carry()

    desk.assert_stored_once()
    assert desk.proxy.inserts == [f"trace-drain-{segment.held.segment}#0"] * 2


@pytest.mark.fault("the server forgets tokens: the deduplication window is overflown between two tries")
def test_a_token_that_was_forgotten_costs_nothing(own_desk: Desk, by_hand: ClickHouseStore) -> None:
    by_hand.command("ALTER TABLE otel_traces MODIFY SETTING non_replicated_deduplication_window = 1")
    lost, others = own_desk.file(0, 1, 2), [own_desk.maker.make(0, 1, 2) for _ in range(5)]
    own_desk.proxy.meet(overflown(by_hand, [str(one.path) for one in others]), times=1)

    own_desk.carry()

    own_desk.assert_stored_once()
    assert own_desk.proxy.inserts == [f"trace-drain-{lost.held.segment}#0"]


def overflown(by_hand: ClickHouseStore, others: list[str]) -> Callable[[Exchange], None]:
    """It is applied, five more INSERTs push its token out, and its answer is lost."""

    def wrong(exchange: Exchange) -> None:
        exchange.forward()
        for number, path in enumerate(others):
            by_hand.insert(Path(path), token=f"other#{number}", query_id=f"other#{number}")
        exchange.reset()

    return wrong


@pytest.mark.fault("INSERT over several days of which some are in and some lost, their tokens remembered")
@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1), (1, 2), (0, 1, 2)], ids=str)
def test_days_that_were_lost_in_the_middle_of_an_insert_are_stored_alone(
    own_desk: Desk, by_hand: ClickHouseStore, lost: tuple[int, ...]
) -> None:
    own_desk.file(0, 0, 1, 2, 2, 2)
    own_desk.proxy.meet(partly(by_hand, [day_of(age) for age in lost]), times=1)

    own_desk.carry()

    own_desk.assert_stored_once()


def partly(by_hand: ClickHouseStore, lost: list[str]) -> Callable[[Exchange], None]:
    """It is applied, these days of it vanish from both tables, and the answer is lost."""

    def wrong(exchange: Exchange) -> None:
        exchange.forward()
        for day in lost:
            for table in ("otel_traces", "otel_traces_trace_id_ts"):
                by_hand.command(f"ALTER TABLE {table} DROP PARTITION ID '{day}'")
        exchange.reset()

    return wrong


@pytest.mark.fault("a materialized view of the operator's fails, and with it every INSERT")
def test_a_view_that_fails_calls_a_human_and_costs_no_span(own_desk: Desk, by_hand: ClickHouseStore) -> None:
    by_hand.command("CREATE TABLE theirs (n UInt8) ENGINE = MergeTree ORDER BY n")
    by_hand.command(
        "CREATE MATERIALIZED VIEW bad TO theirs AS "
        "SELECT toUInt8(throwIf(TraceId != '')) AS n FROM otel_traces"
    )
    own_desk.file(0, 1)
    own_desk.on_nap[2] = lambda: by_hand.command("DROP TABLE bad SYNC")

    own_desk.carry()

    own_desk.assert_stored_once()
    assert own_desk.progress.alarms >= 1


@pytest.mark.fault("the server is away, and back, several times")
def test_a_server_that_restarts_again_and_again_gets_everything_once(desk: Desk) -> None:
    for _ in range(4):
        desk.file(0, 1)
    desk.proxy.down()
    for nap in (2, 6):
        desk.on_nap[nap] = desk.proxy.up
    desk.proxy.meet(going_down, every=3, times=1)

    desk.carry()

    desk.assert_stored_once()
    assert desk.told[0].startswith("unknown_outcome: no answer at 127.0.0.1:")


def going_down(exchange: Exchange) -> None:
    """The INSERT is the last thing the server does."""
    exchange.forward()
    exchange.proxy.down()


@pytest.mark.fault("a proxy takes no large bodies: 413 for one segment, not for others")
def test_a_segment_too_large_for_a_proxy_waits_and_others_go_first(desk: Desk) -> None:
    large, small = desk.file(*[0] * 40), desk.file(0)
    desk.proxy.meet(wrongs.too_large(small.path.stat().st_size + 100))
    writer = desk.start()

    writer.drain()
    desk.rest()
    writer.drain()

    (reason,) = desk.progress.stalled.values()
    assert "HTTP 413 at " in reason
    assert desk.progress.alarms >= 1
    assert large.path.exists()
    assert not small.path.exists()

    desk.proxy.mend()
    desk.clock_offset_s = 3_600
    writer.drain()
    desk.assert_stored_once()


@pytest.mark.fault("the server's clock is an hour ahead of or behind ours, at the edge of the retention")
@pytest.mark.parametrize("offset_s", [-CLOCK_MARGIN_S, 0.0, CLOCK_MARGIN_S])
def test_rows_that_one_clock_lets_expire_and_the_other_does_not_are_not_waited_for(
    desk: Desk, offset_s: float
) -> None:
    segments = [desk.file(29, 0), desk.file(30, 0), desk.file(31, 0)]
    desk.clock_offset_s = offset_s

    desk.carry()

    assert desk.letters == []
    assert len(desk.naps) < NAPS_MAX
    for segment in segments:
        counted = desk.store.counts([segment.held])[segment.held.segment]
        assert counted[day_of(0)] == 1
        assert not segment.path.exists()
    assert desk.store.counts([segments[0].held])[segments[0].held.segment] == segments[0].days
