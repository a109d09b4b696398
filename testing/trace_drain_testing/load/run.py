"""One run: clients in an open or closed loop, until the duration or number of requests is reached.

Open loop: request n is due at time n / rate, even if no client is free to send it. Its latency is measured
from that time, so that a stall delays every request that had to wait (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from trace_drain_testing.load.client import Client, ClientContext, Target
from trace_drain_testing.load.requests import LoadRequest, RequestStream
from trace_drain_testing.load.tally import Tally

SWEEP_S = 0.1


@dataclass(frozen=True)
class LoadPlan:
    """Number of connections, duration and rate of a run."""

    connections: int = 8
    duration_s: float | None = 10.0
    """Time after which no new request is sent; `None` for no limit."""
    requests_per_s: float | None = None
    """Rate of an open loop; `None` for a closed loop, in which each client sends after each response."""


@dataclass
class Result:
    tally: Tally
    began_ns: int
    """Start time by the wall clock."""
    elapsed_s: float = 0.0
    """Time until the last response."""
    cpu_s: float = 0.0
    """CPU time of the load generator. If it is close to `elapsed_s`, the generator was the bottleneck."""
    was_interrupted: bool = False
    permanent_error: str = ""
    """Error that ended the run because no retry can fix it."""


Progress = Callable[[float, Tally], None]


class Run:
    """Runs the clients until all requests have a final response."""

    def __init__(self, plan: LoadPlan, target: Target, feed: RequestStream, tally: Tally) -> None:
        self._plan, self._feed = plan, feed
        self._began_s = 0.0
        self._taken = 0
        self._context = ClientContext(target, tally, self._next, self._abort)
        self._permanent_error = ""
        self._done = asyncio.Event()
        self._clients_left = plan.connections

    async def run(self, progress: Progress) -> Result:
        """Send all requests, until finished or interrupted. Return the result."""
        loop = asyncio.get_running_loop()
        result = Result(self._context.tally, time.time_ns())
        self._began_s, cpu_s = time.perf_counter(), _cpu_s()
        clients = [Client(self._context, self._ended) for _ in range(self._plan.connections)]
        loop.add_signal_handler(signal.SIGINT, self._interrupt, result)
        # One task for all clients, because a timer for each request would add to the cost of all of them.
        watch = loop.create_task(self._watch(clients, progress))
        try:
            for client in clients:
                client.take_next()
            await self._done.wait()
        finally:
            watch.cancel()
            loop.remove_signal_handler(signal.SIGINT)
        for client in clients:
            client.end()
        result.permanent_error = self._permanent_error
        result.elapsed_s, result.cpu_s = time.perf_counter() - self._began_s, _cpu_s() - cpu_s
        return result

    def _next(self) -> LoadRequest | None:
        now_s = time.perf_counter()
        rate, duration_s = self._plan.requests_per_s, self._plan.duration_s
        intended_s = now_s if rate is None else self._began_s + self._taken / rate
        if duration_s is not None and intended_s >= self._began_s + duration_s:
            return None
        request = self._feed.next()
        if request is not None:
            self._taken += 1
            # Closed loop: read the clock again, because the time to create the body is not latency.
            request.intended_s = intended_s if rate is not None else time.perf_counter()
        return request

    def _ended(self) -> None:
        self._clients_left -= 1
        if not self._clients_left:
            self._done.set()

    def _abort(self, why: str) -> None:
        self._permanent_error = self._permanent_error or why
        self._done.set()

    def _interrupt(self, result: Result) -> None:
        result.was_interrupted = True
        self._done.set()

    async def _watch(self, clients: list[Client], progress: Progress) -> None:
        """Time out slow attempts, and report progress every second."""
        reported_s = self._began_s
        while True:
            await asyncio.sleep(SWEEP_S)
            now_s = time.perf_counter()
            for client in clients:
                client.check(now_s)
            if now_s - reported_s >= 1:
                # Not `now_s`, so that the intervals do not drift.
                reported_s += 1
                progress(now_s - self._began_s, self._context.tally)
                self._context.tally.next_second()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
