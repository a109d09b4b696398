"""Clock of the emulated platform: runs in real time, or only when a test advances it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

STARTED_AT_S = 1_790_000_000
"""Time of a manual clock at the start, so that each run has the same times."""


class Signal:
    """Condition that wakes up all waiting tasks at each change."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Wake up the waiting tasks."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return after the next change, or after the timeout."""
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return


class Clock:
    def __init__(
        self, started_at_s: float, *, is_manual: bool, running_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.is_manual = is_manual
        self._running_s = running_s
        self._offset_s = started_at_s - (0 if is_manual else running_s())
        self._moved = Signal()

    def now_s(self) -> float:
        return self._offset_s + (0 if self.is_manual else self._running_s())

    def now_ms(self) -> int:
        return int(self.now_s() * 1_000)

    def advance(self, seconds: float) -> None:
        """Move the clock forward, and wake up the tasks that are due."""
        self._offset_s += seconds
        self._moved.notify()

    async def sleep(self, seconds: float) -> None:
        """Wait until this time has passed on the clock."""
        due_s = self.now_s() + seconds
        while (left_s := due_s - self.now_s()) > 0:
            await self._moved.wait(None if self.is_manual else left_s)
