"""Process faults: frozen, killed individually, out of memory, out of descriptors, and started twice."""

from __future__ import annotations

import os
import re
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from benchmarks.processes import usage_of
from tests.e2e.receiver_process import ReceiverProcess
from tests.e2e.test_kill import pid_of
from tests.faults.bodies import large_body
from tests.faults.load import load
from tests.faults.variant import IS_LONG
from tests.faults.wire import Wire, post, post_head
from tests.torture.receiver_state import processes, usage

MIB = 1 << 20
FREEZE_S = 30.0 if IS_LONG else 3.0
CONNECTIONS = 300
DESCRIPTORS_MORE = 8
MEMORY_MORE_BYTES = 48 * MIB


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceiverProcess]:
    data: Path = tmp_path_factory.mktemp("processes")
    with ReceiverProcess(data, config="intakes = 2\n") as running:
        yield running


def wait_until_silence_is_reported(running: ReceiverProcess, process: str) -> None:
    """Wait until `/readyz` says that a process does not report."""
    running.wait_until(
        lambda: re.search(rf"^\[-\] {process}.*no report for", running.checks(), re.MULTILINE),
        f"the silence of the {process} is not reported",
    )


def wait_until_replaced(running: ReceiverProcess, pid: int) -> None:
    running.wait_until(lambda: pid not in processes(running), f"process {pid} still runs")
    running.wait_until_ready()


@pytest.mark.fault("a process is frozen for 30 s and continues: intake, store, supervisor")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("process", ["intake", "store", "supervisor"])
def test_frozen_process_loses_and_duplicates_no_span(receiver: ReceiverProcess, process: str) -> None:
    first = {"intake": 0x10_0000, "store": 0x20_0000, "supervisor": 0x30_0000}[process]
    with load(receiver, first) as senders:
        senders.wait_for(20)
        pid = pid_of(receiver, process)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(FREEZE_S)
        if process != "supervisor":
            wait_until_silence_is_reported(receiver, process)
        with suppress(ProcessLookupError):  # the supervisor took it for hung and replaced it
            os.kill(pid, signal.SIGCONT)
        senders.wait_for(20)


@pytest.mark.fault("one of two intakes is killed: the other continues, no connection is refused")
@pytest.mark.timeout(180)
def test_remaining_intake_serves_while_the_other_is_replaced(receiver: ReceiverProcess) -> None:
    with load(receiver, 0x40_0000) as senders:
        senders.wait_for(20)
        killed = pid_of(receiver, "intake")
        receiver.kill(killed)
        senders.wait_for(20)
        wait_until_replaced(receiver, killed)
        senders.wait_for(20)


@pytest.mark.fault("an intake runs out of memory")
@pytest.mark.timeout(240)
def test_intake_out_of_memory_loses_nothing_and_is_replaced(receiver: ReceiverProcess) -> None:
    pid = pid_of(receiver, "intake")
    with load(receiver, 0x50_0000) as senders:
        senders.wait_for(20)
        limit_memory(pid)
        statuses = [post_large(receiver, 0x60_0000 + trace) for trace in range(12)]
        with suppress(ProcessLookupError):  # it may have ended already
            receiver.kill(pid)
        wait_until_replaced(receiver, pid)
        senders.wait_for(20)

    assert set(statuses) <= {0, 200, 503}
    assert set(statuses) - {200}, "every large body was accepted, so memory did not run out"


@pytest.mark.fault("the store runs out of memory and is killed")
@pytest.mark.timeout(240)
def test_store_process_out_of_memory_loses_nothing_and_is_replaced(receiver: ReceiverProcess) -> None:
    pid = pid_of(receiver, "store")
    with load(receiver, 0x70_0000) as senders:
        senders.wait_for(20)
        limit_memory(pid)
        senders.wait_for(100)
        with suppress(ProcessLookupError):
            receiver.kill(pid)
        wait_until_replaced(receiver, pid)
        senders.wait_for(20)


def limit_memory(pid: int) -> None:
    """Limit the address space of a process to slightly more than it uses now."""
    size_bytes = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (size_bytes + MEMORY_MORE_BYTES, hard))


def post_large(running: ReceiverProcess, trace: int) -> int:
    body = large_body(trace, 60 * MIB)
    return post(running.address, body, headers="content-encoding: gzip\r\n")


@pytest.mark.fault("an intake runs out of file descriptors, so that accept fails")
@pytest.mark.timeout(180)
def test_intake_out_of_descriptors_accepts_deliveries_again_when_some_are_free(
    receiver: ReceiverProcess,
) -> None:
    intakes = [pid for pid, role in processes(receiver).items() if role == "intake"]
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in intakes}
    for pid, (_, hard) in limits.items():
        resources = usage(pid)
        assert resources
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (resources.descriptors + DESCRIPTORS_MORE, hard))
    with ExitStack() as connections:
        for _ in range(CONNECTIONS):
            with suppress(OSError):
                wire = connections.enter_context(Wire(receiver.address))
                wire.socket.sendall(post_head(10))
        time.sleep(1)
        before_s = sum(usage_of(pid).cpu_s for pid in intakes)
        time.sleep(2)
        busy_s = sum(usage_of(pid).cpu_s for pid in intakes) - before_s
    for pid, limit in limits.items():
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)

    with load(receiver, 0x80_0000) as senders:
        senders.wait_for(20)
    assert set(intakes) <= processes(receiver).keys(), "an intake was replaced"
    assert busy_s < 2.0, "the intakes spin instead of waiting for free descriptors"


@pytest.mark.fault("a second receiver is started on the same data directory")
@pytest.mark.timeout(120)
def test_second_receiver_on_the_data_directory_exits_and_the_first_continues(
    receiver: ReceiverProcess,
) -> None:
    ports = [
        word for kind in ("--listen", "--admin-listen", "--api-listen") for word in (kind, "127.0.0.1:0")
    ]
    with load(receiver, 0x90_0000) as senders:
        second = receiver.run_command("serve", *ports)
        senders.wait_for(20)

    assert second.returncode == 1
    assert "is in use" in second.stderr
