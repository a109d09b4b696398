"""A log that is appended to and synced.

Keeps: when `append` returns, the entry outlives a power cut; when it raises, what was written of it is gone
before the next append succeeds. Never: a second try on a descriptor that failed.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from receiver.durable.files import DISK, Files, write_all, write_durably


class Extent(NamedTuple):
    """How far a numbered log is on the disk. A later one is greater."""

    number: int = 0
    bytes: int = 0


NO_EXTENT = Extent()
"""Of a log that nobody saw."""


class AppendedLog:
    """One file, which exists, and how much of it is good."""

    def __init__(self, path: Path, bytes_good: int, files: Files = DISK) -> None:
        self.bytes_good = bytes_good
        self._path = path
        self._files = files
        self._fd: int | None = None

    @property
    def is_there(self) -> bool:
        """Whether the log's name still names it: nothing that is appended to another file is ever read."""
        if self._fd is None:
            return self._files.size_bytes(self._path) is not None
        return self._files.is_at(self._fd, self._path)

    def append(self, content: bytes) -> None:
        """Put it behind what is there, on the disk."""
        fd = self._mended() if self._fd is None else self._fd
        try:
            write_all(self._files, fd, content, self.bytes_good)
            self._files.sync_data(fd)
        except OSError:
            self.close()
            raise
        self.bytes_good += len(content)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._files.close(fd)

    def _mended(self) -> int:
        """Open the log anew, without what a failed write or sync may have left at its end."""
        content = self._files.read(self._path)
        if len(content) != self.bytes_good:
            write_durably(self._path, content[: self.bytes_good], files=self._files)
        self._fd = self._files.open(self._path)
        return self._fd
