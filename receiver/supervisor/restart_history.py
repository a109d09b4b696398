"""How often a process ended lately without being told to: what ends again and again needs a human."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

WITHIN_S = 600.0
"""How long an end is remembered."""
TOLD_MIN = 3
"""So many ends are told: one is a kill, or an upgrade of something below."""


class RestartHistory:
    """Of one process and those that replaced it."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._at_s: deque[float] = deque()

    def note(self) -> None:
        """It ended."""
        self._at_s.append(self._now_s())

    @property
    def count(self) -> int:
        """How often, lately."""
        while self._at_s and self._now_s() - self._at_s[0] > WITHIN_S:
            self._at_s.popleft()
        return len(self._at_s)

    @property
    def reason(self) -> str:
        """What there is to say of it; empty: not often enough."""
        count = self.count
        return f"ended {count} times in the last {WITHIN_S / 60:.0f} minutes" if count >= TOLD_MIN else ""
