"""Trusted wall clock: the system's wall clock while it agrees with the clock that cannot be set.

The store process decides which time to trust after the clock was set (`receiver/engine/clock_check.py`) and
writes it to DATA/clock.json; intakes follow it. No span is stamped with a time at which it would be deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

NOTE_NAME = "clock.json"
STEP_S_MIN = 60.0
"""Less is how clocks are."""
READ_EVERY_S = 1.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Belief(msgspec.Struct, frozen=True, kw_only=True):
    """What was believed last."""

    boot: str
    """Of which start of the machine this is told."""
    began_s: float
    """Wall time at which, by its own clock, the machine was started."""
    wall_s: float
    """When this was noted."""


def running_s() -> float:
    """How long the machine has been up, sleep included; nobody can set this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Which start of the machine this is."""
    return BOOT_ID.read_text().strip()


@dataclass(frozen=True)
class Times:
    """Where time comes from; a test gives others."""

    wall_s: Callable[[], float] = time.time
    running_s: Callable[[], float] = running_s
    boot: str = field(default_factory=boot_id)

    @property
    def began_s(self) -> float:
        """When the machine was started, if the wall clock is right."""
        return self.wall_s() - self.running_s()


def noted(path: Path) -> Belief | None:
    """Read what was believed last."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Belief)
    except (OSError, msgspec.DecodeError):
        return None


class Now:
    """The time that is believed."""

    def __init__(self, path: Path, times: Times | None = None) -> None:
        self._path = path
        self._times = times or Times()
        self._began_s = self._times.began_s
        self._read_at_s = self._times.running_s()
        self._follow()

    def ns(self) -> int:
        """Nanoseconds since 1970."""
        wall_s, running_s = self._times.wall_s(), self._times.running_s()
        if self._is_off(wall_s, running_s) and running_s - self._read_at_s >= READ_EVERY_S:
            self._read_at_s = running_s
            self._follow()
        now_s = self._began_s + running_s if self._is_off(wall_s, running_s) else wall_s
        return int(now_s * 1e9)

    def _is_off(self, wall_s: float, running_s: float) -> bool:
        return abs(wall_s - running_s - self._began_s) >= STEP_S_MIN

    def _follow(self) -> None:
        belief = noted(self._path)
        if belief is not None and belief.boot == self._times.boot:
            self._began_s = belief.began_s
