"""SIGKILL of each process under load: every acknowledged span is stored once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess
from tests.faults import bodies
from tests.faults.load import load
from tests.faults.wire import REFUSED

SPANS_PER_REQUEST = 20
DELIVERIES = 40
"""Acknowledged deliveries before and after each kill."""


def trace_body(trace: int) -> bytes:
    """Return a body with one trace; all its ids are derived from `trace`."""
    return bodies.trace_body(trace, spans=SPANS_PER_REQUEST)


def pid_of(running: ReceiverProcess, process: str) -> int:
    pids = running.state()["pids"]
    return int(pids[process][0] if process == "intake" else pids[process])


@pytest.mark.fault("a process is killed under load: intake, store, supervisor")
@pytest.mark.timeout(240)
def test_killed_process_loses_and_duplicates_no_span(tmp_path: Path) -> None:
    with (
        ReceiverProcess(tmp_path) as running,
        # Without a supervisor, the port is closed.
        load(running, refusals={REFUSED}) as senders,
    ):
        for process in ("store", "intake", "supervisor"):
            senders.wait_for(DELIVERIES)
            running.kill(pid_of(running, process))
            if process == "supervisor":
                running.start()
            senders.wait_for(DELIVERIES)
            running.wait_until_ready()
