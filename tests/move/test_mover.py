"""A move copies what the target lacks, each row once, whatever happens to an INSERT or to the move."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Thread

import pytest

from receiver.engine.clickhouse import ClickHouseStore
from receiver.engine.copying import HOUR_S, Piece, Read
from receiver.engine.store import RowSum, Store
from receiver.errors import CommandFailed, StoreTrouble
from receiver.model import SegmentId
from receiver.move import mover
from receiver.move.ends import OpenStore, Row, UnfinishedSegments
from receiver.move.mover import Moved, chunks
from tests.support.cases import each_case
from tests.support.memory_disk import Killed
from tests.support.moves import EPOCH, HOUR, NAME, Move, TargetDouble, add, content, segment, unreachable
from tests.support.server_process import Server


@pytest.fixture
def move(source: Store, target: ClickHouseStore) -> Move:
    return Move(source, target)


@pytest.fixture
def an_insert_for_each_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mover, "CHUNK_SEGMENTS_MAX", 1)


def rows_of(store: Store, seq: int) -> int:
    return int(
        store.rows("SELECT count() FROM otel_traces WHERE SegmentSeq = {seq:UInt64}", {"seq": seq})[0][0]
    )


def test_every_column_of_every_span_is_copied_once(move: Move) -> None:
    for seq in range(3):
        add(move.source, seq, rows=100)
    add(move.source, 2, hour=HOUR + 1)
    add(move.source, 7, hour=HOUR - 48, epoch=3)

    assert move.run() == Moved(copied=320, equal=320, unfinished=0)

    assert content(move.target) == content(move.source)
    assert unreachable(move.target) == 0
    assert [line.partition(" spans")[0][10:] for line in move.reported] == [
        " (day 1 of 2): 10 of 320",
        " (day 2 of 2): 320 of 320",
    ]


def test_second_move_copies_only_what_arrived_since(move: Move) -> None:
    add(move.source, 1)
    move.run()
    add(move.source, 2)

    assert move.run() == Moved(copied=10, equal=20, unfinished=0)
    assert move.run() == Moved(copied=0, equal=20, unfinished=0)
    assert content(move.target) == content(move.source)


def test_spans_of_other_receivers_in_the_target_stay(move: Move) -> None:
    add(move.target, 1, epoch=77)
    add(move.source, 1)

    assert move.run() == Moved(copied=10, equal=10, unfinished=0)
    assert content(move.target)[0] == 20


def test_segments_in_the_journal_and_pieces_of_them_are_left_to_the_writer(move: Move) -> None:
    add(move.source, 1)
    add(move.source, 2)
    add(move.source, 1, epoch=3)
    unfinished = UnfinishedSegments(frozenset({segment(2)}), frozenset({3}))

    assert move.run(unfinished=lambda: unfinished) == Moved(copied=10, equal=10, unfinished=20)

    assert (rows_of(move.target, 1), rows_of(move.target, 2)) == (10, 0)
    assert move.run() == Moved(copied=20, equal=30, unfinished=0)


def test_segment_that_reaches_the_store_while_the_move_reads_is_left_to_the_writer(move: Move) -> None:
    add(move.source, 1)
    journal: set[SegmentId] = set()

    class WhileWriting(OpenStore):
        def lines(self, read: Read) -> list[Row]:
            if read == Read("segments", HOUR):
                add(move.source, 2)
                journal.add(segment(2))
            return super().lines(read)

    moved = move.run(
        source=WhileWriting(move.source),
        unfinished=lambda: UnfinishedSegments(frozenset(journal), frozenset()),
    )

    assert moved.unfinished
    assert rows_of(move.target, 2) == 0


def test_segment_that_the_writer_stores_in_both_stores_stays_once_in_each(move: Move) -> None:
    add(move.source, 1)
    # In the journal when the receiver was stopped, so its writer then stores it in the server, too.
    move.run(unfinished=lambda: UnfinishedSegments(frozenset({segment(1)}), frozenset()))
    add(move.target, 1)

    assert move.run() == Moved(copied=0, equal=10, unfinished=0)
    assert content(move.target) == content(move.source)


@each_case("fault", ["answer_lost", "reset", "error", "body"])
def test_insert_whose_outcome_is_unknown_is_counted_before_it_is_repeated(
    move: Move, faulty_server: Server, fault: str
) -> None:
    move.begin()
    add(move.source, 1)
    add(move.source, 2, hour=HOUR + 1)
    faulty_server.inject_fault(fault, code=241)

    moved = move.run()

    assert moved.equal == 20
    assert content(move.target) == content(move.source)
    assert "counting again in 1 s" in move.reported[0]


def test_target_that_refuses_every_insert_ends_the_move(move: Move, faulty_server: Server) -> None:
    add(move.source, 1)
    faulty_server.inject_fault("error", code=241, times=20)

    with pytest.raises(StoreTrouble) as refused:
        move.run()

    faulty_server.inject_fault("", times=0)
    assert refused.value.code == 241
    assert len(move.reported) == len(mover.RETRY_DELAYS_S)


def test_target_that_forgets_rows_it_acknowledged_ends_the_move(move: Move) -> None:
    add(move.source, 1)

    class Forgetful(TargetDouble):
        def insert(self, _send: Callable[[], int]) -> int:
            return 10

    with pytest.raises(CommandFailed, match="lacks rows after 6 INSERTs that returned OK"):
        move.run(target=Forgetful(move.target))


@each_case("deletions", [1, 6])
def test_rows_are_copied_although_their_tokens_are_used_up(move: Move, deletions: int) -> None:
    move.begin()
    add(move.source, 1)
    for _ in range(deletions):
        move.run()
        # As after a kill between the record of a token and the rename of its part.
        move.target.command("ALTER TABLE otel_traces DELETE WHERE 1 SETTINGS mutations_sync = 2")

    move.run()

    assert content(move.target) == content(move.source)


class KilledAt(TargetDouble):
    """Target that ends the process before or after the INSERT with a number."""

    def __init__(self, target: ClickHouseStore, number: int, *, is_after: bool) -> None:
        super().__init__(target)
        self._left, self._is_after = number, is_after

    def insert(self, send: Callable[[], int]) -> int:
        self._left -= 1
        if self._left:
            return send()
        if self._is_after:
            send()
        raise Killed


@pytest.mark.usefixtures("an_insert_for_each_segment")
@each_case("is_after", [False, True])
@each_case("number", [1, 2, 4])
def test_killed_move_is_continued_by_the_next(move: Move, number: int, *, is_after: bool) -> None:
    move.begin()
    for seq in range(4):
        add(move.source, seq)
    with pytest.raises(Killed):
        move.run(target=KilledAt(move.target, number, is_after=is_after))

    left = 4 - number + (not is_after)
    assert move.run() == Moved(copied=10 * left, equal=40, unfinished=0)

    assert content(move.target) == content(move.source)
    assert unreachable(move.target) == 0


class LeavesAnInsertRunning(TargetDouble):
    """Target whose first INSERT is still running on the server when the move gets an error."""

    def __init__(self, target: ClickHouseStore, error: BaseException) -> None:
        super().__init__(target)
        self._errors = [error]

    def insert(self, send: Callable[[], int]) -> int:
        assert not self.target.running(NAME)
        if not self._errors:
            return send()
        Thread(target=in_background, args=(send,)).start()
        while not self.target.running(NAME):
            pass
        raise self._errors.pop()


def in_background(send: Callable[[], int]) -> None:
    # The move closes the body that the INSERT still reads.
    with suppress(StoreTrouble, ValueError):
        send()


def test_insert_without_an_answer_is_cancelled_before_a_retry(move: Move, faulty_server: Server) -> None:
    add(move.source, 1)
    faulty_server.inject_fault("hang")

    move.run(target=LeavesAnInsertRunning(move.target, StoreTrouble("timed out")))

    assert content(move.target) == content(move.source)


def test_insert_of_a_killed_move_is_cancelled_before_the_next_move(move: Move, faulty_server: Server) -> None:
    add(move.source, 1)
    faulty_server.inject_fault("hang")
    with pytest.raises(Killed):
        move.run(target=LeavesAnInsertRunning(move.target, Killed()))
    assert move.target.running(NAME)

    class Checking(TargetDouble):
        def insert(self, send: Callable[[], int]) -> int:
            assert not move.target.running(NAME)
            return send()

    move.run(target=Checking(move.target))

    assert content(move.target) == content(move.source)


def test_segment_that_the_target_has_in_part_is_replaced(move: Move) -> None:
    for seq in (1, 2):
        add(move.source, seq)
    move.run()
    move.target.command(
        "ALTER TABLE otel_traces DELETE WHERE SegmentSeq = 1 AND SpanId < '04' SETTINGS mutations_sync = 2"
    )
    assert 0 < rows_of(move.target, 1) < 10

    assert move.run().equal == 20

    assert content(move.target) == content(move.source)
    assert "the target has a part of 1 segment; it is deleted and copied" in "\n".join(move.reported)


@each_case("rows", [10, 11])
def test_other_rows_of_a_segment_in_the_target_are_refused_and_named(move: Move, rows: int) -> None:
    move.begin()
    add(move.source, 1)
    add(move.target, 1, rows=rows, hour=HOUR)
    move.target.command(
        "ALTER TABLE otel_traces UPDATE SpanId = 'another' WHERE 1 SETTINGS mutations_sync = 2"
    )

    with pytest.raises(CommandFailed, match=f"other rows of segment {EPOCH:016x}-0000000001 in the hour 2"):
        move.run()

    assert content(move.target)[0] == rows


def test_traces_that_the_companion_table_lacks_are_added(move: Move) -> None:
    add(move.source, 1)
    move.run()
    # As after a kill of the server between the two tables.
    move.target.command("TRUNCATE TABLE otel_traces_trace_id_ts")
    assert unreachable(move.target)

    move.run()

    assert unreachable(move.target) == 0
    # Complete: the next move adds nothing.
    before = move.target.rows("SELECT count() FROM otel_traces_trace_id_ts")
    move.run()
    assert move.target.rows("SELECT count() FROM otel_traces_trace_id_ts") == before


def test_spans_that_expire_within_an_hour_are_not_copied(move: Move) -> None:
    add(move.source, 1)
    add(move.source, 2, hour=HOUR + 1)
    now_s = (HOUR + 24) * HOUR_S - HOUR_S + 1.0

    assert move.run(retention_days=1, now_s=lambda: now_s).equal == 10
    assert rows_of(move.target, 1) == 0


def test_rows_of_the_writers_probe_are_not_copied(move: Move) -> None:
    move.source.probe()

    assert move.run().copied == 0


def test_deployment_events_are_copied_once(move: Move) -> None:
    def add_event(store: Store, name: str, hours: int) -> None:
        store.rows(
            "INSERT INTO otel_deployment_events "
            "(ProjectId, DeploymentId, Created, EventId, Event, FetchedAt) "
            "SELECT 'prj', 'dpl', toStartOfYear(now()), {name:String}, "
            '\'{"payload":{"text":"built"}}\', now64(3) - INTERVAL {hours:UInt32} HOUR',
            {"name": name, "hours": hours},
        )

    for name, hours in (("a", 0), ("b", 30), ("b", 30)):
        add_event(move.source, name, hours)
    add_event(move.target, "of another receiver", 0)

    assert move.run() == Moved(0, 0, 0)
    move.run()

    events = move.target.rows("SELECT EventId, Text FROM otel_deployment_events FINAL ORDER BY EventId")
    assert events == [("a", "built"), ("b", "built"), ("of another receiver", "built")]


def test_large_body_of_several_segments_is_sent_in_parts(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mover, "BODY_BYTES_MAX", 10_000)
    sent: list[int] = []

    class Counting(TargetDouble):
        def insert(self, send: Callable[[], int]) -> int:
            sent.append(send())
            return sent[-1]

    for seq in range(4):
        add(move.source, seq, rows=200)
    move.run(target=Counting(move.target))

    assert sent == [200, 200, 200, 200]
    assert content(move.target) == content(move.source)


def test_insert_has_segments_of_one_epoch_and_shard_and_a_limited_number_of_rows_and_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mover, "CHUNK_ROWS_MAX", 10)
    monkeypatch.setattr(mover, "CHUNK_SEGMENTS_MAX", 3)
    rows = {(1, 1): 4, (1, 2): 6, (1, 3): 20, (1, 5): 1, (1, 6): 1, (1, 7): 1, (1, 8): 1, (2, 1): 1}
    lacking = {Piece(0, SegmentId(*pair)): RowSum(count) for pair, count in rows.items()}
    lacking[Piece(1, SegmentId(2, 1))] = RowSum(1)

    groups = [
        [(piece.shard, piece.segment.epoch, piece.segment.seq) for piece in chunk]
        for chunk in chunks(lacking)
    ]

    assert groups == [
        [(0, 1, 1), (0, 1, 2)],
        [(0, 1, 3)],
        [(0, 1, 5), (0, 1, 6), (0, 1, 7)],
        [(0, 1, 8)],
        [(0, 2, 1)],
        [(1, 2, 1)],
    ]
