"""Tests of the intake process, started over its channel, with the compiled core and a journal on disk."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from receiver.channel import ChildChannel, Ready, Reload, Report, Start, Stop, Stopped
from receiver.journal.frame import answers_of
from receiver.journal.segments import Journal
from receiver.platform.webhooks.inbox import Inbox
from receiver.settings import Drain, Limits, Platform, Settings, Webhook
from receiver.settings import Journal as JournalSettings
from tests.support.intake import Connection, request, until
from tests.support.webhooks import PATH as WEBHOOKS
from tests.support.webhooks import document, signature

WAIT_S = 60.0
"""Timeout of operations that normally take less than a second; generous for a busy machine."""


def one_span(name: str = "a") -> bytes:
    sent = ExportTraceServiceRequest()
    span = sent.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id, span.span_id, span.name = b"t" * 16, b"s" * 8, name
    return sent.SerializeToString()


@dataclass
class Child:
    """A spawned intake and the supervisor's end of its channel."""

    process: asyncio.subprocess.Process
    channel: ChildChannel
    port: int

    async def wait_for(self, kind: type[Ready | Stopped]) -> list[Report]:
        """Wait for a message of this type, and return the reports before it."""
        reports: list[Report] = []
        while not isinstance(message := await asyncio.wait_for(self.channel.receive(), WAIT_S), kind):
            assert isinstance(message, Report), f"got {message}"
            reports.append(message)
        return reports

    async def post(self, body: bytes, path: str = "/v1/traces", **headers: str) -> int:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.port))
        answer = await connection.exchange(request(body, path, "POST", **headers))
        await connection.close()
        return answer.status


def settings(data: Path, *drains: Drain, limits: Limits | None = None) -> Settings:
    drains = drains or (Drain(name="default"),)
    journal = JournalSettings(disk_free_min=0)
    return Settings(data_dir=str(data), journal=journal, limits=limits or Limits(), drain=drains)


@asynccontextmanager
async def spawned(
    data: Path, sock: socket.socket, *drains: Drain, limits: Limits | None = None, module: str = "intake"
) -> AsyncIterator[Child]:
    supervisor_end, child_end = socket.socketpair()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", f"receiver.processes.{module}", "--channel-fd", str(child_end.fileno())),
        pass_fds=(child_end.fileno(), sock.fileno()),
    )
    child_end.close()
    channel = await ChildChannel.from_socket(supervisor_end)
    await channel.send(Start("intake-0", settings(data, *drains, limits=limits), sock.fileno(), 0))
    child = Child(process, channel, sock.getsockname()[1])
    await child.wait_for(Ready)
    try:
        yield child
    finally:
        await channel.close()
        await asyncio.wait_for(process.wait(), WAIT_S)


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def rows_sealed(data: Path) -> int:
    """Return the number of rows in sealed segments."""
    return sum(
        record.rows for segment in Journal(data / "journal").sealed() for record in segment.scan().records
    )


@pytest.mark.parametrize("is_stopped_by_a_signal", [False, True], ids=["message", "SIGTERM"])
async def test_stopped_intake_seals_its_deliveries_and_reports_them(
    tmp_path: Path, sock: socket.socket, *, is_stopped_by_a_signal: bool
) -> None:
    async with spawned(tmp_path, sock) as child:
        statuses = [await child.post(one_span(name)) for name in "abc"]
        if is_stopped_by_a_signal:
            os.kill(child.process.pid, signal.SIGTERM)
        else:
            await child.channel.send(Stop())
        reports = await child.wait_for(Stopped)

    values = {(series.name, *series.labels): series.value for series in reports[-1].metrics.series}
    assert (statuses, child.process.returncode, rows_sealed(tmp_path)) == ([200] * 3, 0, 3)
    assert reports[-1].health == {"journal": ""}
    assert values["deliveries", "default", "200"] == 3
    assert values["spans_received", "default"] == 3
    assert values["spans_unresolved", "default"] == 3
    assert values["connections",] == 0


