"""Tests of batches: deliveries that the core collects on the fast path of several connections."""

from __future__ import annotations

import asyncio
import gc
import gzip
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from receiver import transcode
from receiver.errors import DiskTrouble
from receiver.intake.connections import protocol as protocol_module
from receiver.intake.connections.fast_path_protocol import FastPathProtocol
from receiver.intake.pending import delivery_digests
from receiver.intake.routes import Routes
from receiver.journal.writer_notes import SegmentOutcome
from receiver.model import Delivery, SegmentId
from receiver.settings import Drain, Limits
from receiver.transcode import FastBatch
from tests.support.intake import (
    SPAN_BODY,
    AppenderDouble,
    CommitDouble,
    Connection,
    CoreDouble,
    Intake,
    OutcomeDouble,
    on_uvloop,
    request,
    running,
    until,
)
from tests.support.redelivery import POLICY, delivery
from tests.support.segments import DIGEST_KEY

TOKEN = Drain(name="d", tokens=("t",))
BEARER = "Bearer t"
SEGMENT = SegmentId(7, 0)
"""The segment of `AppenderDouble`."""
BODIES = [SPAN_BODY * count for count in (2, 3, 4)]


class PostponingCore(CoreDouble):
    """A core whose groups have room for all but the last of several deliveries; then the journal is full."""

    def __init__(self, appender: AppenderDouble | None = None) -> None:
        super().__init__()
        self._appender = appender

    def transcode(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
        committed = super().transcode(deliveries, segment)
        if len(deliveries) > 1:
            committed.outcomes[-1] = OutcomeDouble("postponed")
            if self._appender is not None:
                self._appender.full = "the disk is full"
        return committed


async def used_connections(intake: Intake, count: int = len(BODIES)) -> list[Connection]:
    return [await intake.used_connection(authorization=BEARER) for _ in range(count)]


def protocols(intake: Intake) -> list[FastPathProtocol]:
    """Return the receiver's ends of the connections, in the order in which they were opened."""
    return cast("list[FastPathProtocol]", intake.server.connections)


def arrive(intake: Intake, bodies: list[bytes]) -> None:
    """Let a delivery arrive on each connection, in the same iteration of the event loop."""
    for protocol, body in zip(protocols(intake), bodies, strict=True):
        protocol.data_received(request(body, authorization=BEARER))


async def statuses(connections: list[Connection]) -> list[int]:
    return [(await connection.answer()).status for connection in connections]


async def close_first_while_committing(intake: Intake) -> None:
    """Let deliveries arrive, and close the first connection before its delivery is on disk."""
    intake.core.pause()
    arrive(intake, BODIES)
    await asyncio.to_thread(intake.core.running.wait)
    protocols(intake)[0].abort()
    await until(lambda: len(protocols(intake)) == len(BODIES) - 1)
    intake.core.may_continue.set()


@on_uvloop
async def test_deliveries_that_arrive_together_are_one_group_and_each_is_answered() -> None:
    async with running(TOKEN) as intake:
        connections = await used_connections(intake)
        arrive(intake, BODIES)
        answered = await statuses(connections)
        await until(lambda: not intake.admission.bytes_in_flight)

    assert answered == [200] * 3
    assert [delivery.body for delivery in intake.core.groups[-1]] == BODIES
    assert intake.counted("deliveries", "d", "200") == 6
    assert intake.counted("body_bytes", "d") == 3 * len(SPAN_BODY) + sum(map(len, BODIES))


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (OutcomeDouble("malformed", message="not a message"), 400),
        (OutcomeDouble("too_large", message="too many spans"), 413),
        (OutcomeDouble("crashed"), 503),
        (OutcomeDouble(rejected=1, message="a span has no id"), 200),
    ],
)
@on_uvloop
async def test_other_outcome_of_one_delivery_leaves_the_rest_of_its_batch_accepted(
    outcome: OutcomeDouble, status: int
) -> None:
    async with running(TOKEN, core=CoreDouble(special={BODIES[1]: outcome})) as intake:
        connections = await used_connections(intake)
        arrive(intake, BODIES)
        answers = [await connection.answer() for connection in connections]
        arrive(intake, [BODIES[0]] * 3)
        later = await statuses(connections)
        await until(lambda: not intake.admission.bytes_in_flight)

    assert [answer.status for answer in answers] == [200, status, 200]
    assert outcome.message.encode() in answers[1].body
    assert answers[0].body == answers[2].body == b""
    assert later == [200] * 3


