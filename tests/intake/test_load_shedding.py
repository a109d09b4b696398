"""Tests of load shedding: new connections get 503 at once, existing connections are answered per request."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from receiver.intake.connections import load_shedding
from receiver.intake.connections.listener import caps
from receiver.intake.run import DESCRIPTORS_RESERVED, with_descriptors
from receiver.settings import Limits, Settings
from tests.support.intake import SPAN_BODY, Connection, CoreDouble, Intake, on_uvloop, request, running, until
from tests.support.tls import certificates_in, client_context

SHORT_DEADLINE = Limits(answer_deadline_s=0.001)


@asynccontextmanager
async def overloaded(*, tls_dir: Path | None = None) -> AsyncIterator[tuple[Intake, Connection]]:
    """Run an overloaded intake with an existing connection."""
    core = CoreDouble()
    tls = (certificates_in(tls_dir).context, client_context()) if tls_dir else None
    async with running(core=core, limits=SHORT_DEADLINE, tls=tls) as intake:
        # Not `used_connection`: the deadline is so short that a slow machine refuses this delivery.
        connection = await intake.connect()
        await connection.exchange(request())
        core.pause()
        first = asyncio.create_task(intake.post(SPAN_BODY + b" " * 100_000))
        await asyncio.to_thread(core.running.wait)
        yield intake, connection
        core.may_continue.set()
        await first


@on_uvloop
async def test_new_connection_gets_503_at_once_during_overload() -> None:
    async with overloaded() as (intake, _):
        client = await intake.connect()
        client.writer.write(request())
        received = await client.closed()
        connection_count = intake.server.connection_count

    assert received.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 2\r\n" in received
    assert b"Connection: close\r\n" in received
    assert connection_count == 2
    assert intake.counted("refusals", "overloaded_connection") == 1
    assert intake.counted("deliveries", "", "503") == 1


@on_uvloop
async def test_existing_connection_is_refused_per_request_and_stays_open() -> None:
    async with overloaded() as (intake, connection):
        refused = await connection.exchange(request())
        intake.core.may_continue.set()
        await until(lambda: not intake.admission.bytes_in_flight)
        accepted = await connection.exchange(request())

    assert (refused.status, accepted.status) == (503, 200)


@on_uvloop
async def test_503_is_sent_only_after_a_request_arrives() -> None:
    async with overloaded() as (intake, _):
        client = await intake.connect()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.3)
        refused = await client.exchange(request())

    assert refused.status == 503


@on_uvloop
async def test_bytes_sent_after_shedding_do_not_destroy_the_answer() -> None:
    async with overloaded() as (intake, _):
        client = await intake.connect()
        client.writer.write(request(b"x" * 50_000))
        await client.writer.drain()
        await asyncio.sleep(0.2)
        received = await client.closed()

    assert received.startswith(b"HTTP/1.1 503 ")


@on_uvloop
async def test_lingering_sockets_are_limited_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_shedding, "LINGER_S", 0.2)
    async with overloaded() as (intake, _):
        intake.load_shedder.use(held_max=3)
        clients = [await intake.connect() for _ in range(8)]
        held = intake.load_shedder.held_count
        received = [await client.closed() for client in clients]
        await until(lambda: not intake.load_shedder.held_count)

    assert held == 3
    assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in received)


@on_uvloop
async def test_lingering_sockets_are_closed_in_order_of_their_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load_shedding, "LINGER_S", 600)
    async with overloaded() as (intake, _):
        intake.load_shedder.use(held_max=2)
        answered, silent = await intake.connect(), await intake.connect()
        assert (await answered.exchange(request())).status == 503
        await intake.connect()
        received = await silent.closed()
        held = intake.load_shedder.held_count
        intake.load_shedder.close()

    assert received.startswith(b"HTTP/1.1 503 ")
    assert held == 2


@on_uvloop
async def test_shed_connection_that_keeps_sending_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_shedding, "LINGER_S", 0.3)
    async with overloaded() as (intake, _):
        client = await intake.connect()
        await until(lambda: intake.load_shedder.held_count)
        with suppress(ConnectionError):
            while intake.load_shedder.held_count:
                client.writer.write(b"x")
                await client.writer.drain()
                await asyncio.sleep(0.01)

    assert intake.load_shedder.held_count == 0


@on_uvloop
async def test_reload_lowers_the_number_of_lingering_sockets() -> None:
    async with overloaded() as (intake, _):
        intake.server.use(Limits(connections_max=8), caps(Settings()))
        for _ in range(4):
            await intake.connect()
        await until(lambda: intake.counted("refusals", "overloaded_connection") == 4)
        held = intake.load_shedder.held_count

    assert held == load_shedding.held_max(8) == 2


@on_uvloop
async def test_stop_waits_for_shed_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_shedding, "LINGER_S", 2.0)
    held_at_close: list[int] = []
    async with overloaded() as (intake, connection):
        client = await intake.connect()
        await until(lambda: intake.load_shedder.held_count)
        intake.core.may_continue.set()
        await connection.close()
        monkeypatch.setattr(
            intake.load_shedder, "close", lambda: held_at_close.append(intake.load_shedder.held_count)
        )
        await intake.server.stop(10)
        received = await client.closed()

    assert held_at_close[0] == 0
    assert received.startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize("hard", [300, 1_024, 4_096, 5_000, 1 << 20])
def test_few_descriptors_are_divided_between_connections_and_lingering_sockets(
    hard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    allowed = with_descriptors(Settings()).limits.connections_max
    used = DESCRIPTORS_RESERVED + allowed + load_shedding.held_max(allowed)

    assert used <= hard
    assert allowed == Settings().limits.connections_max or (
        used > hard - 3 and allowed >= 0.75 * (hard - DESCRIPTORS_RESERVED)
    )


@on_uvloop
async def test_tls_connection_is_refused_within_tls_during_overload(tmp_path: Path) -> None:
    async with overloaded(tls_dir=tmp_path) as (intake, _):
        refused = await intake.post()

    assert refused.status == 503
    assert intake.counted("refusals", "overloaded_connection") == 0
