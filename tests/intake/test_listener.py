"""Tests of connection limits: in total, per address, and eviction of idle connections."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from receiver.intake.connections import eviction, listener, protocol
from receiver.intake.connections.listener import caps
from receiver.intake.connections.protocol import IntakeProtocol
from receiver.settings import Limits, Settings
from tests.support.cases import each_case
from tests.support.intake import SPAN_BODY, Connection, Intake, on_uvloop, request, running, until
from tests.support.tls import certificates_in, client_context

FEW = Limits(connections_max=6, connections_per_address_max=3)
FLOODER = "127.0.0.2"


async def in_request(intake: Intake, source: str) -> Connection:
    """Open a connection and send a delivery without its last byte."""
    connection = await intake.connect(source)
    working_count = sum(connection_protocol.is_working for connection_protocol in protocols(intake))
    connection.writer.write(request()[:-1])
    await until(
        lambda: (
            sum(connection_protocol.is_working for connection_protocol in protocols(intake)) > working_count
        )
    )
    return connection


async def finish(connection: Connection) -> None:
    """Send the last byte of a delivery and close the connection after the 200."""
    assert (await connection.exchange(request()[-1:])).status == 200
    await connection.close()


async def serve_and_close(connections: Iterable[Connection]) -> None:
    """Send a delivery on each connection, which must be open, and close it."""
    for connection in connections:
        assert (await connection.exchange(request())).status == 200
        await connection.close()


def protocols(intake: Intake) -> list[IntakeProtocol]:
    return [connection for connection in intake.server.connections if isinstance(connection, IntakeProtocol)]


@on_uvloop
async def test_address_at_its_limit_with_busy_connections_gets_503() -> None:
    async with running(limits=FEW) as intake:
        kept = [await in_request(intake, FLOODER) for _ in range(3)]
        refused = await intake.connect(FLOODER)
        refused.writer.write(request())
        received = await refused.closed()
        other = await intake.post()
        for connection in kept:
            await finish(connection)

    assert received.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 2\r\n" in received
    assert other.status == 200
    assert intake.counted("refusals", "connection") == 1


@on_uvloop
async def test_closed_connections_no_longer_count_for_their_address() -> None:
    async with running(limits=FEW) as intake:
        connections = [await intake.used_connection(f"127.0.0.{last_octet}") for last_octet in (2, 3, 3)]
        for connection in connections:
            await connection.close()
        await until(lambda: intake.server.connection_count == 0)
        counts = dict(intake.server._listener._of_address)  # noqa: SLF001 - must stay empty

    assert counts == {}


@on_uvloop
async def test_idle_connections_of_a_single_address_do_not_block_the_endpoint() -> None:
    limits = Limits(connections_max=64, connections_per_address_max=16)
    async with running(limits=limits) as intake:
        for _ in range(500):
            await intake.connect(FLOODER)
        answers = [await intake.post() for _ in range(5)]
        await until(lambda: intake.server.connection_count <= 16)

    assert {answer.status for answer in answers} == {200}
    assert intake.counted("refusals", "connection") == 0


@on_uvloop
async def test_connection_evicted_during_its_handshake_leaves_no_state() -> None:
    async with running(limits=FEW) as intake:
        for _ in range(5):
            flood = [socket.create_connection(("127.0.0.1", intake.port)) for _ in range(40)]
            await asyncio.sleep(0)
            for sock in flood:
                sock.close()
        assert (await intake.post()).status == 200
        await until(lambda: not (intake.server.connections or intake.server.connection_count))

    assert intake.counted("refusals", "idle_connection") > 0


@on_uvloop
async def test_connection_that_never_sent_anything_is_evicted_before_used_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eviction, "SILENT_S", 0.0)
    async with running(limits=FEW) as intake:
        used = [await intake.used_connection(f"127.0.0.{last_octet}") for last_octet in (3, 4)]
        silent = [await intake.connect(f"127.0.0.{last_octet}") for last_octet in (5, 6, 7, 8)]
        await until(lambda: intake.server.connection_count == 6)
        new_connection = await intake.used_connection(FLOODER)
        after_eviction = await silent[0].closed()
        await serve_and_close((*used, new_connection, *silent[1:]))

    assert after_eviction == b""


@on_uvloop
async def test_longest_idle_connection_is_evicted_for_a_new_connection() -> None:
    async with running(limits=Limits(connections_max=3)) as intake:
        first, second, third = [await intake.used_connection() for _ in range(3)]
        await first.exchange(request())
        new_connection = await intake.used_connection()
        after_eviction = await second.closed()
        await serve_and_close((first, third, new_connection))

    assert after_eviction == b""
    assert intake.counted("refusals", "idle_connection") == 1
    assert intake.counted("refusals", "connection") == 0


@on_uvloop
async def test_address_at_its_limit_evicts_only_its_own_idle_connection() -> None:
    async with running(limits=FEW) as intake:
        other = await intake.used_connection("127.0.0.3")
        own = [await intake.used_connection(FLOODER) for _ in range(3)]
        new_connection = await intake.used_connection(FLOODER)
        after_eviction = await own[0].closed()
        await serve_and_close((other, new_connection, *own[1:]))

    assert after_eviction == b""


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(request()[:9], id="part of a head"),
        pytest.param(request()[:-1], id="part of a body"),
        pytest.param(request(b"", content_length="", transfer_encoding="chunked"), id="no chunk yet"),
    ],
)
@on_uvloop
async def test_connection_in_the_middle_of_a_request_is_never_evicted(sent: bytes) -> None:
    async with running(limits=Limits(connections_max=1)) as intake:
        kept = await intake.used_connection()
        kept.writer.write(sent)
        refused = await (await intake.connect()).closed()
        rest = b"7\r\n" + SPAN_BODY + b"\r\n0\r\n\r\n" if b"chunked" in sent else request()[len(sent) :]
        answer = await kept.exchange(rest)

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert answer.status == 200


@on_uvloop
async def test_connection_with_an_unread_request_is_not_evicted() -> None:
    async with running(limits=Limits(connections_max=1)) as intake:
        kept = await intake.used_connection()
        kept.writer.write(request())
        await kept.writer.drain()
        evicted = intake.server._listener.idle.next_to_evict()  # noqa: SLF001 - before the event loop reads
        answer = await kept.answer()
        await until(intake.server._listener.idle.next_to_evict)  # noqa: SLF001 - idle again

    assert evicted is None
    assert answer.status == 200


@on_uvloop
async def test_connection_over_the_limit_is_answered_after_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "LINGER_S", 600)  # so that the timeout is not the cause
    async with running(limits=Limits(connections_max=1)) as intake:
        await in_request(intake, "127.0.0.1")
        new_connection = await intake.connect()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(new_connection.reader.read(1), 0.3)
        refused = await new_connection.exchange(request())

    assert refused.status == 503


@on_uvloop
async def test_connection_without_a_handshake_is_evicted(tmp_path: Path) -> None:
    async with running(tls=(certificates_in(tmp_path).context, client_context()), limits=FEW) as intake:
        flood = [
            await asyncio.open_connection("127.0.0.1", intake.port, local_addr=(FLOODER, 0))
            for _ in range(30)
        ]
        answer = await intake.post()
        after_eviction = await flood[0][0].read()
        open_count = intake.server.connection_count
        for _, writer in flood:
            writer.close()

    assert (answer.status, after_eviction) == (200, b"")
    assert open_count <= 4


class SingleDescriptorSocket(socket.socket):
    """Listening socket of a process that has descriptors for a single connection."""

    count_open: Callable[[], int] = staticmethod(lambda: 0)

    def accept(self) -> tuple[socket.socket, Any]:
        if self.count_open():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


@on_uvloop
async def test_idle_connection_is_evicted_when_descriptors_run_out() -> None:
    listening = SingleDescriptorSocket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    async with running(listening=listening) as intake:
        kept = await intake.used_connection()
        listening.count_open = lambda: len(intake.server.connections)
        answer = await intake.post()
        after_eviction = await kept.closed()

    assert (answer.status, after_eviction) == (200, b"")


class FailingSocket(socket.socket):
    """Listening socket whose first calls of accept fail."""

    failures_left = 3
    code = 0

    def accept(self) -> tuple[socket.socket, Any]:
        if self.failures_left:
            self.failures_left -= 1
            raise OSError(self.code, os.strerror(self.code))
        return super().accept()


@each_case(
    ("code", "pause_s"),
    [
        pytest.param(errno.EMFILE, listener.ACCEPT_PAUSE_S, id="no descriptors: after a pause"),
        pytest.param(errno.ECONNABORTED, 3_600, id="client gone from the backlog: at once"),
    ],
)
@on_uvloop
async def test_failed_accept_is_retried(monkeypatch: pytest.MonkeyPatch, code: int, pause_s: float) -> None:
    monkeypatch.setattr(listener, "ACCEPT_PAUSE_S", pause_s)
    listening = FailingSocket()
    listening.code = code
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    async with running(listening=listening) as intake:
        answer = await intake.post()

    assert (answer.status, listening.failures_left) == (200, 0)


@each_case(
    ("settings", "remote", "loopback"),
    [
        pytest.param(Settings(limits=Limits(connections_max=100)), 25, 100, id="a quarter, not for loopback"),
        pytest.param(Settings(limits=Limits(connections_max=100), behind_proxy=True), 100, 100, id="proxy"),
        pytest.param(
            Settings(limits=Limits(connections_max=100, connections_per_address_max=7), behind_proxy=True),
            7,
            7,
            id="configured",
        ),
    ],
)
def test_connection_limit_of_one_address(settings: Settings, remote: int, loopback: int) -> None:
    limits = caps(settings)

    assert (limits.of("192.0.2.1"), limits.of("127.0.0.1"), limits.of("::1")) == (remote, loopback, loopback)


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([], id="silent"),
        pytest.param([request()], id="a request"),
        pytest.param([request(), request()], id="a request and another on the fast path"),
        pytest.param([request() * 2], id="two requests at once"),
        pytest.param([request(), request()[:-1]], id="closed within a request"),
    ],
)
def test_closed_connection_is_freed_at_once(pieces: list[bytes]) -> None:
    @on_uvloop
    async def open_and_close() -> None:
        async with running() as intake:
            before = protocol_count()
            connection = await intake.connect()
            await until(lambda: intake.server.connection_count)
            for piece in pieces:
                connection.writer.write(piece)
                for _ in range(piece.count(SPAN_BODY)):
                    assert (await connection.answer()).status == 200
            await connection.close()
            await until(lambda: not intake.server.connection_count)
            await until(lambda: protocol_count() == before)

    gc.collect()
    gc.disable()
    try:
        open_and_close()
    finally:
        gc.enable()


def protocol_count() -> int:
    return sum(isinstance(instance, IntakeProtocol) for instance in gc.get_objects())
