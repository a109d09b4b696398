"""While an intake is down the others serve its connections, and it is started again without long pauses."""

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
from receiver.supervisor.descriptors import RESERVED, DescriptorReserve
from tests.supervisor.test_intakes import is_stopped
from tests.supervisor.test_supervisor import Supervised, is_alive, wait_until

CONNECTIONS = 40
"""So many that each of two intakes gets some: all to one has odds of 2 to the 39th."""


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    found = Supervised(tmp_path)
    found.configure("intakes = 2")
    yield found
    found.clean_up()


def crash_for_good(supervised: Supervised, name: str = "intake-0") -> int:
    """Kill a process whose successors end at once. Return the pid that it had."""
    (supervised.directory / f"{name}-crashes").touch()
    pid: int = supervised.state()["pids"]["intake"][int(name[-1])]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    return pid


@pytest.mark.fault("one of two intakes ends again and again, as soon as it starts")
def test_while_one_intake_crashes_the_other_answers_every_connection(supervised: Supervised) -> None:
    supervised.start()
    healthy = supervised.state()["pids"]["intake"][1]

    crash_for_good(supervised)
    answered_by = {supervised.ask() for _ in range(CONNECTIONS)}

    assert answered_by == {str(healthy)}


def test_connections_queued_for_a_killed_intake_are_answered_by_the_other(supervised: Supervised) -> None:
    supervised.start()
    stopped, healthy = supervised.state()["pids"]["intake"]
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: is_stopped(stopped))

    with ExitStack() as open_until_the_end:
        queued = [
            open_until_the_end.enter_context(supervised.connected("listen")) for _ in range(CONNECTIONS)
        ]
        crash_for_good(supervised)
        answered_by = {ask_on(connection) for connection in queued}

    assert answered_by == {str(healthy)}


def test_an_intake_that_does_not_report_is_covered_before_it_counts_as_hung(supervised: Supervised) -> None:
    supervised.start(silence_s=600.0)
    stopped, healthy = supervised.state()["pids"]["intake"]
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: is_stopped(stopped))

    answered_by = {supervised.ask() for _ in range(CONNECTIONS)}

    os.kill(stopped, signal.SIGCONT)
    assert answered_by == {str(healthy)}


def test_an_intake_that_is_back_answers_its_own_connections_again(supervised: Supervised) -> None:
    supervised.start()
    before = crash_for_good(supervised)
    supervised.ask()

    (supervised.directory / "intake-0-crashes").unlink()
    wait_until(supervised.is_ready)

    intakes = {str(pid) for pid in supervised.state()["pids"]["intake"]}
    wait_until(lambda: {supervised.ask() for _ in range(CONNECTIONS)} == intakes)
    assert str(before) not in intakes


def test_a_crash_is_logged_with_its_cause_and_what_is_done(supervised: Supervised) -> None:
    supervised.start()

    killed = crash_for_good(supervised)

    fields = f'"name": "intake-0", "pid": {killed}, "exit": "signal SIGKILL", "action": "replaced"'
    wait_until(lambda: fields in (supervised.directory / "log").read_text())
    metric = 'trace_drain_process_restarts_total{process="intake-0"}'
    wait_until(lambda: metric in supervised.admin("/metrics")[1])


def test_a_supervisor_without_free_descriptors_replaces_an_intake_and_says_where_it_is(
    supervised: Supervised,
) -> None:
    supervised.start()
    assert supervised.process
    pid, killed = supervised.process.pid, supervised.state()["pids"]["intake"][0]
    in_use = max(int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir()) + 1
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (in_use, hard))

    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: supervised.starts("intake-0") == 2)

    wait_until(lambda: supervised.state()["pids"]["intake"][0] not in {killed, 0})
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
    wait_until(supervised.is_ready)


def test_a_process_that_ends_again_and_again_is_one_condition_in_the_log(supervised: Supervised) -> None:
    (supervised.directory / "store-crashes").write_text("the disk has 1 MiB free")

    supervised.launch()
    wait_until(lambda: supervised.starts("store") >= 5)

    log = (supervised.directory / "log").read_text()
    assert log.count("process exited unexpectedly") == 2
    assert 1 <= log.count("process exits repeatedly") < supervised.starts("store") - 2
    assert log.count('"error": "the disk has 1 MiB free"') == log.count('"name": "store", "pid"')
    told = "[-] store ends: exited 5 times in the last 10 minutes: the disk has 1 MiB free\nok\n"
    wait_until(lambda: told in supervised.admin("/readyz")[1])


def ask_on(connection: socket.socket) -> str:
    connection.sendall(b"who\n")
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
    taken = []
    with suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    return taken


async def until_replaced(child: Child, before: int) -> None:
    async with asyncio.timeout(60):
        while child.pid == before or not child.is_ready:  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.01)


@pytest.mark.fault("the supervisor has no file descriptor left when an intake is killed")
async def test_a_killed_intake_is_replaced_while_all_descriptors_are_used_up(
    tmp_path: Path, few_descriptors: int
) -> None:
    reserve = DescriptorReserve()
    with socket.create_server(("127.0.0.1", 0)) as listening, (tmp_path / "lock").open("w") as lock:
        role = Role("intake-0", "tests.doubles.fake_child", listening.fileno(), lock.fileno())
        settings = Settings(data_dir=str(tmp_path))
        child = Child(role, settings, Metrics("supervisor"), lambda: None, reserve=reserve)
        running = child.start()
        await until_replaced(child, 0)
        taken = use_up_descriptors()
        for _ in range(3):
            killed = child.pid
            os.kill(killed, signal.SIGKILL)
            await until_replaced(child, killed)
        for fd in taken:
            os.close(fd)
        await child.stop(60)
        await running

    assert len(taken) < few_descriptors
    assert (tmp_path / "events").read_text().count("start") == 4
    reserve.close()
