"""Spool: the part of a response that the client has not read yet, some in memory and the rest on disk.

The store must not wait for a client: a waiting statement occupies memory and a thread of the engine and may
exceed its time limit. Therefore the statement runs at its own pace, and the client reads from the spool.

Invariant: unread bytes in memory and on disk are bounded. Without disk space, the statement waits for
    the client, and fails if the client reads nothing for `STALL_S`.
Never: creates a file with a name, so a crash leaves no files.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from receiver.errors import DiskTrouble, Unavailable

MEMORY_BYTES_MAX = 512 * 1024
"""Maximum size of the part of a response in memory."""
FILE_BYTES_MAX = 32 << 20
"""Size at which the next file is started. A file that was read completely frees its disk space."""
STALL_S = 10.0
"""Maximum time that a statement waits for the next read of its client."""


class ClientTooSlow(Unavailable):
    """The response does not fit on the disk, and the client does not read it."""


class SpoolSpace:
    """Disk space that all responses share."""

    def __init__(self, directory: Path, bytes_max: int, disk_free_min: Callable[[], int]) -> None:
        """`disk_free_min`: free disk space that the spool must leave for the journal."""
        self.directory = directory
        self._bytes_max = bytes_max
        self._disk_free_min = disk_free_min
        self._lock = threading.Lock()
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Return the reserved disk space: the size to which all files together may grow."""
        return self._used_bytes

    def reserve_file(self) -> bool:
        """Reserve the disk space of a file. Return False if the space is not sufficient."""
        # The size of a whole file counts, because a file may grow to it without another check.
        disk = os.statvfs(self.directory)
        # Outside the lock, because the call may wait for the disk; the result is out of date at once in any
        # case.
        free_bytes = disk.f_bavail * disk.f_frsize - FILE_BYTES_MAX
        if free_bytes < self._disk_free_min():
            return False
        with self._lock:
            if self._used_bytes + FILE_BYTES_MAX > self._bytes_max:
                return False
            self._used_bytes += FILE_BYTES_MAX
            return True

    def release_file(self) -> None:
        """Release the space of a file."""
        with self._lock:
            self._used_bytes -= FILE_BYTES_MAX


class _File:
    """An unnamed file: written to its end, then read to its end."""

    def __init__(self, space: SpoolSpace) -> None:
        self._space = space
        self._file = tempfile.TemporaryFile(dir=space.directory)  # noqa: SIM115 - closed when it was read
        self.size_bytes = 0
        self.unread_count = 0

    def append(self, piece: bytes) -> int:
        """Write a piece; return its offset."""
        offset, left = self.size_bytes, memoryview(piece)
        self.size_bytes += len(piece)
        self.unread_count += 1
        # `pwrite` may write less than requested.
        while left:
            left = left[os.pwrite(self._file.fileno(), left, self.size_bytes - len(left)) :]
        return offset

    def read(self, offset: int, count_bytes: int) -> bytes:
        self.unread_count -= 1
        # With an offset, like `pwrite`: the writing and the reading thread share the descriptor.
        return os.pread(self._file.fileno(), count_bytes, offset)

    def close(self) -> None:
        """Close the file, which frees its disk space."""
        # The file has no name, so closing the descriptor deletes it; only then does its space count as free.
        self._file.close()
        self._space.release_file()


@dataclass(frozen=True, slots=True)
class _Extent:
    """Position of a piece on disk."""

    file: _File
    offset: int
    size_bytes: int


class Spool:
    """Unread pieces of a response. One thread appends pieces, another thread takes them."""

    def __init__(self, space: SpoolSpace) -> None:
        self._space = space
        self._changed = threading.Condition()
        self._pieces: deque[bytes | _Extent] = deque()
        self._memory_bytes = 0
        self._files: list[_File] = []
        self._taken_count = 0
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Discard unread pieces and make a concurrent `append` return False."""
        with self._changed:
            self._is_closed = True
            self._pieces.clear()
            # The pieces may be many megabytes that are never read; free the disk space at once.
            for file in self._files:
                file.close()
            self._files.clear()
            self._changed.notify_all()

    def append(self, piece: bytes) -> bool:
        """Add a piece. Return False if the reader has gone. Raises `ClientTooSlow`."""
        with self._changed:
            while not self._is_closed:
                # An empty spool accepts a piece of any size, because no read could make more space for it.
                if self._memory_bytes + len(piece) <= MEMORY_BYTES_MAX or not self._pieces:
                    self._pieces.append(piece)
                    self._memory_bytes += len(piece)
                    return True
                if self._has_room_on_disk(len(piece)):
                    self._pieces.append(self._write_to_file(piece))
                    return True
                self._wait_for_reader()
            return False

    def take(self) -> bytes | None:
        """Remove and return the oldest piece; `None` if there is none yet. May read the disk."""
        with self._changed:
            if not self._pieces:
                return None
            piece = self._pieces.popleft()
            self._taken_count += 1
            self._changed.notify_all()
            if isinstance(piece, bytes):
                self._memory_bytes -= len(piece)
                return piece
            content = piece.file.read(piece.offset, piece.size_bytes)
            # Also the newest file: the next piece that needs the disk reserves a new file.
            if not piece.file.unread_count:
                self._files.remove(piece.file)
                piece.file.close()
            return content

    def _has_room_on_disk(self, count_bytes: int) -> bool:
        """Return whether the newest file or a new file has room for this many bytes."""
        if self._files and self._files[-1].size_bytes + count_bytes <= FILE_BYTES_MAX:
            return True
        # A piece larger than a file waits for the spool to be empty, which accepts any size.
        if count_bytes > FILE_BYTES_MAX or not self._space.reserve_file():
            return False
        try:
            self._files.append(_File(self._space))
        except OSError as error:
            self._space.release_file()
            raise DiskTrouble(f"the answer cannot be buffered on disk: {error.strerror}") from error
        return True

    def _write_to_file(self, piece: bytes) -> _Extent:
        file = self._files[-1]
        try:
            return _Extent(file, file.append(piece), len(piece))
        except OSError as error:
            raise DiskTrouble(f"the answer cannot be buffered on disk: {error.strerror}") from error

    def _wait_for_reader(self) -> None:
        before = self._taken_count
        if not self._changed.wait_for(lambda: self._is_closed or self._taken_count > before, STALL_S):
            raise ClientTooSlow(
                f"the answer exceeds the disk space for answers, and its client read nothing for "
                f"{STALL_S:.0f} s; expected a faster client, or a narrower query"
            )
