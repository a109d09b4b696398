"""Stopping: what is in flight is answered, nobody sees a reset, who comes now waits for the next process."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import http_parser

from receiver.errors import OperatorError
from receiver.http.parser import require_c_parser
from receiver.intake.tls import Certificates
from receiver.settings import Limits
from tests.intake.test_tls import IGNORED_WARNINGS, client_context, write_certificates
from tests.support.intake import Connection, CoreDouble, Intake, on_uvloop, request, running, until


async def send_until_told_to_close(intake: Intake, seen: Counter[str]) -> None:
    """Post on one connection after the other until the receiver accepts no more."""
    while not intake.server.is_stopping:
        connection = await intake.connect()
        await send_on(connection, seen)
        await connection.close()


async def send_on(connection: Connection, seen: Counter[str]) -> None:
    while True:
        connection.writer.write(request())
        try:
            answer = await connection.answer()
        except (ConnectionError, asyncio.IncompleteReadError):
            seen["reset"] += 1
            return
        seen[str(answer.status)] += 1
        if answer.headers.get("connection") == "close":
            return


@on_uvloop
async def test_stop_under_load_resets_no_connection() -> None:
    seen: Counter[str] = Counter()
    async with running() as intake:
        senders = [asyncio.create_task(send_until_told_to_close(intake, seen)) for _ in range(16)]
        await until(lambda: seen["200"] >= 200)
        await intake.server.stop(5)
        await asyncio.wait(senders, timeout=5)
        rows = sum(rows for _, _, rows in intake.appender.appended)

    assert set(seen) == {"200"}
    assert rows == seen["200"]


@on_uvloop
async def test_requests_in_flight_are_answered_with_connection_close() -> None:
    core = CoreDouble()
    core.may_go_on.clear()
    async with running(core=core) as intake:
        sending = asyncio.create_task(intake.post())
        await asyncio.to_thread(core.running.wait)
        stopping = asyncio.create_task(intake.server.stop(5))
        await asyncio.sleep(0.05)
        core.may_go_on.set()
        answer = await sending
        await stopping

    assert (answer.status, answer.headers["connection"]) == (200, "close")


def knock(port: int, count: int) -> list[socket.socket]:
    """Connect without giving the event loop a chance to accept."""
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]


@on_uvloop
async def test_connections_in_the_backlog_are_answered_during_a_stop() -> None:
    async with running() as intake:
        pending = knock(intake.port, 100)
        stopping = asyncio.create_task(intake.server.stop(5))
        connections = [Connection(*await asyncio.open_connection(sock=sock)) for sock in pending]
        for connection in connections:
            connection.writer.write(request())
        said = [await connection.closed() for connection in connections]
        await stopping

    assert {(one[:13], b"Connection: close" in one) for one in said} == {(b"HTTP/1.1 200 ", True)}


@on_uvloop
async def test_a_handshake_that_begins_with_the_stop_is_finished(tmp_path: Path) -> None:
    certificates = Certificates(write_certificates(tmp_path), IGNORED_WARNINGS.append)
    async with running(tls=(certificates.context, client_context())) as intake:
        (sock,) = knock(intake.port, 1)
        stopping = asyncio.create_task(intake.server.stop(5))
        streams = await asyncio.open_connection(sock=sock, ssl=client_context(), server_hostname="localhost")
        connection = Connection(*streams)
        connection.writer.write(request())
        answer = await connection.answer()
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
async def test_a_quiet_connection_is_closed_without_a_reset() -> None:
    async with running() as intake:
        connection = await intake.connect()
        connection.writer.write(request())
        await connection.answer()
        await intake.server.stop(5)
        said = await connection.closed()

    assert said == b""


@on_uvloop
async def test_connection_made_during_a_stop_waits_for_the_next_process() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as sock:
        async with running(listening=sock.dup()) as intake:
            await intake.server.stop(1)
            pending = await intake.connect()
            pending.writer.write(request())
        async with running(listening=sock.dup()):
            answer = await pending.answer()
            await pending.close()

    assert answer.status == 200


@on_uvloop
async def test_delivery_after_close_of_the_committer_gets_503() -> None:
    async with running(limits=Limits()) as intake:
        intake.admission.is_closed = True
        answer = await intake.post()

    assert (answer.status, answer.headers["retry-after"]) == (503, "2")


def test_without_the_compiled_parser_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_parser, "HttpRequestParser", http_parser.HttpRequestParserPy)

    with pytest.raises(OperatorError, match="its C parser"):
        require_c_parser()
