"""Clock for tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """Clock that a test advances. Calling it returns the current time."""

    now_s: float = 1_000.0

    def __call__(self) -> float:
        return self.now_s
