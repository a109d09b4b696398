"""What the journal may hold: a ceiling on its bytes, a floor under the disk's free space.

Several intakes and the writer share both, so they are measured again once a second; in between the own
bytes are added. All together may overshoot by what the others write in that second: `disk_free_min` has to
leave that much room.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from receiver.journal.names import epoch_of
from receiver.settings import MIB

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from receiver import settings
    from receiver.journal.files import Files

MEASURED_FOR_S = 1.0


class Ceiling:
    """Says why a record must wait. Asked by the event loop and by the thread that appends."""

    def __init__(self, root: Path, limits: settings.Journal, files: Files, now: Callable[[], float]) -> None:
        self._root = root
        self._limits = limits
        self._files = files
        self._now = now
        self._lock = threading.Lock()
        self._measured_at_s = -MEASURED_FOR_S
        self._held_bytes = 0
        self._free_bytes = 0

    def reason(self, more_bytes: int = 0) -> str | None:
        """Why so many more bytes cannot be taken now; none: they can."""
        with self._lock:
            try:
                self._measure()
            except OSError as trouble:
                return f"journal cannot be measured: {trouble.strerror}"
            if self._held_bytes + more_bytes > self._limits.bytes_max:
                return (
                    f"journal holds {_mib(self._held_bytes)}; the ceiling is {_mib(self._limits.bytes_max)}"
                )
            if self._free_bytes - more_bytes < self._limits.disk_free_min:
                return (
                    f"disk has {_mib(self._free_bytes)} free; the floor is {_mib(self._limits.disk_free_min)}"
                )
        return None

    def add(self, written_bytes: int) -> None:
        """Count what was just written, until the next look."""
        with self._lock:
            self._held_bytes += written_bytes
            self._free_bytes -= written_bytes

    def _measure(self) -> None:
        if self._now() - self._measured_at_s >= MEASURED_FOR_S:
            self._free_bytes = self._files.free_bytes(self._root)
            self._held_bytes = bytes_under(self._root, self._files)
            self._measured_at_s = self._now()


def bytes_under(root: Path, files: Files) -> int:
    """Bytes in all start directories. What vanishes meanwhile counts nothing."""
    total_bytes = 0
    for name in files.names(root):
        if epoch_of(name) is not None:
            total_bytes += _bytes_in(root / name, files)
    return total_bytes


def _bytes_in(directory: Path, files: Files) -> int:
    try:
        return sum(files.size_bytes(directory / name) or 0 for name in files.names(directory))
    except FileNotFoundError:
        return 0


def _mib(count: int) -> str:
    return f"{count / MIB:.0f} MiB"