@on_uvloop
async def test_postponed_delivery_of_a_batch_is_in_the_next_group() -> None:
    async with running(TOKEN, core=PostponingCore()) as intake:
        connections = await used_connections(intake)
        arrive(intake, BODIES)

        assert await statuses(connections) == [200] * 3
        assert [delivery.body for delivery in intake.core.groups[-1]] == BODIES[-1:]


@on_uvloop
async def test_delivery_of_a_closed_connection_is_stored_with_its_batch() -> None:
    core = CoreDouble()
    async with running(TOKEN, core=core) as intake:
        connections = await used_connections(intake)
        await close_first_while_committing(intake)

        assert await statuses(connections[1:]) == [200] * 2
        assert [delivery.body for delivery in core.deliveries[3:]] == BODIES


@on_uvloop
async def test_batch_past_its_deadline_is_refused_and_not_written() -> None:
    core = CoreDouble()
    async with running(TOKEN, core=core, limits=Limits(answer_deadline_s=0.2)) as intake:
        first, *connections = await used_connections(intake, 4)
        core.pause()
        first.writer.write(request(authorization=BEARER))
        await asyncio.to_thread(core.running.wait)
        for protocol, body in zip(protocols(intake)[1:], BODIES, strict=True):
            protocol.data_received(request(body, authorization=BEARER))
        refused = await statuses(connections)
        core.may_continue.set()
        await until(lambda: not intake.admission.bytes_in_flight)

    assert refused == [503] * 3
    assert not set(BODIES) & {delivery.body for delivery in core.deliveries}


@on_uvloop
async def test_deliveries_that_do_not_fit_into_the_journal_are_written_when_there_is_room() -> None:
    appender = AppenderDouble()
    async with running(TOKEN, appender=appender) as intake:
        connections = await used_connections(intake)
        appender.room_bytes = len(BODIES[0]) + 10
        arrive(intake, BODIES)
        small = (await connections[0].answer()).status
        await until(lambda: intake.held_count() == len(BODIES) - 1)
        appender.room_bytes = 1 << 30

        assert [small, *await statuses(connections[1:])] == [200] * 3
        await until(lambda: not intake.admission.bytes_in_flight)


@on_uvloop
async def test_postponed_delivery_of_a_batch_is_told_that_the_journal_is_full() -> None:
    appender = AppenderDouble()
    limits = Limits(answer_deadline_s=0.5)
    async with running(TOKEN, core=PostponingCore(appender), appender=appender, limits=limits) as intake:
        connections = await used_connections(intake)
        arrive(intake, BODIES)
        answers = [await connection.answer() for connection in connections]

        assert b"the disk is full" in answers[-1].body


@on_uvloop
async def test_accepted_delivery_of_a_closed_connection_is_counted() -> None:
    core = CoreDouble(special={BODIES[1]: OutcomeDouble("malformed", message="not a message")})
    async with running(TOKEN, core=core) as intake:
        connections = await used_connections(intake)
        await close_first_while_committing(intake)
        await statuses(connections[1:])

        assert intake.counted("deliveries", "d", "200") == len(BODIES) + 2


@on_uvloop
async def test_reload_frees_the_old_routes() -> None:
    async with running(TOKEN) as intake:
        connections = await used_connections(intake)
        for _ in range(3):
            arrive(intake, BODIES)
            await statuses(connections)
            intake.delivery_handler.use(Routes((TOKEN,), Limits(), post_root=True), Limits())
        arrive(intake, BODIES)
        await statuses(connections)
        gc.collect()

        # The first belongs to `running`.
        assert sum(isinstance(each, Routes) for each in gc.get_objects()) == 2


