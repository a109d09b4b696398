"""Tests of a crashed intake: other intakes serve its connections until it is replaced."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from receiver.metrics import Metrics
from receiver.settings import Settings
from receiver.supervisor.child import Child, Role
from receiver.supervisor.sockets import RESERVED, DescriptorReserve
from tests.supervisor.supervised import ROOT, Supervised, is_alive, wait_until

CONFIG = "intakes = 2"
CONNECTIONS = 40
"""Enough for two intakes: the probability that all connections reach the same intake is 2**-39."""


def crash_repeatedly(supervised: Supervised, name: str = "intake-0") -> int:
    """Kill a process whose replacements exit at once. Return its process id."""
    (supervised.directory / f"{name}-crashes").touch()
    pid: int = supervised.state()["pids"]["intake"][int(name[-1])]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    return pid


@pytest.mark.fault("one of two intakes exits repeatedly, right after its start")
def test_healthy_intake_answers_all_connections_while_the_other_crashes(supervised: Supervised) -> None:
    supervised.start()
    healthy = supervised.state()["pids"]["intake"][1]

    killed = crash_repeatedly(supervised)
    answered_by = {supervised.send_command() for _ in range(CONNECTIONS)}

    assert answered_by == {str(healthy)}
    fields = f'"name": "intake-0", "pid": {killed}, "exit": "signal SIGKILL", "action": "replaced"'
    wait_until(lambda: fields in supervised.log)
    metric = 'trace_drain_process_restarts_total{process="intake-0"}'
    wait_until(lambda: metric in supervised.admin("/metrics")[1])


def test_connections_queued_for_a_killed_intake_are_answered_by_the_other(supervised: Supervised) -> None:
    supervised.start()
    stopped, healthy = supervised.state()["pids"]["intake"]
    supervised.stop_process(stopped)

    with ExitStack() as stack:
        queued = [stack.enter_context(supervised.connect("listen")) for _ in range(CONNECTIONS)]
        crash_repeatedly(supervised)
        answered_by = {answering_pid(connection) for connection in queued}

    assert answered_by == {str(healthy)}


def test_connections_of_an_unresponsive_intake_are_answered_by_the_other(supervised: Supervised) -> None:
    supervised.start(silence_s=600.0)
    stopped, healthy = supervised.state()["pids"]["intake"]
    supervised.stop_process(stopped)

    answered_by = {supervised.send_command() for _ in range(CONNECTIONS)}

    os.kill(stopped, signal.SIGCONT)
    assert answered_by == {str(healthy)}


def test_replaced_intake_answers_connections_again(supervised: Supervised) -> None:
    supervised.start()
    before = crash_repeatedly(supervised)
    supervised.send_command()

    (supervised.directory / "intake-0-crashes").unlink()
    wait_until(supervised.is_ready)

    intakes = {str(pid) for pid in supervised.state()["pids"]["intake"]}
    wait_until(lambda: {supervised.send_command() for _ in range(CONNECTIONS)} == intakes)
    assert str(before) not in intakes


def test_supervisor_without_free_descriptors_replaces_an_intake_and_updates_the_state(
    supervised: Supervised,
) -> None:
    supervised.start()
    assert supervised.process
    pid, killed = supervised.process.pid, supervised.state()["pids"]["intake"][0]
    in_use = max(int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir()) + 1
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (in_use, hard))

    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: supervised.start_count("intake-0") == 2)

    wait_until(lambda: supervised.state()["pids"]["intake"][0] not in {killed, 0})
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
    wait_until(supervised.is_ready)


def test_repeated_exits_are_logged_as_a_single_condition(supervised: Supervised) -> None:
    (supervised.directory / "store-crashes").write_text("the disk has 1 MiB free")

    supervised.launch()
    wait_until(lambda: supervised.start_count("store") >= 5)

    log = supervised.log
    assert log.count("process exited unexpectedly") == 2
    assert 1 <= log.count("process exits repeatedly") < supervised.start_count("store") - 2
    assert log.count('"error": "the disk has 1 MiB free"') == log.count('"name": "store", "pid"')
    expected = "[-] store ends: exited 5 times in the last 10 minutes: the disk has 1 MiB free\nok\n"
    wait_until(lambda: expected in supervised.admin("/readyz")[1])


def answering_pid(connection: socket.socket) -> str:
    connection.sendall(b"pid\n")
    return connection.makefile().readline().strip()


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """Allow this process, and those that it starts, few descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = max(int(fd) for fd in os.listdir("/proc/self/fd")) + RESERVED + 64  # noqa: PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    yield allowed
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def use_up_descriptors() -> list[int]:
    descriptors = []
    with suppress(OSError):
        while True:
            descriptors.append(os.open(os.devnull, os.O_RDONLY))
    return descriptors


async def until_replaced(child: Child, before: int) -> None:
    async with asyncio.timeout(60):
        while child.pid == before or not child.is_ready:  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.01)


@pytest.mark.fault("the supervisor has no free file descriptor when an intake is killed")
async def test_killed_intake_is_replaced_without_free_descriptors(
    tmp_path: Path, few_descriptors: int
) -> None:
    reserve = DescriptorReserve()
    with socket.create_server(("127.0.0.1", 0)) as listening, (tmp_path / "lock").open("w") as lock:
        environ = {"PYTHONPATH": str(ROOT)}  # the child is a module of the tests
        role = Role(
            "intake-0", "tests.doubles.fake_child", listening.fileno(), lock.fileno(), environ=environ
        )
        settings = Settings(data_dir=str(tmp_path))
        child = Child(role, settings, Metrics("supervisor"), lambda: None, reserve=reserve)
        running = child.start()
        await until_replaced(child, 0)
        descriptors = use_up_descriptors()
        for _ in range(3):
            killed = child.pid
            os.kill(killed, signal.SIGKILL)
            await until_replaced(child, killed)
        for fd in descriptors:
            os.close(fd)
        await child.stop(60)
        await running

    assert len(descriptors) < few_descriptors
    assert (tmp_path / "events").read_text().count("start") == 4
    reserve.close()
