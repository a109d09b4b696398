"""Copies: which acknowledged deliveries are sent again, and when, as a sender does that missed the 200.

Invariant: whether and how a delivery is sent again is a function of the seed and its number.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Literal

When = Literal["seconds later", "minutes later", "after a restart", "at the same time", "never"]
SHARES: dict[When, float] = {
    "seconds later": 0.05,
    "minutes later": 0.02,
    "after a restart": 0.04,
    "at the same time": 0.03,
    "never": 0.86,
}
SECONDS_S = (0.0, 5.0)
MINUTES_S = (60.0, 600.0)


def resend_time(habits: random.Random) -> When:
    """Return when the delivery is sent again."""
    return habits.choices(list(SHARES), list(SHARES.values()))[0]


class Copies:
    """Deliveries that one sender has to send again."""

    def __init__(self, starts: Callable[[], int]) -> None:
        """`starts`: returns how often the receiver was started so far."""
        self._starts = starts
        self._waiting: list[tuple[When, Callable[[], bool], int]] = []

    def note(self, number: int, when: When, habits: random.Random) -> None:
        """Schedule an acknowledged delivery to be sent again."""
        began_s, began_starts = time.monotonic(), self._starts()
        match when:
            case "seconds later" | "minutes later":
                delay_s = habits.uniform(*(SECONDS_S if when == "seconds later" else MINUTES_S))
                self._waiting.append((when, lambda: time.monotonic() > began_s + delay_s, number))
            case "after a restart":
                self._waiting.append((when, lambda: self._starts() > began_starts, number))

    def due(self, *, is_end: bool) -> Iterator[tuple[When, int]]:
        """Remove and return the deliveries that are due; at the end of the run all of them."""
        waiting, self._waiting = self._waiting, []
        for when, is_due, number in waiting:
            if is_due():
                yield when, number
            elif is_end:
                yield "seconds later", number
            else:
                self._waiting.append((when, is_due, number))
