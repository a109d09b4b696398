"""The disk itself, beside the receiver: a small write and a sync, again and again, by somebody else.

A slow answer has two possible reasons, the receiver or the disk under it. This tells them apart: it does what
the journal does, on the same file system, and nothing of the receiver has a part in it.
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
"""About what the receiver appends for one delivery of 520 spans."""
FILE_BYTES_MAX = 32 << 20
"""Then the file begins anew, as a segment does."""


class Synced(NamedTuple):
    """How long a write and its sync took, in milliseconds."""

    p50_ms: float | None = None
    p99_ms: float | None = None


class Probe:
    """Writes until it is told to stop."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "disk-probe"
        self._took_ms: list[float] = []
        self._enough = threading.Event()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Probe while something else goes on."""
        thread = threading.Thread(target=self._run, name="disk-probe")
        thread.start()
        try:
            yield
        finally:
            self._enough.set()
            thread.join()

    def synced(self) -> Synced:
        """What was seen."""
        if len(self._took_ms) < 2:  # noqa: PLR2004 - fewer have no quantiles
            return Synced()
        hundredths = statistics.quantiles(self._took_ms, n=100, method="inclusive")
        return Synced(hundredths[49], hundredths[98])

    def _run(self) -> None:
        """What cannot be written is not measured: a full disk is the receiver's to tell."""
        content = os.urandom(WRITE_BYTES)
        with suppress(OSError), self._path.open("wb", buffering=0) as file:
            while not self._enough.wait(PERIOD_S):
                if file.tell() >= FILE_BYTES_MAX:
                    file.seek(0)
                    file.truncate()
                began_s = time.perf_counter()
                file.write(content)
                os.fdatasync(file.fileno())
                self._took_ms.append((time.perf_counter() - began_s) * 1e3)
        self._path.unlink(missing_ok=True)
