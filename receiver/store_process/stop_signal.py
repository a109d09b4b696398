"""Stop signal: an interruptible sleep for the writer's thread, with a deadline after the stop."""

from __future__ import annotations

import threading
from collections.abc import Callable

from receiver.writer.environment import Stopping

TRIES_AFTER_STOP = 1
"""Sleeps that return at once after a stop instead of raising, for the last segments or a final retry."""


class StopSignal:
    """Interruptible sleep of the writer's thread."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._stop = threading.Event()
        self._deadline_s = 0.0
        self._tries_left = TRIES_AFTER_STOP

    def stop(self, grace_s: float) -> None:
        """Interrupt every sleep. After `grace_s`, every `sleep` raises `Stopping`."""
        # Before the event: the writer reads the deadline as soon as the event wakes it.
        self._deadline_s = self._now() + grace_s
        self._stop.set()

    def sleep(self, delay_s: float) -> None:
        """Sleep. After a stop, raises `Stopping` if no try or time is left. A delay of 0 checks the time."""
        if not self._stop.wait(delay_s):
            return
        # A check without a delay is no retry, so it uses up no try.
        if delay_s:
            self._tries_left -= 1
        if self._tries_left < 0 or self._now() > self._deadline_s:
            raise Stopping
