"""Load as OTLP clients make it: one delivery after the other, each sent until it is acknowledged."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from tests.e2e.running import Running
from tests.faults.bodies import trace_body
from tests.faults.wire import post

SENDERS = 4
RETRY_S = 0.1
STORED_S = 60.0
SPANS = 3
Post = Callable[[bytes], int]
"""Send this body once. The status; 0: none came."""


class Load:
    """Some senders, and what they saw."""

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
        """Until so many more deliveries are acknowledged."""
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
def load(running: Running, first_trace: int = 1) -> Iterator[Load]:
    """Load on an open drain; afterwards all of it is in the store, once."""
    address = running.address
    with Load(lambda body: post(address, body), first_trace) as senders:
        yield senders
    running.wait_until_ready()
    assert_stored_once(running, senders)


def assert_stored_once(running: Running, senders: Load) -> None:
    """Whatever was acknowledged is there, whole, once, and nothing but retryable answers were seen."""
    deadline_s = time.monotonic() + STORED_S
    while True:
        found = Counter(row["TraceId"] for row in running.spans() if row["TraceId"] in senders.acknowledged)
        if found.keys() == senders.acknowledged or time.monotonic() > deadline_s:
            break
        time.sleep(0.5)

    assert senders.acknowledged, "a run without a 200 proves nothing"
    assert found == dict.fromkeys(senders.acknowledged, SPANS)
    assert senders.statuses.keys() <= {0, 200, 429, 503}
