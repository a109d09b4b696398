"""How long to wait between two tries: a generator without a clock, so that it is tested as a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator

FIRST_S = 0.1
CEILING_S = 15.0
SLOWER_FIRST_S = 2.0
SLOWER_CEILING_S = 60.0


def backoff_s(jitter: Callable[[], float], *, first_s: float, ceiling_s: float) -> Iterator[float]:
    """Double from `first_s` to `ceiling_s`, for ever; `jitter` (0 to 1) takes off up to half of each."""
    delay_s = first_s
    while True:
        yield delay_s * (1 - jitter() / 2)
        delay_s = min(delay_s * 2, ceiling_s)


class Delays:
    """The two schedules of one segment."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self.restart()

    def restart(self) -> None:
        """Begin with the shortest delays again."""
        jitter = self._jitter
        self.fast: Iterator[float] = backoff_s(jitter, first_s=FIRST_S, ceiling_s=CEILING_S)
        self.slow: Iterator[float] = backoff_s(jitter, first_s=SLOWER_FIRST_S, ceiling_s=SLOWER_CEILING_S)
