"""The processes: frozen, killed one by one, out of memory, out of descriptors, and started twice."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.e2e.running import Running, environment
from tests.e2e.test_kill import pid_of
from tests.faults.bodies import large_body
from tests.faults.load import load
from tests.faults.variant import IS_LONG
from tests.faults.wire import Wire, post, post_head
from tests.torture.site import processes, usage

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
FREEZE_S = 30.0 if IS_LONG else 3.0
CONNECTIONS = 300
DESCRIPTORS_MORE = 8
MEMORY_MORE_BYTES = 48 * MIB
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    data: Path = tmp_path_factory.mktemp("processes")
    with Running(data, config="intakes = 2\n") as running:
        yield running


def until_replaced(running: Running, pid: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while pid in processes(running):
        assert time.monotonic() < deadline_s, f"process {pid} is still there"
        time.sleep(0.05)
    running.wait_until_ready()


@pytest.mark.fault("a process is frozen for 30 s and goes on: intake, store, supervisor")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("process", ["intake", "store", "supervisor"])
def test_a_process_that_was_frozen_loses_and_doubles_nothing(receiver: Running, process: str) -> None:
    first = {"intake": 0x10_0000, "store": 0x20_0000, "supervisor": 0x30_0000}[process]
    with load(receiver, first) as senders:
        senders.wait_for(20)
        pid = pid_of(receiver, process)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(FREEZE_S)
        with suppress(ProcessLookupError):  # it was taken for hung and replaced
            os.kill(pid, signal.SIGCONT)
        senders.wait_for(20)


@pytest.mark.fault("one of two intakes is killed: the other goes on, no connection is refused")
@pytest.mark.timeout(180)
def test_while_one_intake_is_dead_the_other_serves(receiver: Running) -> None:
    with load(receiver, 0x40_0000) as senders:
        senders.wait_for(20)
        killed = pid_of(receiver, "intake")
        receiver.kill(killed)
        senders.wait_for(20)
        until_replaced(receiver, killed)
        senders.wait_for(20)


@pytest.mark.fault("an intake runs out of memory")
@pytest.mark.timeout(240)
def test_an_intake_without_memory_loses_nothing_and_is_back(receiver: Running) -> None:
    pid = pid_of(receiver, "intake")
    with load(receiver, 0x50_0000) as senders:
        senders.wait_for(20)
        starve(pid)
        seen = [post_large(receiver, 0x60_0000 + trace) for trace in range(12)]
        with suppress(ProcessLookupError):  # it may have ended by itself
            receiver.kill(pid)
        until_replaced(receiver, pid)
        senders.wait_for(20)

    assert set(seen) <= {0, 200, 503}
    assert set(seen) - {200}, "memory was enough"


@pytest.mark.fault("the store runs out of memory and is killed")
@pytest.mark.timeout(240)
def test_a_store_without_memory_loses_nothing_and_is_back(receiver: Running) -> None:
    pid = pid_of(receiver, "store")
    with load(receiver, 0x70_0000) as senders:
        senders.wait_for(20)
        starve(pid)
        senders.wait_for(100)
        with suppress(ProcessLookupError):
            receiver.kill(pid)
        until_replaced(receiver, pid)
        senders.wait_for(20)


def starve(pid: int) -> None:
    """Let a process have little more address space than it has now."""
    size_bytes = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (size_bytes + MEMORY_MORE_BYTES, hard))


def post_large(running: Running, trace: int) -> int:
    body = large_body(trace, time.time_ns(), 60 * MIB)
    return post(running.address, body, headers="content-encoding: gzip\r\n")


@pytest.mark.fault("an intake runs out of descriptors, so that accept fails")
@pytest.mark.timeout(180)
def test_an_intake_without_descriptors_takes_deliveries_again_once_there_are_some(receiver: Running) -> None:
    intakes = [pid for pid, role in processes(receiver).items() if role == "intake"]
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in intakes}
    for pid, (_, hard) in limits.items():
        held = usage(pid)
        assert held
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (held.descriptors + DESCRIPTORS_MORE, hard))
    with ExitStack() as open_ones:
        for _ in range(CONNECTIONS):
            with suppress(OSError):
                wire = open_ones.enter_context(Wire(receiver.address))
                wire.socket.sendall(post_head(10))
        time.sleep(1)
        spinning_s = cpu_s(intakes)
        time.sleep(2)
        spinning_s = cpu_s(intakes) - spinning_s
    for pid, limit in limits.items():
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)

    with load(receiver, 0x80_0000) as senders:
        senders.wait_for(20)
    assert set(intakes) <= processes(receiver).keys(), "no intake had to be replaced"
    assert spinning_s < 2.0, "they wait for descriptors and do not spin"


def cpu_s(pids: list[int]) -> float:
    """Processor time that these processes have used."""
    ticks = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids]
    return sum(int(tick) for two in ticks for tick in two) / os.sysconf("SC_CLK_TCK")


@pytest.mark.fault("a second receiver is started on the same data directory")
@pytest.mark.timeout(120)
def test_a_second_receiver_on_the_directory_ends_and_the_first_goes_on(receiver: Running) -> None:
    command = [sys.executable, "-m", "receiver.cli", "serve", "--data", str(receiver.data)]
    ports = [
        word for kind in ("--listen", "--admin-listen", "--api-listen") for word in (kind, "127.0.0.1:0")
    ]
    with load(receiver, 0x90_0000) as senders:
        second = subprocess.run(
            [*command, *ports],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        senders.wait_for(20)

    assert second.returncode == 1
    assert "is in use" in second.stderr