@on_uvloop
async def test_settings_that_change_before_a_batch_is_taken_apply_to_it() -> None:
    async with running(TOKEN) as intake:
        connections = await used_connections(intake)
        arrive(intake, BODIES)
        renewed = Routes((Drain(name="d", tokens=("other",)),), Limits(), post_root=True)
        intake.delivery_handler.use(renewed, Limits())

        assert await statuses(connections) == [401] * 3
        assert len(intake.core.deliveries) == len(connections)


@on_uvloop
async def test_batch_whose_record_the_disk_refuses_is_not_acknowledged() -> None:
    appender = AppenderDouble()
    async with running(TOKEN, appender=appender) as intake:
        connections = await used_connections(intake)
        appender.trouble = [DiskTrouble("the disk refuses writes")]
        arrive(intake, BODIES)

        assert await statuses(connections) == [503] * 3
        assert len(appender.appended) == len(connections)


@on_uvloop
async def test_deliveries_of_other_drains_kinds_and_codings_are_in_other_batches() -> None:
    strict = Drain(name="strict", tokens=("u",), strict=True)
    requests = [
        request(BODIES[0], authorization=BEARER),
        request(gzip.compress(BODIES[1]), authorization=BEARER, content_encoding="gzip"),
        request(b"{}", authorization=BEARER, content_type="application/json"),
        request(BODIES[2], authorization="Bearer u"),
    ]
    started_ns = time.time_ns()
    async with running(TOKEN, strict) as intake:
        connections = [await intake.connect() for _ in requests]
        for connection, sent in zip(connections, requests, strict=True):
            assert (await connection.exchange(sent)).status == 200
        for protocol, sent in zip(protocols(intake), requests, strict=True):
            protocol.data_received(sent)
        answers = [(await connection.answer()).body for connection in connections]

    times_ns = [delivery.received_at_ns for delivery in intake.core.deliveries]
    first, again = (
        [each._replace(received_at_ns=0) for each in group]
        for group in (intake.core.deliveries[:4], intake.core.deliveries[4:])
    )
    assert sorted(first) == sorted(again)
    assert {(each.drain, each.encodings, each.strict) for each in first} == {
        *(("d", (), False), ("d", ("gzip",), False), ("strict", (), True))
    }
    assert started_ns <= min(times_ns) <= max(times_ns) <= time.time_ns()
    assert answers == [b"", b"", b"{}\n", b""]


@on_uvloop
async def test_delivery_that_waits_for_the_store_gets_its_own_outcome_behind_a_batch() -> None:
    class RealCore(CoreDouble):
        def __call__(self, members: Sequence[Delivery | FastBatch], segment: SegmentId) -> Any:  # noqa: ANN401 - `Commit`
            self.running.set()
            self.may_continue.wait(10)
            return transcode.commit(POLICY, members, segment, DIGEST_KEY)

    def sent(number: int, authorization: str = BEARER) -> bytes:
        body = delivery(number).body
        return request(body, authorization=authorization, content_type="application/json")

    waiting = Drain(name="waiting", tokens=("u",), acknowledge="store")
    core = RealCore()
    alone = transcode.commit(POLICY, [delivery(5, "waiting")], SEGMENT, DIGEST_KEY)
    (digest,) = delivery_digests(alone.record, 1)
    appender = AppenderDouble(stored={SEGMENT}, outcomes={SEGMENT: SegmentOutcome({digest: 1})})
    async with running(TOKEN, waiting, core=core, appender=appender) as intake:
        first, *others, last = [await intake.connect() for _ in range(5)]
        for number, connection in enumerate((first, *others)):
            assert (await connection.exchange(sent(number))).status == 200
        assert (await last.exchange(sent(4, "Bearer u"))).body == b"{}\n"
        core.pause()
        first.writer.write(sent(6))
        await asyncio.to_thread(core.running.wait)
        for number, protocol in enumerate(protocols(intake)[1:4]):
            protocol.data_received(sent(number))
        await until(lambda: intake.held_count() == 1)  # the batch
        last.writer.write(sent(5, "Bearer u"))
        await until(lambda: intake.held_count() == 2)
        core.may_continue.set()
        answered = await statuses([first, *others])
        partial = await last.answer()

    assert answered == [200] * 4
    assert b"1 spans that ClickHouse refuses" in partial.body


