"""Disk probe: repeats a small write and a sync during the load, independently of the receiver.

A slow answer may be caused by the receiver or by the disk. The probe distinguishes the two: it writes and
syncs as the journal does, on the same file system, without the receiver's code.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

PERIOD_S = 0.05
WRITE_BYTES = 64 * 1024
"""Approximate size of the record of one delivery of 520 spans."""
FILE_BYTES_MAX = 32 << 20
"""Size at which the file is truncated, about that of a segment."""


class SyncLatency(NamedTuple):
    """Latency of a write with its sync, in milliseconds."""

    p50_ms: float | None = None
    p99_ms: float | None = None


class Probe:
    """Thread that writes and syncs until it is stopped."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "disk-probe"
        self._latencies_ms: list[float] = []
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the probe until the block ends."""
        thread = threading.Thread(target=self._run, name="disk-probe")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def latency(self) -> SyncLatency:
        """Return the latencies measured so far."""
        if len(self._latencies_ms) < 2:  # noqa: PLR2004 - fewer have no quantiles
            return SyncLatency()
        hundredths = statistics.quantiles(self._latencies_ms, n=100, method="inclusive")
        return SyncLatency(hundredths[49], hundredths[98])

    def _run(self) -> None:
        """Write until stopped. Ignores a full disk, because the receiver reports it."""
        content = os.urandom(WRITE_BYTES)
        with suppress(OSError), self._path.open("wb", buffering=0) as file:
            while not self._stop.wait(PERIOD_S):
                if file.tell() >= FILE_BYTES_MAX:
                    file.seek(0)
                    file.truncate()
                began_s = time.perf_counter()
                file.write(content)
                os.fdatasync(file.fileno())
                self._latencies_ms.append((time.perf_counter() - began_s) * 1e3)
        self._path.unlink(missing_ok=True)
