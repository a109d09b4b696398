"""What the journal asks of a file system, in one place, so that a test can refuse, tear or lose any of it."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
"""Spans are nobody else's to read, whatever the umask allows."""


class Files(Protocol):
    """Every call may raise `OSError`."""

    def create(self, path: Path) -> int:
        """Open a new file for reading and writing; it must not exist."""

    def open(self, path: Path) -> int:
        """Open a file that exists, for reading and writing."""

    def close(self, fd: int) -> None:
        """Give the descriptor back; what was locked through it is free again."""

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock of this file, or say that somebody else has it."""

    def is_at(self, fd: int, path: Path) -> bool:
        """Whether this path still names the open file."""

    def write(self, fd: int, content: memoryview, offset: int) -> int:
        """Write at this offset; returns how many bytes were taken."""

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Cut the file."""

    def sync_data(self, fd: int) -> None:
        """Wait until the content, and what is needed to find it, is on the disk."""

    def sync(self, fd: int) -> None:
        """Wait until the file with all it is known by is on the disk."""

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in this directory are on the disk."""

    def read(self, path: Path) -> bytes:
        """Return the whole content."""

    def read_head(self, path: Path, size_bytes: int) -> bytes:
        """Return so much of its beginning."""

    def size_bytes(self, path: Path) -> int | None:
        """Size of the file; none: there is no such file."""

    def names(self, path: Path) -> list[str]:
        """Return what lies in this directory, sorted."""

    def make_directory(self, path: Path) -> None:
        """Make a new directory; it must not exist."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` by `source` in one step."""

    def unlink(self, path: Path) -> None:
        """Remove a file."""

    def free_bytes(self, path: Path) -> int:
        """Return what this process may still write to the file system of `path`."""


class Disk:
    """The real file system: Linux calls, descriptors that no child inherits."""

    def create(self, path: Path) -> int:
        """See `Files`."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)

    def open(self, path: Path) -> int:
        """See `Files`."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)

    def close(self, fd: int) -> None:
        """See `Files`."""
        os.close(fd)

    def lock(self, fd: int) -> bool:
        """See `Files`."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_at(self, fd: int, path: Path) -> bool:
        """See `Files`."""
        try:
            return os.path.samestat(os.fstat(fd), os.lstat(path))
        except FileNotFoundError:
            return False

    def write(self, fd: int, content: memoryview, offset: int) -> int:
        """See `Files`."""
        return os.pwrite(fd, content, offset)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """See `Files`."""
        os.ftruncate(fd, size_bytes)

    def sync_data(self, fd: int) -> None:
        """See `Files`."""
        os.fdatasync(fd)

    def sync(self, fd: int) -> None:
        """See `Files`."""
        os.fsync(fd)

    def sync_directory(self, path: Path) -> None:
        """See `Files`. A fresh descriptor each time: a failed sync is never repeated on the same one."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read(self, path: Path) -> bytes:
        """See `Files`."""
        return path.read_bytes()

    def read_head(self, path: Path, size_bytes: int) -> bytes:
        """See `Files`."""
        with path.open("rb") as file:
            return file.read(size_bytes)

    def size_bytes(self, path: Path) -> int | None:
        """See `Files`."""
        try:
            return os.lstat(path).st_size
        except FileNotFoundError:
            return None

    def names(self, path: Path) -> list[str]:
        """See `Files`."""
        return sorted(os.listdir(path))  # noqa: PTH208 - names are wanted, not paths

    def make_directory(self, path: Path) -> None:
        """See `Files`."""
        path.mkdir(mode=DIRECTORY_MODE)

    def remove_directory(self, path: Path) -> None:
        """See `Files`."""
        path.rmdir()

    def rename(self, source: Path, target: Path) -> None:
        """See `Files`."""
        source.rename(target)

    def unlink(self, path: Path) -> None:
        """See `Files`."""
        path.unlink()

    def free_bytes(self, path: Path) -> int:
        """See `Files`."""
        room = os.statvfs(path)
        return room.f_bavail * room.f_frsize


DISK = Disk()
"""It has no state: one is enough."""


@contextmanager
def opened(files: Files, path: Path, *, new: bool = False) -> Iterator[int]:
    """Lend a fresh descriptor."""
    fd = files.create(path) if new else files.open(path)
    try:
        yield fd
    finally:
        files.close(fd)


def write_all(files: Files, fd: int, content: bytes | memoryview, offset: int) -> None:
    """Write everything at this offset, however short the single writes are."""
    rest = memoryview(content)
    while rest:
        taken_bytes = files.write(fd, rest, offset)
        if taken_bytes <= 0:
            raise OSError(errno.EIO, f"the disk took {taken_bytes} bytes of {len(rest)}; expected progress")
        rest = rest[taken_bytes:]
        offset += taken_bytes


def write_new(files: Files, path: Path, *parts: bytes | memoryview) -> None:
    """Write and sync a file under a name that is free, or that nothing depends on yet.

    What cannot be written whole is taken away again: it would keep the room that others need.
    """
    if files.size_bytes(path) is not None:
        files.unlink(path)
    try:
        with opened(files, path, new=True) as fd:
            offset = 0
            for part in parts:
                write_all(files, fd, part, offset)
                offset += len(part)
            files.sync(fd)
    except OSError:
        with suppress(OSError):
            files.unlink(path)
        raise


def write_durably(path: Path, *parts: bytes | memoryview, files: Files = DISK) -> None:
    """Put a file under its name, whole, on the disk, for us alone; or leave what was there."""
    draft = path.with_name(f".{path.name}.tmp")
    write_new(files, draft, *parts)
    files.rename(draft, path)
    files.sync_directory(path.parent)


def drafts_in(directory: Path, files: Files = DISK) -> list[Path]:
    """What `write_durably` left there when it was killed. Nobody depends on it."""
    if files.size_bytes(directory) is None:
        return []
    names = files.names(directory)
    return [directory / name for name in names if name.startswith(".") and name.endswith(".tmp")]
