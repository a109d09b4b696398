"""Append-only log file, synced after each append, and the framing of its entries.

    entry:   magic, 4 bytes │ body_bytes u32 │ crc32 of the body u32 │ body

A torn tail is the normal result of a crash. An unreadable entry that is followed by another entry is damage:
it is reported and skipped.

Invariant: when `append` returns, the entry survives a power failure. When it raises, the bytes it wrote are
removed before the next append succeeds. Never: reuses a descriptor after a failed write or sync.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec

from receiver.durable.files import DISK, Files, write_all, write_durably

Entry = TypeVar("Entry")

_HEAD = struct.Struct("<4sII")


class Log(NamedTuple, Generic[Entry]):
    """Result of reading a log."""

    entries: list[Entry]
    good: bytes
    """The bytes of the readable entries, without anything else."""
    is_damaged: bool
    """Whether there are unreadable bytes before or between the entries."""


def framed(magic: bytes, bodies: Iterable[bytes]) -> bytes:
    """Return the frames of these bodies, for appending to a log."""
    return b"".join(_HEAD.pack(magic, len(body), zlib.crc32(body)) + body for body in bodies)


def unframed(magic: bytes, content: bytes, decode: Callable[[bytes], Entry]) -> Log[Entry]:
    """Read a log. A torn tail is omitted silently; damage before it sets `is_damaged`.

    `decode`: method of a msgspec decoder, which raises `DecodeError`.
    """
    entries: list[Entry] = []
    good: list[bytes] = []
    at, is_damaged, is_after_damage = 0, False, False
    while at >= 0:
        body, end = _body_at(magic, content, at)
        try:
            entry = decode(body)
        except msgspec.DecodeError:
            # Damage only if another entry follows; otherwise this is a torn tail.
            is_after_damage = True
            # Searched byte by byte, because the length field of an unreadable entry cannot be trusted.
            at = content.find(magic, at + 1)
            continue
        is_damaged = is_damaged or is_after_damage
        entries.append(entry)
        good.append(content[at:end])
        at = end
    return Log(entries, b"".join(good), is_damaged)


def _body_at(magic: bytes, content: bytes, at: int) -> tuple[bytes, int]:
    """Return the body at `at` and its end. For an invalid entry it is empty, which no decoder accepts."""
    if at + _HEAD.size > len(content):
        return b"", at
    found_magic, body_bytes, checksum = _HEAD.unpack_from(content, at)
    end = at + _HEAD.size + body_bytes
    # A declared length beyond the end of the file gives a shorter body, which `is_whole` detects.
    body = content[at + _HEAD.size : end]
    is_whole = found_magic == magic and len(body) == body_bytes and zlib.crc32(body) == checksum
    return (body, end) if is_whole else (b"", at)


class Extent(NamedTuple):
    """Number and length of a log on disk. A later state of the log compares greater."""

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
        """Whether the open file still exists under its path. Entries in a deleted file would be lost."""
        # Not open yet, so only the name can be checked; the next append opens the file that has it.
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
            # After a failed sync the kernel may drop the dirty pages and report success for the next sync of
            # this descriptor, so it must not be used again.
            self.close()
            raise
        # Advanced only after the sync, so that the next append removes the bytes of a failed one.
        self.bytes_good += len(content)

    def close(self) -> None:
        """Close the file; the next append opens it again."""
        if self._fd is not None:
            # Forgotten first: if the close fails, the descriptor must not be closed a second time.
            fd, self._fd = self._fd, None
            self._files.close(fd)

    def _reopen(self) -> int:
        """Open the log again, after removing the bytes that a failed write or sync may have left."""
        # The file may end in a partial entry, or in a complete one whose `append` raised.
        content = self._files.read(self._path)
        if len(content) != self.bytes_good:
            # A whole new file, so that nothing depends on pages whose sync failed.
            write_durably(self._path, content[: self.bytes_good], files=self._files)
        self._fd = self._files.open(self._path)
        return self._fd
