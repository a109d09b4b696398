"""Backoff between attempts: a generator that reads no clock, so that tests compare it with a list."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator


def backoff_s(
    first_s: float,
    ceiling_s: float,
    *,
    jitter: float = 0.0,
    random_share: Callable[[], float] = random.random,
) -> Iterator[float]:
    """Yield delays that double from `first_s` to `ceiling_s`, without end.

    `jitter`: maximum fraction that is subtracted from a delay. `random_share`: drawn share of it, 0 to 1.
    """
    delay_s = min(first_s, ceiling_s)
    while True:
        # Subtracted, so that no delay exceeds the ceiling.
        yield delay_s * (1 - jitter * random_share())
        delay_s = min(delay_s * 2, ceiling_s)
