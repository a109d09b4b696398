"""What the journal may hold: a ceiling on its bytes, a floor under the disk's free space.

Several intakes and the writer share both, so they are measured again once a second; in between the own
bytes are added. All together may overshoot by what the others write in that second: `disk_free_min` has to
leave that much room, and some for the writer, which notes a decision before it makes room.
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

MEASURED_FOR_S = 1.0
FULL_MEASURED_FOR_S = 0.2
"""The same while there is no room: deliveries are held until there is."""

CUTS = "cuts"
"""Beside the journal: parts of segments that are too large for one INSERT. They wait like segments."""


class Ceiling:
    """Says why a record must wait. Asked by the event loop, and measured by the thread that appends."""

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
        """Measure, if the last look is old. Costs a listing of the journal: never on the event loop."""
        measured_for_s = MEASURED_FOR_S if self.reason() is None else FULL_MEASURED_FOR_S
        if self._now() - self._measured_at_s < measured_for_s:
            return
        try:
            free_bytes, held_bytes = self._files.free_bytes(self._root), self._disk_usage.bytes_total()
        except OSError as reason:
            self._error = f"journal cannot be measured: {reason.strerror}"
            return
        with self._lock:
            self._free_bytes, self._used_bytes = free_bytes, held_bytes
            self._measured_at_s = self._now()
            self._error = ""

    def reason(self, more_bytes: int = 0) -> str | None:
        """Why so many more bytes cannot be taken now; none: they can. By the last look."""
        with self._lock:
            if self._error:
                return self._error
            if self._used_bytes + more_bytes > self._limits.bytes_max:
                held, ceiling = size_text(self._used_bytes), size_text(self._limits.bytes_max)
                more = f" and {size_text(more_bytes)} more do not fit" if more_bytes else ""
                return f"journal holds {held}{more}; the ceiling is {ceiling}"
            if self._free_bytes - more_bytes < self._floor_bytes:
                free, floor = size_text(self._free_bytes), size_text(self._floor_bytes)
                more = f" and {size_text(more_bytes)} more are needed" if more_bytes else ""
                return f"disk has {free} free{more}; the floor is {floor}"
        return None

    def add(self, written_bytes: int) -> None:
        """Count what was just written, until the next look."""
        with self._lock:
            self._used_bytes += written_bytes
            self._free_bytes -= written_bytes


class DiskUsage:
    """Weighs all start directories, and those of parts: a long backlog costs the listing of its names.

    A sealed segment is looked at once: only a rewrite changes it, shortly before it goes.
    """

    def __init__(self, root: Path, files: Files) -> None:
        self._root = root
        self._files = files
        self._known: dict[Path, dict[str, int]] = {}

    def bytes_total(self) -> int:
        """Bytes of everything, open segments included. What vanishes meanwhile counts nothing."""
        starts = [self._root / name for name in self._files.names(self._root) if epoch_of(name) is not None]
        cuts = self._root.parent / CUTS
        parts = [cuts / name for name in self._names(cuts)]
        self._known = {directory: self._bytes_by_name(directory) for directory in [*starts, *parts]}
        return sum(sum(sizes.values()) for sizes in self._known.values())

    def _names(self, directory: Path) -> list[str]:
        try:
            return self._files.names(directory)
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
