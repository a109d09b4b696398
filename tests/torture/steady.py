"""Steady run: a mixed load of deliveries and queries without faults, in which no resource may grow.

    python -m tests.torture --steady --duration 10m

The first third of the samples is the warm-up: caches fill, and the engine merges its first parts. The medians
of the second and of the last third are then compared. The size of the stored spans grows with their number,
so DATA/store is not among the directories.
"""

from __future__ import annotations

import threading
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from statistics import median

from tests.e2e.receiver_process import ReceiverProcess, reply_of
from tests.torture.receiver_state import processes, usage
from tests.torture.resource_monitor import MIB

SAMPLE_S = 2.0
QUERY_PAUSE_S = 0.2
ATTEMPTS_MAX = 5
"""Attempts of a query, of which all but the last may be answered 503 with Retry-After."""
QUERIES = (
    "services?since=15m",
    "red?since=15m",
    "operations?service=web&since=15m",
    "spans?since=5m&limit=100",
    "attributes?since=15m",
    "ledger?since=1h",
)
GROWTH_RATIO_MAX = 1.15
SLACK = {"rss": 24 * MIB, "descriptors": 100, "threads": 8, "bytes": 16 * MIB}
"""Growth that is within the noise: of the engine's caches, parts that wait for a merge, and open segments."""

Series = dict[str, list[int]]


class SteadyMonitor(threading.Thread):
    """Sampling thread for the resources of the processes and the sizes of the directories."""

    def __init__(self, running: ReceiverProcess) -> None:
        super().__init__(name="steady-monitor", daemon=True)
        self.series: Series = defaultdict(list)
        self.ending = threading.Event()
        self._running = running

    def run(self) -> None:
        while not self.ending.wait(SAMPLE_S):
            for pid, role in processes(self._running).items():
                if role and (now := usage(pid)) is not None:
                    self.series[f"{role} rss"].append(now.rss_bytes)
                    self.series[f"{role} descriptors"].append(now.descriptors)
                    self.series[f"{role} threads"].append(now.threads)
            for directory in self._running.data.iterdir():
                if directory.is_dir() and directory.name != "store":
                    self.series[f"{directory.name} bytes"].append(bytes_in(directory))


class Queries(threading.Thread):
    """Thread that sends one query after another."""

    def __init__(self, running: ReceiverProcess) -> None:
        super().__init__(name="queries", daemon=True)
        self.ending = threading.Event()
        self.answered = 0
        self.failed: list[str] = []
        self.retried: list[str] = []
        """Responses 503 that asked for a retry. They are allowed: the store may be busy for a moment."""
        self._running = running

    def run(self) -> None:
        while not self.ending.wait(QUERY_PAUSE_S):
            self.send(QUERIES[self.answered % len(QUERIES)])
            self.answered += 1

    def send(self, query: str) -> None:
        """Send a query, and again while a client should retry it."""
        base = str(self._running.state()["urls"]["api"])
        for attempt in range(ATTEMPTS_MAX):
            try:
                reply = reply_of(urllib.request.Request(f"{base}/api/v1/{query}"))
            except OSError as error:
                self.failed.append(f"{query}: {type(error).__name__}")
                return
            if reply.status == HTTPStatus.OK:
                return
            text = f"{query}: {reply.status} {reply.body.decode(errors='replace')}"
            if reply.status != HTTPStatus.SERVICE_UNAVAILABLE or not reply.retry_after:
                break
            self.retried.append(text)
            if attempt + 1 < ATTEMPTS_MAX and self.ending.wait(float(reply.retry_after)):
                return
        self.failed.append(text)


def bytes_in(directory: Path) -> int:
    """Return the size of the files in a directory; files may disappear meanwhile."""
    sizes = 0
    for path in directory.rglob("*"):
        try:
            sizes += path.stat().st_size
        except OSError:
            continue
    return sizes


def growth(series: Series) -> Iterator[str]:
    """Yield every resource whose median in the last third is above that of the second third."""
    for name, samples in series.items():
        before, after = thirds(samples)
        if after > before * GROWTH_RATIO_MAX + SLACK[name.split()[-1]]:
            yield f"{name} rose from {before:.0f} to {after:.0f}; expected a steady value"


def thirds(samples: list[int]) -> tuple[float, float]:
    """Return the medians of the second and of the last third."""
    third = max(1, len(samples) // 3)
    return median(samples[-2 * third : -third] or samples), median(samples[-third:])


def lines(series: Series) -> Iterator[str]:
    """Yield a line for each resource."""
    yield f"{'resource':<28}{'second third':>16}{'last third':>16}{'highest':>16}"
    for name, samples in sorted(series.items()):
        before, after = thirds(samples)
        yield f"{name:<28}{before:>16.0f}{after:>16.0f}{max(samples):>16.0f}"


class Steady:
    """Context that watches a receiver and queries it."""

    def __init__(self, running: ReceiverProcess) -> None:
        self.monitor, self.queries = SteadyMonitor(running), Queries(running)

    def start(self) -> None:
        """Start both threads, once the receiver answers."""
        self.monitor.start()
        self.queries.start()

    def stop(self) -> None:
        """Stop both threads."""
        for thread in (self.queries, self.monitor):
            thread.ending.set()
            thread.join()

    def violations(self) -> list[str]:
        """Return each resource that grew, and the queries that failed."""
        failed = self.queries.failed
        text = [f"{len(failed)} queries failed, such as {failed[0]}"] if failed else []
        return [*growth(self.monitor.series), *text]
