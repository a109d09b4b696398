"""Tests of stopping: requests in flight are answered, and no connection is reset."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from pathlib import Path

from tests.support.intake import Connection, CoreDouble, Intake, on_uvloop, request, running, until
from tests.support.tls import certificates_in, client_context


async def send_until_stopped(intake: Intake, statuses: Counter[str]) -> None:
    """Post on one connection after the other until the receiver accepts no more."""
    while not intake.server.endpoint.is_stopping:
        connection = await intake.connect()
        await send_on_connection(connection, statuses)
        await connection.close()


async def send_on_connection(connection: Connection, statuses: Counter[str]) -> None:
    while True:
        connection.writer.write(request())
        try:
            answer = await connection.answer()
        except (ConnectionError, asyncio.IncompleteReadError):
            statuses["reset"] += 1
            return
        statuses[str(answer.status)] += 1
        if answer.headers.get("connection") == "close":
            return


@on_uvloop
async def test_stop_under_load_resets_no_connection() -> None:
    statuses: Counter[str] = Counter()
    async with running() as intake:
        senders = [asyncio.create_task(send_until_stopped(intake, statuses)) for _ in range(16)]
        await until(lambda: statuses["200"] >= 200)
        await intake.server.stop(5)
        await asyncio.wait(senders, timeout=5)
        rows = sum(rows for _, _, rows in intake.appender.appended)

    assert set(statuses) == {"200"}
    assert rows == statuses["200"]


@on_uvloop
async def test_requests_in_flight_are_answered_with_connection_close() -> None:
    core = CoreDouble.paused()
    async with running(core=core) as intake:
        sending = asyncio.create_task(intake.post())
        await asyncio.to_thread(core.running.wait)
        stopping = asyncio.create_task(intake.server.stop(5))
        await asyncio.sleep(0.05)
        core.may_continue.set()
        answer = await sending
        await stopping

    assert (answer.status, answer.headers["connection"]) == (200, "close")


def connect_without_accept(port: int, count: int) -> list[socket.socket]:
    """Connect before the event loop can accept."""
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]


@on_uvloop
async def test_connections_in_the_backlog_are_answered_during_a_stop() -> None:
    async with running() as intake:
        pending = connect_without_accept(intake.port, 100)
        stopping = asyncio.create_task(intake.server.stop(5))
        connections = [Connection(*await asyncio.open_connection(sock=sock)) for sock in pending]
        for connection in connections:
            connection.writer.write(request())
        received = [await connection.closed() for connection in connections]
        await stopping

    assert {(answer[:13], b"Connection: close" in answer) for answer in received} == {
        (b"HTTP/1.1 200 ", True)
    }


@on_uvloop
async def test_handshake_that_starts_during_a_stop_is_completed(tmp_path: Path) -> None:
    async with running(tls=(certificates_in(tmp_path).context, client_context())) as intake:
        (sock,) = connect_without_accept(intake.port, 1)
        stopping = asyncio.create_task(intake.server.stop(5))
        streams = await asyncio.open_connection(sock=sock, ssl=client_context(), server_hostname="localhost")
        connection = Connection(*streams)
        answer = await connection.exchange(request())
        await connection.close()
        await stopping

    assert (answer.status, answer.headers["connection"]) == (200, "close")


@on_uvloop
async def test_incomplete_body_gets_503_at_the_end_of_the_grace_period() -> None:
    async with running() as intake:
        connection = await intake.connect()
        connection.writer.write(request(b"", content_length="10") + b"\n")
        await until(lambda: intake.admission.bytes_in_flight)
        stopping = asyncio.create_task(intake.server.stop(1.2))
        answer = await connection.answer()
        end = await connection.closed()
        await stopping

    assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (503, "2", "close")
    assert end == b""


@on_uvloop
async def test_idle_connection_is_closed_without_a_reset() -> None:
    async with running() as intake:
        connection = await intake.used_connection()
        await intake.server.stop(5)
        received = await connection.closed()

    assert received == b""


@on_uvloop
async def test_connection_made_during_a_stop_waits_for_the_next_process() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as sock:
        async with running(listening=sock.dup()) as intake:
            await intake.server.stop(1)
            pending = Connection(*await asyncio.open_connection(*sock.getsockname()))
            pending.writer.write(request())
        async with running(listening=sock.dup()):
            answer = await pending.answer()
            await pending.close()

    assert answer.status == 200
