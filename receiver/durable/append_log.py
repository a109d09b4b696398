"""Append-only log file, synced after each append.

Invariant: when `append` returns, the entry survives a power cut. When it raises, the bytes it wrote are
removed before the next append succeeds. Never: reuses a descriptor after a failed write or sync.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from receiver.durable.files import DISK, Files, write_all, write_durably


class Extent(NamedTuple):
    """Length of a numbered log on the disk. A later state compares greater."""

    number: int = 0
    bytes: int = 0


NO_EXTENT = Extent()
"""Extent of a log that was never read or written."""


class AppendLog:
    """An existing log file and the length of its valid content."""

    def __init__(self, path: Path, bytes_good: int, files: Files = DISK) -> None:
        self.bytes_good = bytes_good
        self._path = path
        self._files = files
        self._fd: int | None = None

    @property
    def is_in_place(self) -> bool:
        """Whether the path still names the open file. Entries appended to a deleted file would be lost."""
        if self._fd is None:
            return self._files.size_bytes(self._path) is not None
        return self._files.is_at(self._fd, self._path)

    def append(self, content: bytes) -> None:
        """Append `content` after the valid content and sync it."""
        fd = self._reopen() if self._fd is None else self._fd
        try:
            write_all(self._files, fd, content, self.bytes_good)
            self._files.sync_data(fd)
        except OSError:
            self.close()
            raise
        self.bytes_good += len(content)

    def close(self) -> None:
        """Close the file; the next append opens it again."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._files.close(fd)

    def _reopen(self) -> int:
        """Open the log again, after removing the bytes that a failed write or sync may have left."""
        content = self._files.read(self._path)
        if len(content) != self.bytes_good:
            write_durably(self._path, content[: self.bytes_good], files=self._files)
        self._fd = self._files.open(self._path)
        return self._fd
