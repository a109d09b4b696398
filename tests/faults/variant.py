"""How much of a fault case runs: a sample in `make test-faults`, everything in `make faults`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TypeVar

IS_LONG = bool(os.environ.get("TRACE_DRAIN_TEST_FAULTS"))
T = TypeVar("T")


def sampled(items: Sequence[T], count: int) -> list[T]:
    """Return all items in the long variant, else `count` of them, including the first and the last."""
    if IS_LONG or len(items) <= count:
        return list(items)
    last = len(items) - 1
    return [items[round(index * last / (count - 1))] for index in range(count)]


def note(text: str) -> None:
    """Print a measured value: pytest shows it with -s, or if the test fails."""
    sys.stdout.write(text + "\n")
