"""Restart history: counts the unexpected exits of a process in the last minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

WITHIN_S = 600.0
"""Time for which an exit is counted."""
REPORTED_MIN = 3
"""Minimum number of exits that is reported: a single exit may have a harmless cause."""


class RestartHistory:
    """Recent exits of one process and its replacements."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._at_s: deque[float] = deque()

    def note(self) -> None:
        self._at_s.append(self._now_s())

    @property
    def count(self) -> int:
        """Return the number of recent exits."""
        while self._at_s and self._now_s() - self._at_s[0] > WITHIN_S:
            self._at_s.popleft()
        return len(self._at_s)

    @property
    def reason(self) -> str:
        """Return a description if there were `REPORTED_MIN` exits, otherwise an empty string."""
        count = self.count
        return (
            f"exited {count} times in the last {WITHIN_S / 60:.0f} minutes" if count >= REPORTED_MIN else ""
        )
