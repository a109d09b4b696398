"""Tests of eviction: which connection is closed for a new one, and the memory of unfinished heads."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from receiver.http.parser import HEAD_BYTES_MAX
from receiver.intake.connections import eviction, parse_errors
from receiver.intake.connections.eviction import CANDIDATES_MAX, SILENT_S, IdleConnections, UnfinishedHeads
from tests.support.cases import each_case
from tests.support.intake import Intake, on_uvloop, request, running, until

NOW_S = 100.0


@dataclass(eq=False)
class FakeConnection:
    """A connection with the attributes that eviction uses."""

    address: str = "192.0.2.1"
    accepted_at_s: float = NOW_S
    is_unread: bool = False

    def has_unread_bytes(self) -> bool:
        return self.is_unread


def idle_connections() -> IdleConnections[FakeConnection]:
    return IdleConnections(lambda: None, lambda: NOW_S)


def eviction_order(idle: IdleConnections[FakeConnection], address: str | None = None) -> list[FakeConnection]:
    """Return the idle connections in the order of their eviction."""
    evicted = []
    while (connection := idle.next_to_evict(address)) is not None:
        idle.discard(connection)
        evicted.append(connection)
    return evicted


def test_eviction_takes_long_silent_then_longest_idle_then_newly_accepted_connections() -> None:
    idle = idle_connections()
    silent, used, new = (
        FakeConnection(accepted_at_s=NOW_S - SILENT_S),
        [FakeConnection(), FakeConnection()],
        FakeConnection(),
    )
    for connection in used:
        idle.add_used(connection)
    idle.add_silent(silent)
    idle.add_silent(new)

    assert eviction_order(idle) == [silent, *used, new]


def test_connection_with_unread_bytes_is_skipped_and_the_search_is_limited() -> None:
    idle = idle_connections()
    unread = [FakeConnection(is_unread=True) for _ in range(CANDIDATES_MAX)]
    for connection in [*unread, FakeConnection()]:
        idle.add_used(connection)
    after_unread = idle.next_to_evict()
    idle.discard(unread[0])

    assert after_unread is None
    assert idle.next_to_evict() not in (None, *unread)


def test_oldest_unfinished_heads_are_evicted_when_all_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction, "UNFINISHED_HEADS_BYTES_MAX", 100)
    heads: UnfinishedHeads[FakeConnection] = UnfinishedHeads()
    first, second, third = FakeConnection(), FakeConnection(), FakeConnection()

    assert heads.grow(first, 40) == heads.grow(second, 40) == heads.grow(first, 60) == []
    assert heads.grow(third, 50) == [first]

    for connection in (first, second, third):
        heads.discard(connection)
    assert heads.bytes_total == 0


def unfinished_bytes(intake: Intake) -> int:
    return intake.server._listener.heads.bytes_total  # noqa: SLF001 - the limited value


@on_uvloop
async def test_unfinished_heads_of_many_connections_stay_within_their_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eviction, "UNFINISHED_HEADS_BYTES_MAX", 10_000)
    part = request(x_filler="x" * 3_000)[:2_000]
    async with running() as intake:
        flood = [await intake.connect() for _ in range(40)]
        totals = []
        for connection in flood:
            connection.writer.write(part)
            await connection.writer.drain()
            totals.append(unfinished_bytes(intake))
        await until(lambda: intake.counted("refusals", "unfinished_head") == 35)
        evicted = [await connection.closed() for connection in flood[:35]]
        served = await intake.post()
        left_bytes = unfinished_bytes(intake)
        for connection in flood[35:]:
            assert (await connection.exchange(request(x_filler="x" * 3_000)[2_000:])).status == 200
        after_bytes = unfinished_bytes(intake)

    assert max(totals) <= 10_000
    assert set(evicted) <= {b"", b"reset"}
    assert served.status == 200
    assert (left_bytes, after_bytes) == (5 * len(part), 0)


@on_uvloop
async def test_partial_head_after_a_complete_request_counts_as_unfinished() -> None:
    async with running() as intake:
        connection = await intake.connect()
        await connection.exchange(request() + request()[:20])
        held_bytes = unfinished_bytes(intake)
        second = await connection.exchange(request()[20:])
        connection.writer.write(request()[:-5])
        await connection.close()
        await until(lambda: not intake.server.connection_count)
        left_bytes = unfinished_bytes(intake)

    assert held_bytes >= 20
    assert second.status == 200
    assert left_bytes == 0


LARGE = request().replace(b"host: x\r\n", b"host: x\r\n" + b"x-filler: %s\r\n" % (b"x" * 4_000) * 5)


@each_case(
    ("sent", "status"),
    [
        pytest.param(LARGE, 431, id="complete"),
        pytest.param(LARGE[:-50], 431, id="unfinished"),
        pytest.param(request() + LARGE, 200, id="after a complete request, which is answered"),
    ],
)
@on_uvloop
async def test_head_over_the_limit_closes_the_connection_and_its_memory_is_freed(
    sent: bytes, status: int
) -> None:
    async with running() as intake:
        connection = await intake.connect()
        answer = await connection.exchange(sent)
        parsers = [connection.parser for connection in intake.server.connections]
        received = await connection.closed()

    assert len(LARGE) > HEAD_BYTES_MAX
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert received == b""
    assert parsers in ([], [None])


@on_uvloop
async def test_heads_of_pipelined_requests_have_a_common_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_errors, "WAITING_HEADS_BYTES_MAX", 10_000)
    async with running() as intake:
        received = await intake.received_after(request(x_filler="x" * 4_000) * 20)

    assert received.startswith(b"HTTP/1.1 200 ")
    assert received.count(b"HTTP/1.1 200") < 3


@on_uvloop
async def test_answer_after_its_connection_closed_adds_no_connection_to_evict() -> None:
    async with running() as intake:
        connection = await intake.used_connection()
        (protocol,) = intake.server.connections
        await connection.close()
        await until(lambda: not intake.server.connection_count)
        protocol._await_next_request()  # noqa: SLF001 - as after a slow write
        candidate = intake.server._listener.idle.next_to_evict()  # noqa: SLF001 - must stay empty

    assert candidate is None
