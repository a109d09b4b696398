"""Stop signal: an interruptible sleep for the writer's thread, with a deadline after the stop."""

from __future__ import annotations

import threading
from collections.abc import Callable

from receiver.writer.environment import Stopping

TRIES_AFTER_STOP = 1
"""Sleeps that return at once after a stop, for the segments sealed last or a final retry."""


class StopSignal:
    """A sleep that a stop interrupts."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._stop = threading.Event()
        self._deadline_s = 0.0
        self._tries_left = TRIES_AFTER_STOP

    def stop(self, grace_s: float) -> None:
        """Interrupt sleeping threads now and the others after `grace_s`."""
        self._deadline_s = self._now() + grace_s
        self._stop.set()

    def sleep(self, delay_s: float) -> None:
        """Sleep. Raises `Stopping` after a stop without tries left; a delay of 0 only checks the deadline."""
        if not self._stop.wait(delay_s):
            return
        if delay_s:
            self._tries_left -= 1
        if self._tries_left < 0 or self._now() > self._deadline_s:
            raise Stopping
