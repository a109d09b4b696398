"""Trusted wall clock: the system's wall clock, as long as it agrees with the uptime, which cannot be set.

The store process decides which time to trust after the clock was set (`receiver/engine/expiry.py`) and
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
"""Difference from which on a change counts as a step. Drift and NTP corrections are smaller."""
READ_EVERY_S = 1.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Belief(msgspec.Struct, frozen=True, kw_only=True):
    """The last trusted relation between wall clock and uptime, as written to `clock.json`."""

    boot: str
    """Boot id of the machine start that this describes."""
    began_s: float
    """Trusted wall-clock time of the machine's start."""
    wall_s: float
    """Wall-clock time at which this was written."""


def running_s() -> float:
    """Return the machine's uptime, sleep included. Unlike the wall clock, it cannot be set."""
    # Not CLOCK_MONOTONIC, which stops while the machine sleeps.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    return BOOT_ID.read_text().strip()


@dataclass(frozen=True)
class Times:
    """Sources of time; tests replace them."""

    wall_s: Callable[[], float] = time.time
    running_s: Callable[[], float] = running_s
    boot: str = field(default_factory=boot_id)

    @property
    def began_s(self) -> float:
        """Wall-clock time of the machine's start, according to the current wall clock."""
        return self.wall_s() - self.running_s()


def read_belief(path: Path) -> Belief | None:
    """Read the last trusted relation of the clocks; `None` if there is none or it cannot be read."""
    try:
        # Anything but a file is never written here; a pipe would block the process.
        return msgspec.json.decode(path.read_bytes(), type=Belief) if path.is_file() else None
    except (OSError, msgspec.DecodeError):
        return None


class Now:
    def __init__(self, path: Path, times: Times | None = None) -> None:
        self._path = path
        self._times = times or Times()
        self._began_s = self._times.began_s
        self._read_at_s = self._times.running_s()
        self._follow()

    def ns(self) -> int:
        """Return the trusted time in nanoseconds since 1970."""
        wall_s, running_s = self._times.wall_s(), self._times.running_s()
        # The file is read only while the clocks disagree, because every delivery calls this.
        if self._clocks_disagree(wall_s, running_s) and running_s - self._read_at_s >= READ_EVERY_S:
            self._read_at_s = running_s
            self._follow()
        # Compared again, because the file may have confirmed the new wall-clock time.
        now_s = self._began_s + running_s if self._clocks_disagree(wall_s, running_s) else wall_s
        return int(now_s * 1e9)

    def _clocks_disagree(self, wall_s: float, running_s: float) -> bool:
        return abs(wall_s - running_s - self._began_s) >= STEP_S_MIN

    def _follow(self) -> None:
        belief = read_belief(self._path)
        # The uptime restarts with each boot, so a start time of another boot means nothing.
        if belief is not None and belief.boot == self._times.boot:
            self._began_s = belief.began_s
