"""Load as OTLP clients produce it: each sender sends one delivery at a time until it is acknowledged."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Self

from tests.e2e.receiver_process import PATIENCE_S, RETRYABLE, ReceiverProcess
from tests.faults.bodies import SPANS, trace_body
from tests.faults.wire import NO_ANSWER, post

SENDERS = 4
RETRY_S = 0.1
Post = Callable[[bytes], int]
"""Send a body once. Returns the status, or `NO_ANSWER`."""


class Load:
    """Concurrent senders and the responses that they received."""

    def __init__(self, send: Post, first_trace: int = 1) -> None:
        self.statuses: Counter[int] = Counter()
        self.acknowledged: set[str] = set()
        self._send, self._first = send, first_trace
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(SENDERS)]

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
        target, deadline_s = len(self.acknowledged) + more, time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < target:
            assert time.monotonic() < deadline_s, f"no {more} more deliveries acknowledged: {self.statuses}"
            time.sleep(0.02)

    def _run(self, number: int) -> None:
        trace = self._first + number
        while not self._ending.is_set():
            body = trace_body(trace)
            while (status := self._send(body)) != 200:
                self.statuses[status] += 1
                time.sleep(RETRY_S)
            self.statuses[200] += 1
            self.acknowledged.add(f"{trace:032x}")
            trace += SENDERS


@contextmanager
def load(running: ReceiverProcess, first_trace: int = 1, *, refusals: Collection[int] = ()) -> Iterator[Load]:
    """Run load on an open drain; afterwards assert that all of it is stored once.

    `refusals`: further statuses that may occur and are retried.
    """
    with Load(lambda body: post_to(running, body), first_trace) as senders:
        yield senders
    running.wait_until_ready()
    assert senders.acknowledged, "no delivery was acknowledged, so the run proves nothing"
    assert_stored_once(running, senders.acknowledged)
    assert senders.statuses.keys() <= {NO_ANSWER, 200, 429, 503, *refusals}


def post_to(running: ReceiverProcess, body: bytes, *, headers: str = "") -> int:
    """Post once to a receiver that may be restarting."""
    try:
        address = running.address
    except (OSError, ValueError, KeyError):
        return NO_ANSWER
    return post(address, body, headers=headers)


def deliver(
    running: ReceiverProcess, body: bytes, *, headers: str = "", refusals: Collection[int] = ()
) -> None:
    """Post the same body until it is acknowledged, as a client does after a lost connection."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (status := post_to(running, body, headers=headers)) != 200:
        assert status in {NO_ANSWER, *RETRYABLE, *refusals}
        assert time.monotonic() < deadline_s, f"the delivery was not acknowledged: {running.log()[-3_000:]}"
        time.sleep(RETRY_S)


def assert_stored_once(running: ReceiverProcess, traces: Collection[str]) -> None:
    """Assert that each of these traces is stored whole and once, when the journal is empty."""
    running.wait_until_stored()
    stored = Counter(row["TraceId"] for row in running.spans() if row["TraceId"] in traces)

    wrong = {trace: stored[trace] for trace in traces if stored[trace] != SPANS}
    assert not wrong, f"stored spans of a trace, instead of {SPANS}: {wrong}"
