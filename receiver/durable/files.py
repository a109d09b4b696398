"""File system operations behind one interface, so that tests can make any of them fail, tear or be lost."""

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
"""Other users must not read spans, whatever the umask allows."""


class Files(Protocol):
    """File system operations. Every call may raise `OSError`."""

    def create(self, path: Path) -> int:
        """Create a file and open it for reading and writing; it must not exist."""

    def open(self, path: Path) -> int:
        """Open an existing file for reading and writing."""

    def close(self, fd: int) -> None:
        """Close the descriptor and release its lock."""

    def lock(self, fd: int) -> bool:
        """Try to take the exclusive lock of the file. Returns False if another process holds it."""

    def is_at(self, fd: int, path: Path) -> bool:
        """Return whether the path still names the open file."""

    def write(self, fd: int, content: memoryview, offset: int) -> int:
        """Write at this offset. Returns how many bytes were written."""

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Set the size of the file."""

    def sync_data(self, fd: int) -> None:
        """Sync the content and the metadata that is needed to read it (fdatasync)."""

    def sync(self, fd: int) -> None:
        """Sync the content and all metadata (fsync)."""

    def sync_directory(self, path: Path) -> None:
        """Sync the names in this directory."""

    def read(self, path: Path) -> bytes:
        """Return the content of the file."""

    def read_head(self, path: Path, size_bytes: int) -> bytes:
        """Return the first `size_bytes` bytes, or fewer if the file is shorter."""

    def size_bytes(self, path: Path) -> int | None:
        """Return the size of the file; `None` if it does not exist."""

    def names(self, path: Path) -> list[str]:
        """Return the names in this directory, sorted."""

    def make_directory(self, path: Path) -> None:
        """Create a directory; it must not exist."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename `source` to `target` atomically, replacing `target`."""

    def unlink(self, path: Path) -> None:
        """Remove a file."""

    def free_bytes(self, path: Path) -> int:
        """Return the free space that this process may use on the file system of `path`."""


class Disk:
    """The real file system: Linux calls, with descriptors that child processes do not inherit."""

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
        return sorted(os.listdir(path))  # noqa: PTH208 - returns names, not paths

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
        stats = os.statvfs(path)
        return stats.f_bavail * stats.f_frsize


DISK = Disk()
"""Shared instance; `Disk` has no state."""


@contextmanager
def opened(files: Files, path: Path, *, new: bool = False) -> Iterator[int]:
    """Open or create a file, and close it at the end of the `with` block."""
    fd = files.create(path) if new else files.open(path)
    try:
        yield fd
    finally:
        files.close(fd)


def write_all(files: Files, fd: int, content: bytes | memoryview, offset: int) -> None:
    """Write all of `content` at this offset, repeating short writes."""
    rest = memoryview(content)
    while rest:
        written_bytes = files.write(fd, rest, offset)
        if written_bytes <= 0:
            raise OSError(
                errno.EIO, f"write returned {written_bytes} for {len(rest)} bytes; expected progress"
            )
        rest = rest[written_bytes:]
        offset += written_bytes


def write_new(files: Files, path: Path, *parts: bytes | memoryview) -> None:
    """Write and sync a new file. A file of the same name, which must not be needed, is deleted first.

    An incomplete file is deleted, because it would use disk space that other files need.
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
    """Write a file atomically and durably, readable by its owner only. An error keeps the old file."""
    draft = path.with_name(f".{path.name}.tmp")
    write_new(files, draft, *parts)
    files.rename(draft, path)
    files.sync_directory(path.parent)


def drafts_in(directory: Path, files: Files = DISK) -> list[Path]:
    """Return the temporary files that a killed `write_durably` left behind. They can be deleted."""
    if files.size_bytes(directory) is None:
        return []
    names = files.names(directory)
    return [directory / name for name in names if name.startswith(".") and name.endswith(".tmp")]
