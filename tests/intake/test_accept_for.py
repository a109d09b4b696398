"""Tests of an intake that also accepts connections for an intake that is being replaced."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from tests.support.intake import Connection, Intake, on_uvloop, request, running


@pytest.fixture
def sibling() -> Iterator[socket.socket]:
    """Provide the listening socket of another intake."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


async def connected(listening: socket.socket) -> Connection:
    connection = Connection(*await asyncio.open_connection(*listening.getsockname()[:2]))
    connection.writer.write(request(connection="close"))
    return connection


async def status_of_post(listening: socket.socket) -> int:
    connection = await connected(listening)
    status = (await connection.answer()).status
    await connection.close()
    return status


async def own_connection_is_answered(intake: Intake) -> bool:
    return (await intake.post()).status == 200


@on_uvloop
async def test_connections_queued_before_the_takeover_are_answered(sibling: socket.socket) -> None:
    async with running() as intake:
        connection = await connected(sibling)
        intake.server.accept_for([sibling.fileno()])

        assert (await connection.answer()).status == 200
        await connection.close()


@on_uvloop
async def test_listener_stops_accepting_for_a_replaced_sibling(sibling: socket.socket) -> None:
    async with running() as intake:
        intake.server.accept_for([sibling.fileno()])
        assert await status_of_post(sibling) == 200

        intake.server.accept_for([])
        connection = await connected(sibling)
        assert await own_connection_is_answered(intake)
        accepted, _ = sibling.accept()

        accepted.close()
        await connection.close()


@on_uvloop
async def test_stop_answers_the_queued_connections_of_a_sibling(sibling: socket.socket) -> None:
    async with running() as intake:
        intake.server.accept_for([sibling.fileno()])
        with socket.create_connection(sibling.getsockname()) as sock:
            stopping = asyncio.create_task(intake.server.stop(5))
            connection = Connection(*await asyncio.open_connection(sock=sock))
            connection.writer.write(request())

            answer = await connection.answer()
            await stopping
            await connection.close()

    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert sibling.fileno() >= 0