@on_uvloop
async def test_bytes_behind_a_collected_delivery_are_answered_after_it() -> None:
    async with running(TOKEN) as intake:
        (connection,) = await used_connections(intake, 1)
        protocol = protocols(intake)[0]
        for body in BODIES:
            protocol.data_received(request(body, authorization=BEARER))
        answered = await statuses([connection] * 3)

    assert answered == [200] * 3
    assert [delivery.body for delivery in intake.core.deliveries[1:]] == BODIES


@on_uvloop
async def test_connection_is_evicted_by_its_last_answer_and_not_while_it_waits() -> None:
    core = CoreDouble()
    async with running(TOKEN, core=core) as intake:
        connections = await used_connections(intake)
        idle = intake.server._listener.idle  # noqa: SLF001 - evictions need as many connections as the limit
        of = {protocol: protocol._connection for protocol in protocols(intake)}  # noqa: SLF001
        oldest, waiting, newest = protocols(intake)
        await connections[0].exchange(request(authorization=BEARER))
        core.pause()
        waiting.data_received(request(authorization=BEARER))
        order = []
        while (connection := idle.next_to_evict()) is not None:
            order.append(connection)
            idle.discard(connection)
        core.may_continue.set()
        await connections[1].answer()

        assert order == [of[newest], of[oldest]]
        assert idle.next_to_evict() is of[waiting]


@on_uvloop
async def test_connection_that_its_protocol_answers_is_evicted_last_and_not_before_its_answer() -> None:
    async with running(TOKEN) as intake:
        connections = await used_connections(intake)
        idle = intake.server._listener.idle  # noqa: SLF001 - evictions need as many connections as the limit
        first, second, _ = protocols(intake)
        first.pause_writing()
        first.data_received(request(authorization=BEARER))
        await until(lambda: not first._fast.is_waiting)  # noqa: SLF001 - the protocol has the answer now
        before = idle._used._all.copy()  # noqa: SLF001
        first.resume_writing()
        await connections[0].answer()
        await until(lambda: first._connection in idle._used._all)  # noqa: SLF001

        assert first._connection not in before  # noqa: SLF001
        assert idle.next_to_evict() is second._connection  # noqa: SLF001


@on_uvloop
async def test_core_answers_no_more_often_than_a_connection_may_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol_module, "ANSWERS_MAX", 10)
    async with running(TOKEN) as intake:
        (connection,) = await used_connections(intake, 1)
        answers_max = protocols(intake)[0]._answers_max  # noqa: SLF001 - random
        count = 1
        while "connection" not in (await connection.exchange(request(authorization=BEARER))).headers:
            count += 1
        end = await connection.closed()

    assert (count, end) == (answers_max, b"")


@on_uvloop
async def test_idle_timeout_begins_with_the_last_answer_of_the_core() -> None:
    async with running(TOKEN, limits=Limits(keepalive_timeout_s=40)) as intake:
        (connection,) = await used_connections(intake, 1)
        protocol = protocols(intake)[0]
        before = protocol._closes_at  # noqa: SLF001 - waiting for the timeout would take long
        await asyncio.sleep(0.02)
        await connection.exchange(request(authorization=BEARER))
        protocol.check_keepalive()

        assert protocol._closes_at > before  # noqa: SLF001
        assert not protocol.is_force_closed
