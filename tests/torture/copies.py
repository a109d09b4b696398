"""Copies: which acknowledged deliveries are sent again, and when. A sender that never saw the 200 does that.

Keeps: whether a delivery comes again, and how, is a function of the seed and its number.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Literal

When = Literal["seconds later", "minutes later", "after a restart", "both at once", "never"]
SHARES: dict[When, float] = {
    "seconds later": 0.05,
    "minutes later": 0.02,
    "after a restart": 0.04,
    "both at once": 0.03,
    "never": 0.86,
}
SECONDS = (0.0, 5.0)
MINUTES_S = (60.0, 600.0)


def when_again(habits: random.Random) -> When:
    """How the delivery with these habits comes again."""
    return habits.choices(list(SHARES), list(SHARES.values()))[0]


class Copies:
    """What one sender has to send again."""

    def __init__(self, starts: Callable[[], int]) -> None:
        """`starts`: how often the receiver was started anew so far."""
        self._starts = starts
        self._waiting: list[tuple[When, Callable[[], bool], int]] = []

    def note(self, number: int, when: When, habits: random.Random) -> None:
        """A delivery was acknowledged and is to come again."""
        began_s, began_starts = time.monotonic(), self._starts()
        match when:
            case "seconds later" | "minutes later":
                delay_s = habits.uniform(*(SECONDS if when == "seconds later" else MINUTES_S))
                self._waiting.append((when, lambda: time.monotonic() > began_s + delay_s, number))
            case "after a restart":
                self._waiting.append((when, lambda: self._starts() > began_starts, number))

    def due(self, *, is_end: bool) -> Iterator[tuple[When, int]]:
        """Take out those whose time has come; at the end all."""
        waiting, self._waiting = self._waiting, []
        for when, is_due, number in waiting:
            if is_due():
                yield when, number
            elif is_end:
                yield "seconds later", number
            else:
                self._waiting.append((when, is_due, number))
