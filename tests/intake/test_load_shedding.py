"""While too much waits: who calls is sent away at once, who is there already is answered as ever."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from receiver.intake import load_shedding
from receiver.intake.__main__ import DESCRIPTORS_RESERVED, with_descriptors
from receiver.intake.listener import caps
from receiver.intake.tls import Certificates
from receiver.settings import Limits, Settings
from tests.intake.test_tls import IGNORED_WARNINGS, client_context, write_certificates
from tests.support.intake import SPAN_BODY, Connection, CoreDouble, Intake, on_uvloop, request, running, until

IN_NO_TIME = Limits(answer_deadline_s=0.001)


@asynccontextmanager
async def overloaded(*, tls_dir: Path | None = None) -> AsyncIterator[tuple[Intake, Connection]]:
    """Run an intake that has far too much in hand, and a connection that was there before."""
    core = CoreDouble()
    tls = (
        (Certificates(write_certificates(tls_dir), IGNORED_WARNINGS.append).context, client_context())
        if tls_dir
        else None
    )
    async with running(core=core, limits=IN_NO_TIME, tls=tls) as intake:
        connection = await intake.connect()
        connection.writer.write(request())
        await connection.answer()
        core.running.clear()
        core.may_go_on.clear()
        first = asyncio.create_task(intake.post(SPAN_BODY + b" " * 100_000))
        await asyncio.to_thread(core.running.wait)
        yield intake, connection
        core.may_go_on.set()
        await first
        await connection.close()


@on_uvloop
async def test_new_connection_gets_503_at_once_during_overload() -> None:
    async with overloaded() as (intake, _):
        caller = await intake.connect()
        caller.writer.write(request())
        said = await caller.closed()
        connected = intake.server.connection_count

    assert said.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 2\r\n" in said
    assert b"Connection: close\r\n" in said
    assert connected == 2
    assert intake.counted("refusals", "overloaded_connection") == 1
    assert intake.counted("deliveries", "", "503") == 1


@on_uvloop
async def test_existing_connection_is_refused_per_request_and_stays_open() -> None:
    async with overloaded() as (intake, connection):
        connection.writer.write(request())
        refused = await connection.answer()
        intake.core.may_go_on.set()
        await until(lambda: not intake.admission.bytes_in_flight)
        connection.writer.write(request())
        taken = await connection.answer()

    assert (refused.status, taken.status) == (503, 200)


@on_uvloop
async def test_no_answer_comes_before_there_is_a_request() -> None:
    async with overloaded() as (intake, _):
        caller = await intake.connect()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(caller.reader.read(1), 0.3)
        caller.writer.write(request())
        refused = await caller.answer()
        await caller.close()

    assert refused.status == 503


@on_uvloop
async def test_shed_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_shedding, "LINGER_S", 0.2)
    async with overloaded() as (intake, _):
        said = await (await intake.connect()).closed()
        await until(lambda: not intake.load_shedder.held_count)

    assert said.startswith(b"HTTP/1.1 503 ")


@on_uvloop
async def test_bytes_sent_after_shedding_do_not_destroy_the_answer() -> None:
    async with overloaded() as (intake, _):
        caller = await intake.connect()
        caller.writer.write(request(b"x" * 50_000))
        await caller.writer.drain()
        await asyncio.sleep(0.2)
        said = await caller.closed()

    assert said.startswith(b"HTTP/1.1 503 ")


@on_uvloop
async def test_lingering_sockets_are_limited_in_number_and_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load_shedding, "LINGER_S", 0.2)
    async with overloaded() as (intake, _):
        intake.load_shedder.use(held_max=3)
        callers = [await intake.connect() for _ in range(8)]
        held = intake.load_shedder.held_count
        said = [await caller.closed() for caller in callers]
        await until(lambda: not intake.load_shedder.held_count)

    assert held == 3
    assert all(one.startswith(b"HTTP/1.1 503 ") for one in said)


@on_uvloop
async def test_lingering_socket_is_closed_in_order_of_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load_shedding, "LINGER_S", 600)
    async with overloaded() as (intake, _):
        intake.load_shedder.use(held_max=2)
        told, silent = await intake.connect(), await intake.connect()
        told.writer.write(request())
        assert (await told.answer()).status == 503
        third = await intake.connect()
        said = await silent.closed()
        held = intake.load_shedder.held_count
        intake.load_shedder.close()
        for caller in (told, third):
            await caller.close()

    assert said.startswith(b"HTTP/1.1 503 ")
    assert held == 2


@on_uvloop
async def test_shed_connection_that_keeps_sending_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_shedding, "LINGER_S", 0.3)
    async with overloaded() as (intake, _):
        caller = await intake.connect()
        await until(lambda: intake.load_shedder.held_count)
        with suppress(ConnectionError):
            while intake.load_shedder.held_count:
                caller.writer.write(b"x")
                await caller.writer.drain()
                await asyncio.sleep(0.01)
        await caller.close()

    assert intake.load_shedder.held_count == 0


@on_uvloop
async def test_reload_lowers_the_number_of_lingering_sockets() -> None:
    async with overloaded() as (intake, _):
        intake.server.use(Limits(connections_max=8), caps(Settings()))
        callers = [await intake.connect() for _ in range(4)]
        await until(lambda: intake.counted("refusals", "overloaded_connection") == 4)
        held = intake.load_shedder.held_count
        for caller in callers:
            await caller.close()

    assert held == load_shedding.held_max(8) == 2


@on_uvloop
async def test_stop_waits_for_shed_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load_shedding, "LINGER_S", 2.0)
    left: list[int] = []
    async with overloaded() as (intake, connection):
        caller = await intake.connect()
        await until(lambda: intake.load_shedder.held_count)
        intake.core.may_go_on.set()
        await connection.close()
        monkeypatch.setattr(intake.load_shedder, "close", lambda: left.append(intake.load_shedder.held_count))
        await intake.server.stop(10)
        said = await caller.closed()

    assert left[0] == 0
    assert said.startswith(b"HTTP/1.1 503 ")


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
