"""How much of a fault case runs: a sample in `make test`, everything in `make faults`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TypeVar

IS_LONG = bool(os.environ.get("TRACE_DRAIN_TEST_FAULTS"))
T = TypeVar("T")


def sampled(everything: Sequence[T], count: int) -> list[T]:
    """Give all of it in the long variant, else so many, the first and the last among them."""
    if IS_LONG or len(everything) <= count:
        return list(everything)
    last = len(everything) - 1
    return [everything[round(place * last / (count - 1))] for place in range(count)]


def note(text: str) -> None:
    """Say what was measured: pytest shows it with -s, or when the case fails."""
    sys.stdout.write(text + "\n")
