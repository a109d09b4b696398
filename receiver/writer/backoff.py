"""Retry delays: an infinite generator that never reads a clock, so that tests compare it with a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator

FIRST_S = 0.1
"""First delay after a brief failure, such as a lost connection."""
CEILING_S = 15.0
"""Longest delay after a brief failure: limits how late the writer notices that the store is back."""
SLOWER_FIRST_S = 2.0
"""First delay for an overloaded store, which quick retries would slow down further."""
SLOWER_CEILING_S = 60.0


def backoff_s(jitter: Callable[[], float], *, first_s: float, ceiling_s: float) -> Iterator[float]:
    """Yield delays that double from `first_s` to `ceiling_s`. `jitter` (0 to 1) subtracts up to half."""
    delay_s = first_s
    while True:
        # Subtracted, so that no delay exceeds the ceiling.
        yield delay_s * (1 - jitter() / 2)
        delay_s = min(delay_s * 2, ceiling_s)


class Delays:
    """The two retry schedules of a segment: `fast` for brief failures, `slow` for an overloaded store."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self.restart()

    def restart(self) -> None:
        """Reset both schedules to their shortest delay."""
        jitter = self._jitter
        self.fast: Iterator[float] = backoff_s(jitter, first_s=FIRST_S, ceiling_s=CEILING_S)
        self.slow: Iterator[float] = backoff_s(jitter, first_s=SLOWER_FIRST_S, ceiling_s=SLOWER_CEILING_S)
