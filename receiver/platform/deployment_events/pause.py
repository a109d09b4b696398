"""Pause of all calls to the platform while the configuration of the integration is disabled there.

Every call fails until an owner of the team acts, so one call at a time finds out, at growing intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from receiver.backoff import backoff_s

FIRST_S: Final = 60.0
LONGEST_S: Final = 3_600.0


class Pause:
    """Whether calls may be sent."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lengths_s = backoff_s(FIRST_S, LONGEST_S)
        self._length_s = 0.0
        self._until_s = 0.0
        self._is_trying = False
        self.reason = ""
        """Why calls are paused; empty if they are not."""

    def may_call(self) -> bool:
        """Return whether a call may be sent now. During a pause this claims the next try."""
        if not self.reason:
            return True
        if self._clock() < self._until_s:
            return False
        # Before the answer: the calls of other deployments have to wait for it.
        self._until_s = self._clock() + self._length_s
        self._is_trying = True
        return True

    def begin(self, reason: str) -> None:
        """Pause, for twice as long as the last time."""
        # Calls that were sent before the first of them failed.
        if self.reason and not self._is_trying:
            return
        self._is_trying = False
        self._length_s = next(self._lengths_s)
        self._until_s = self._clock() + self._length_s
        self.reason = reason

    def end(self) -> None:
        """End the pause: a call succeeded."""
        self._lengths_s, self.reason = backoff_s(FIRST_S, LONGEST_S), ""
