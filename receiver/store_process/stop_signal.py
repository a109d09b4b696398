"""How the writer's thread waits, and how it is told that its time is up."""

from __future__ import annotations

import threading
from collections.abc import Callable

from receiver.writer.environment import Stopping

LAST_TRIES = 1
"""Waits that end at once after a stop: for what was sealed last, or one more try of what failed."""


class StopSignal:
    """A sleep that a stop cuts short."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._stop = threading.Event()
        self._deadline_s = 0.0
        self._tries_left = LAST_TRIES

    def stop(self, grace_s: float) -> None:
        """End whoever waits, and whoever still works in `grace_s`."""
        self._deadline_s = self._now() + grace_s
        self._stop.set()

    def sleep(self, delay_s: float) -> None:
        """Wait. Raises `Stopping` when there is nothing left to wait for; 0 only asks for the time."""
        if not self._stop.wait(delay_s):
            return
        if delay_s:
            self._tries_left -= 1
        if self._tries_left < 0 or self._now() > self._deadline_s:
            raise Stopping
