"""Load as OTLP clients produce it: each sender sends one delivery at a time until it is acknowledged."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from tests.e2e.receiver_process import ReceiverProcess
from tests.faults.bodies import trace_body
from tests.faults.wire import post

SENDERS = 4
RETRY_S = 0.1
STORED_S = 60.0
SPANS = 3
Post = Callable[[bytes], int]
"""Send a body once. Returns the status; 0: no response."""


class Load:
    """Concurrent senders and the responses that they received."""

    def __init__(self, send: Post, first_trace: int = 1) -> None:
        self.statuses: Counter[int] = Counter()
        self.acknowledged: set[str] = set()
        self._send, self._first = send, first_trace
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(place,)) for place in range(SENDERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, more: int) -> None:
        """Wait until `more` further deliveries are acknowledged."""
        wanted, deadline_s = len(self.acknowledged) + more, time.monotonic() + STORED_S
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline_s, f"no {more} more deliveries acknowledged: {self.statuses}"
            time.sleep(0.02)

    def _run(self, place: int) -> None:
        trace = self._first + place
        while not self._ending.is_set():
            body = trace_body(trace, time.time_ns())
            while (status := self._send(body)) != 200:
                self.statuses[status] += 1
                time.sleep(RETRY_S)
            self.statuses[200] += 1
            self.acknowledged.add(f"{trace:032x}")
            trace += SENDERS


@contextmanager
def load(running: ReceiverProcess, first_trace: int = 1) -> Iterator[Load]:
    """Run load on an open drain; afterwards assert that all of it is stored once."""
    address = running.address
    with Load(lambda body: post(address, body), first_trace) as senders:
        yield senders
    running.wait_until_ready()
    assert_stored_once(running, senders)


def assert_stored_once(running: ReceiverProcess, senders: Load) -> None:
    """Assert that acknowledged traces are stored whole and once, and all other responses were retryable."""
    deadline_s = time.monotonic() + STORED_S
    while True:
        stored = Counter(row["TraceId"] for row in running.spans() if row["TraceId"] in senders.acknowledged)
        if stored.keys() == senders.acknowledged or time.monotonic() > deadline_s:
            break
        time.sleep(0.5)

    assert senders.acknowledged, "no delivery was acknowledged, so the run proves nothing"
    assert stored == dict.fromkeys(senders.acknowledged, SPANS)
    assert senders.statuses.keys() <= {0, 200, 429, 503}
