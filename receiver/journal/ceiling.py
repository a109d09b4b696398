"""Size limits of the journal: a maximum for its bytes and a minimum for the disk's free space.

Several intakes and the writer share both limits. Each process measures once a second and adds its own writes
in between, so together they may exceed a limit by the bytes that the other processes write in that second.
`disk_free_min` must cover these bytes, and those that the writer writes before it can delete a segment.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from receiver.journal.names import SEALED, epoch_of
from receiver.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from receiver import settings
    from receiver.durable.files import Files

MEASURE_INTERVAL_S = 1.0
FULL_MEASURE_INTERVAL_S = 0.2
"""Interval while the journal is full, when held deliveries wait for the next measurement."""


class Ceiling:
    """Size limits of one journal. The appending thread measures; the event loop reads the result."""

    def __init__(self, root: Path, limits: settings.Journal, files: Files, now: Callable[[], float]) -> None:
        self._root = root
        self._limits = limits
        self._files = files
        self._now = now
        self._floor_bytes = limits.disk_free_min
        self._disk_usage = DiskUsage(root, files)
        self._lock = threading.Lock()
        self._measured_at_s = -math.inf
        self._used_bytes = 0
        self._free_bytes = 0
        self._error = ""

    def measure(self) -> None:
        """Measure again if the last measurement is old. Never call it on the event loop: it lists files."""
        interval_s = MEASURE_INTERVAL_S if self.reason() is None else FULL_MEASURE_INTERVAL_S
        if self._now() - self._measured_at_s < interval_s:
            return
        try:
            free_bytes, held_bytes = self._files.free_bytes(self._root), self._disk_usage.bytes_total()
        except OSError as error:
            # `_measured_at_s` is unchanged, so that the next call measures again.
            self._error = f"journal size cannot be measured: {error.strerror}"
            return
        # The disk was read before, because the event loop may wait for this lock.
        with self._lock:
            self._free_bytes, self._used_bytes = free_bytes, held_bytes
            self._measured_at_s = self._now()
            self._error = ""

    def reason(self, more_bytes: int = 0) -> str | None:
        """Return why this many more bytes do not fit, or `None`, by the last measurement."""
        with self._lock:
            if self._error:
                return self._error
            if self._used_bytes + more_bytes > self._limits.bytes_max:
                used, ceiling = size_text(self._used_bytes), size_text(self._limits.bytes_max)
                more = f" and {size_text(more_bytes)} more do not fit" if more_bytes else ""
                return f"journal holds {used}{more}; the ceiling is {ceiling}"
            if self._free_bytes - more_bytes < self._floor_bytes:
                free, floor = size_text(self._free_bytes), size_text(self._floor_bytes)
                more = f" and {size_text(more_bytes)} more are needed" if more_bytes else ""
                return f"disk has {free} free{more}; the floor is {floor}"
        return None

    def add(self, written_bytes: int) -> None:
        """Count bytes written since the last measurement."""
        with self._lock:
            self._used_bytes += written_bytes
            self._free_bytes -= written_bytes


class DiskUsage:
    """Sizes of all epoch directories.

    Sizes of sealed segments are cached, because only a rewrite shortly before deletion changes them.
    Measuring a long backlog therefore costs only a listing of file names.
    """

    def __init__(self, root: Path, files: Files) -> None:
        self._root = root
        self._files = files
        self._known: dict[Path, dict[str, int]] = {}

    def bytes_total(self) -> int:
        """Return the bytes of all segments, including open segments. Deleted files count as 0."""
        starts = [self._root / name for name in self._files.names(self._root) if epoch_of(name) is not None]
        # Replaced as a whole, so that deleted directories do not accumulate.
        self._known = {directory: self._bytes_by_name(directory) for directory in starts}
        return sum(sum(sizes.values()) for sizes in self._known.values())

    def _names(self, directory: Path) -> list[str]:
        try:
            return self._files.names(directory)
        # Other processes delete an epoch directory as soon as it is empty.
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _bytes_by_name(self, directory: Path) -> dict[str, int]:
        known = self._known.get(directory, {})
        return {
            name: known[name]
            if name in known and name.endswith(SEALED)
            else self._files.size_bytes(directory / name) or 0
            for name in self._names(directory)
        }
