"""Kill -9 of every process in turn, under load: what was answered with 200 is there, once."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.running import Running

SPANS_PER_REQUEST = 20
LOAD_S = 6.0
PAUSE_S = 0.005
"""Between two traces of a sender, so that all are read back in one answer however fast the machine is."""
RETRYABLE = {429, 502, 503, 504}


def trace_body(trace: int) -> bytes:
    """One trace whose every id is a function of its number."""
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
    """Posts traces one after another; notes which were answered with 200 and which are in doubt."""

    def __init__(self, running: Running, first: int) -> None:
        super().__init__()
        self.running, self.next = running, first
        self.acknowledged: set[str] = set()
        self.issued: set[str] = set()
        self.wrong: list[int] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(PAUSE_S):
            self.send(self.next)
            self.next += 1

    def send(self, trace: int) -> None:
        self.issued.add(f"{trace:032x}")
        try:
            reply = self.running.post(trace_body(trace))
        except (OSError, ValueError, KeyError):
            return  # reset, or no receiver just now: the trace is in doubt and is not sent again
        if reply.status == 200:
            self.acknowledged.add(f"{trace:032x}")
        elif reply.status not in RETRYABLE:
            self.wrong.append(reply.status)


def pid_of(running: Running, process: str) -> int:
    pids = running.state()["pids"]
    return int(pids[process][0] if process == "intake" else pids[process])


@pytest.mark.fault("a process is killed under load: intake, store, supervisor")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("process", ["intake", "store", "supervisor"])
def test_a_killed_process_loses_and_doubles_nothing(process: str, fresh_dir: Path) -> None:
    with Running(fresh_dir) as running:
        senders = [Sender(running, first=1 + number * 1_000_000) for number in range(3)]
        for sender in senders:
            sender.start()
        time.sleep(LOAD_S / 2)
        running.kill(pid_of(running, process))
        if process == "supervisor":
            running.start()
        time.sleep(LOAD_S / 2)
        for sender in senders:
            sender.stopping.set()
        for sender in senders:
            sender.join()
        running.wait_until_ready()
        acknowledged = set().union(*(sender.acknowledged for sender in senders))
        issued = set().union(*(sender.issued for sender in senders))
        rows = running.spans_once_stored(len(acknowledged) * SPANS_PER_REQUEST)

    per_trace = Counter(row["TraceId"] for row in rows)
    assert acknowledged, "a run without a 200 proves nothing"
    assert acknowledged <= set(per_trace)
    assert set(per_trace) <= issued
    assert set(per_trace.values()) == {SPANS_PER_REQUEST}
    assert [sender.wrong for sender in senders] == [[], [], []]