async def test_exit_of_the_supervisor_stops_the_intake_and_the_next_intake_computes_the_same_digest(
    tmp_path: Path, sock: socket.socket
) -> None:
    for _ in range(2):
        async with spawned(tmp_path, sock) as child:
            await child.post(one_span())

        assert child.process.returncode == 0
    first, second = (
        [answered.digest for record in segment.scan().records for answered in answers_of(record)]
        for segment in Journal(tmp_path / "journal").sealed()
    )
    assert len(first) == 1
    assert first == second


async def test_killed_process_loses_no_acknowledged_delivery(tmp_path: Path, sock: socket.socket) -> None:
    async with spawned(tmp_path, sock) as child:
        statuses = [await child.post(one_span(name)) for name in "abc"]
        child.process.kill()

    assert statuses == [200, 200, 200]
    assert rows_sealed(tmp_path) == 3


@pytest.mark.parametrize("name", ["journal", "digest.key"])
async def test_intake_answers_503_until_journal_and_digest_key_can_be_created(
    tmp_path: Path, sock: socket.socket, name: str
) -> None:
    obstacle, limits = tmp_path / name, Limits(answer_deadline_s=0.2)
    (obstacle.touch if name == "journal" else obstacle.mkdir)()
    async with spawned(tmp_path, sock, limits=limits) as child:
        before = await child.post(one_span())
        (obstacle.unlink if name == "journal" else obstacle.rmdir)()
        while (after := await child.post(one_span())) == 503:  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.05)

    assert (before, after, rows_sealed(tmp_path)) == (503, 200, 1)


async def test_reload_applies_new_tokens_and_invalid_settings_are_ignored(
    tmp_path: Path, sock: socket.socket
) -> None:
    async with spawned(tmp_path, sock, Drain(name="d", tokens=("old",))) as child:
        before = await child.post(one_span(), authorization="Bearer new")
        await child.channel.send(Reload(settings(tmp_path, Drain(name="d", tokens=("new",)))))
        await child.channel.send(Reload(settings(tmp_path, Drain(name="d", verify_header="\r\n"))))
        while await child.post(one_span(), authorization="Bearer old") != 401:  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.01)
        after = await child.post(one_span(), authorization="Bearer new")
        without = await child.post(one_span())

    assert (before, after, without) == (401, 200, 401)


async def test_reload_turns_webhooks_on_and_rotates_their_secret(tmp_path: Path, sock: socket.socket) -> None:
    body = document("wh_1")

    async def post(child: Child, secret: str) -> int:
        headers = {"content_type": "application/json", "x_platform_signature": signature(body, secret)}
        return await child.post(body, WEBHOOKS, **headers)

    async with spawned(tmp_path, sock, module="intake_webhooks") as child:
        statuses = [await post(child, "old")]
        for secret in ("old", "new"):
            webhook = Platform(webhook=Webhook(path=WEBHOOKS, secrets=(secret,)))
            await child.channel.send(Reload(msgspec.structs.replace(settings(tmp_path), platform=webhook)))
            while (status := await post(child, secret)) != 200:
                statuses.append(status)
        statuses.append(await post(child, "old"))

    assert (statuses[0], statuses[-1]) == (404, 403)
    assert set(statuses) == {404, 403}
    assert [each.id for each in Inbox(tmp_path).waiting()] == ["wh_1"]


async def test_delivery_that_waits_for_the_store_gets_503_when_the_intake_stops(
    tmp_path: Path, sock: socket.socket
) -> None:
    drain = Drain(name="d", acknowledge="store")
    limits = Limits(answer_deadline_s=600, stop_grace_s=2)
    async with spawned(tmp_path, sock, drain, limits=limits) as child:
        posting = asyncio.create_task(child.post(one_span()))
        await until(lambda: _has_record(tmp_path / "journal"))
        await child.channel.send(Stop())

        assert await posting == 503


def _has_record(journal: Path) -> bool:
    return any(path.stat().st_size for path in journal.glob("*/*.open"))
