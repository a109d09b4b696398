"""SIGKILL of each process under load: every acknowledged span is stored once."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess

SPANS_PER_REQUEST = 20
LOAD_S = 6.0
PAUSE_S = 0.005
"""Pause of a sender between two traces, so that one query returns all of them even on a fast machine."""
RETRYABLE = {429, 502, 503, 504}


def trace_body(trace: int) -> bytes:
    """Return a body with one trace; all its ids are derived from `trace`."""
    start = time.time_ns()
    spans = [
        {
            "traceId": f"{trace:032x}",
            "spanId": f"{span + 1:016x}",
            "name": f"span {span}",
            "startTimeUnixNano": str(start),
            "endTimeUnixNano": str(start + 1000),
        }
        for span in range(SPANS_PER_REQUEST)
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


class Sender(threading.Thread):
    """Sender of one trace after another; records which were acknowledged."""

    def __init__(self, running: ReceiverProcess, first: int) -> None:
        super().__init__()
        self.running, self.next = running, first
        self.acknowledged: set[str] = set()
        self.issued: set[str] = set()
        self.unexpected_statuses: list[int] = []
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.wait(PAUSE_S):
            self.send(self.next)
            self.next += 1

    def send(self, trace: int) -> None:
        self.issued.add(f"{trace:032x}")
        try:
            reply = self.running.post(trace_body(trace))
        except (OSError, ValueError, KeyError):
            return  # reset, or no receiver now: the outcome is unknown and the trace is not repeated
        if reply.status == 200:
            self.acknowledged.add(f"{trace:032x}")
        elif reply.status not in RETRYABLE:
            self.unexpected_statuses.append(reply.status)


def pid_of(running: ReceiverProcess, process: str) -> int:
    pids = running.state()["pids"]
    return int(pids[process][0] if process == "intake" else pids[process])


@pytest.mark.fault("a process is killed under load: intake, store, supervisor")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("process", ["intake", "store", "supervisor"])
def test_killed_process_loses_and_duplicates_no_span(process: str, fresh_dir: Path) -> None:
    with ReceiverProcess(fresh_dir) as running:
        senders = [Sender(running, first=1 + number * 1_000_000) for number in range(3)]
        for sender in senders:
            sender.start()
        time.sleep(LOAD_S / 2)
        running.kill(pid_of(running, process))
        if process == "supervisor":
            running.start()
        time.sleep(LOAD_S / 2)
        for sender in senders:
            sender.stop.set()
        for sender in senders:
            sender.join()
        running.wait_until_ready()
        acknowledged = set().union(*(sender.acknowledged for sender in senders))
        issued = set().union(*(sender.issued for sender in senders))
        rows = running.spans_once_stored(len(acknowledged) * SPANS_PER_REQUEST)

    per_trace = Counter(row["TraceId"] for row in rows)
    assert acknowledged, "no delivery was acknowledged, so the run proves nothing"
    assert acknowledged <= set(per_trace)
    assert set(per_trace) <= issued
    assert set(per_trace.values()) == {SPANS_PER_REQUEST}
    assert [sender.unexpected_statuses for sender in senders] == [[], [], []]
