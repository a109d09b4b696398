"""File system operations behind one interface, so that tests can make any of them fail, tear or be lost.

Invariant: only this package writes, syncs, renames or deletes files.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Protocol

from receiver.errors import CommandFailed
from receiver.logs import limited

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


FILE_MODE = 0o600
PARENT_MODE = 0o777
DIRECTORY_MODE = 0o700
"""Mode of directories: other users must not read spans, even if the umask allows it."""


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
        """Return whether the open file still exists under this path."""

    def write(self, fd: int, content: memoryview, offset: int) -> int:
        """Write at this offset. Returns the number of bytes that were written."""

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Set the size of the file."""

    def sync_data(self, fd: int) -> None:
        """Sync the content and the metadata that is needed to read it (fdatasync)."""

    def sync(self, fd: int) -> None:
        """Sync the content and all metadata (fsync)."""

    def sync_directory(self, path: Path) -> None:
        """Sync the names in this directory."""

    def sync_file_system(self, path: Path) -> None:
        """Sync everything on the file system of `path`, including files that other code wrote."""

    def read(self, path: Path) -> bytes:
        """Return the content of the file."""

    def read_head(self, path: Path, size_bytes: int) -> bytes:
        """Return the first `size_bytes` bytes, or fewer if the file is shorter."""

    def size_bytes(self, path: Path) -> int | None:
        """Return the size of the file; `None` if it does not exist."""

    def names(self, path: Path) -> list[str]:
        """Return the names in this directory, sorted."""

    def make_directory(self, path: Path, mode: int = DIRECTORY_MODE) -> None:
        """Create a directory; it must not exist."""

    def set_mode(self, path: Path, mode: int) -> None:
        """Set the permissions of a file or directory, independently of the umask."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename `source` to `target` atomically, replacing `target`."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, which must not exist, on the same file system."""

    def unlink(self, path: Path) -> None:
        """Remove a file. Raises `IsADirectoryError` for a directory."""

    def free_bytes(self, path: Path) -> int:
        """Return the free space that this process may use on the file system of `path`."""


class Disk:
    """The real file system: Linux calls, with descriptors that child processes do not inherit."""

    def create(self, path: Path) -> int:
        # O_EXCL: of two processes that race for a name, only one may get the file.
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)

    def open(self, path: Path) -> int:
        # O_NOFOLLOW: a symbolic link under this name must not redirect writes to another file.
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)

    def close(self, fd: int) -> None:
        os.close(fd)

    def lock(self, fd: int) -> bool:
        try:
            # flock, because closing another descriptor of the file would release a POSIX record lock.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # A network file system may report either error.
            return False
        return True

    def is_at(self, fd: int, path: Path) -> bool:
        try:
            # Compares inodes, because a file that was removed and created again has the same name.
            return os.path.samestat(os.fstat(fd), os.lstat(path))
        except FileNotFoundError:
            return False

    def write(self, fd: int, content: memoryview, offset: int) -> int:
        # At an explicit offset: a failed or short write leaves no file position to correct.
        return os.pwrite(fd, content, offset)

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def sync_data(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def sync_directory(self, path: Path) -> None:
        """See `Files`. Opens a new descriptor each time, because a failed sync must not be repeated on it."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_file_system(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Python's `os` module has no syncfs.
            if ctypes.CDLL(None, use_errno=True).syncfs(fd):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            os.close(fd)

    def read(self, path: Path) -> bytes:
        with open_to_read(path) as file:
            return file.read()

    def read_head(self, path: Path, size_bytes: int) -> bytes:
        with open_to_read(path) as file:
            return file.read(size_bytes)

    def size_bytes(self, path: Path) -> int | None:
        try:
            return os.lstat(path).st_size
        except FileNotFoundError:
            return None

    def names(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))  # noqa: PTH208 - returns names, not paths

    def make_directory(self, path: Path, mode: int = DIRECTORY_MODE) -> None:
        path.mkdir(mode=mode)

    def set_mode(self, path: Path, mode: int) -> None:
        path.chmod(mode)

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def link(self, source: Path, target: Path) -> None:
        target.hardlink_to(source)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def free_bytes(self, path: Path) -> int:
        stats = os.statvfs(path)
        # Not f_bfree, which includes blocks that are reserved for root.
        return stats.f_bavail * stats.f_frsize


DISK = Disk()
"""Shared instance; `Disk` has no state."""


def open_to_read(path: Path) -> BinaryIO:
    """Open a regular file. Raises `OSError` for anything else: a pipe would block the process."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


@contextmanager
def opened(files: Files, path: Path, *, new: bool = False) -> Iterator[int]:
    """Open or create a file, and close it at the end of the `with` block."""
    fd = files.create(path) if new else files.open(path)
    try:
        yield fd
    finally:
        files.close(fd)


def write_all(files: Files, fd: int, content: bytes | memoryview, offset: int) -> None:
    # A view, so that repeating a short write copies nothing.
    rest = memoryview(content)
    while rest:
        written_bytes = files.write(fd, rest, offset)
        # Without this check a file system that accepts no byte would make the loop endless.
        if written_bytes <= 0:
            raise OSError(
                errno.EIO, f"write returned {written_bytes} for {len(rest)} bytes; expected progress"
            )
        rest = rest[written_bytes:]
        offset += written_bytes


def open_or_create(path: Path, files: Files = DISK) -> int:
    """Open a file for reading and writing; create it if it does not exist. For lock files."""
    try:
        return files.create(path)
    except FileExistsError:
        return files.open(path)


@contextmanager
def lock_held(path: Path, problem: str) -> Iterator[None]:
    """Hold the lock of a lock file. Raises `CommandFailed` with `problem` if another process holds it."""
    fd = open_or_create(path)
    try:
        if not DISK.lock(fd):
            raise CommandFailed(problem)
        yield
    finally:
        DISK.close(fd)


def write_new(files: Files, path: Path, *parts: bytes | memoryview, synced: bool = True) -> None:
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
            # Before the caller's rename: else a power failure could leave the name without the content.
            if synced:
                files.sync(fd)
    except OSError:
        # The first error is the cause, so a failed cleanup must not replace it.
        with suppress(OSError):
            files.unlink(path)
        raise


def write_durably(path: Path, *parts: bytes | memoryview, files: Files = DISK) -> None:
    """Write a file atomically and durably, readable by its owner only. On error the old file remains."""
    draft = _draft_of(path)
    write_new(files, draft, *parts)
    files.rename(draft, path)
    # The rename itself survives a power failure only after this sync.
    files.sync_directory(path.parent)


def write_unsynced(path: Path, *parts: bytes | memoryview, files: Files = DISK) -> None:
    """Write a file atomically, but not durably: a power failure may lose it or leave it empty."""
    draft = _draft_of(path)
    write_new(files, draft, *parts, synced=False)
    files.rename(draft, path)


def _draft_of(path: Path) -> Path:
    # In the same directory, because a rename is atomic only within one file system.
    return path.with_name(f".{path.name}.tmp")


def drafts_in(directory: Path, files: Files = DISK) -> list[Path]:
    """Return the temporary files that a killed `write_durably` left behind. They can be deleted."""
    if files.size_bytes(directory) is None:
        return []
    names = files.names(directory)
    return [directory / name for name in names if name.startswith(".") and name.endswith(".tmp")]


def delete_drafts(directory: Path, files: Files = DISK) -> None:
    """Delete the temporary files in a directory. A failure is reported, and the file stays.

    Nothing reads them, and the next write under such a name deletes or reports its file again.
    """
    with reported("temporary files cannot be listed", directory):
        for draft in drafts_in(directory, files):
            delete_unneeded(draft, files)


def delete_unneeded(path: Path, files: Files = DISK) -> None:
    """Delete a file that nothing reads. A failure is reported, and the file stays."""
    with reported("file that is not needed any more cannot be deleted", path):
        unlink_if_exists(path, files)


@contextmanager
def reported(problem: str, path: Path) -> Iterator[None]:
    """Log an `OSError` about one file, so that the files after it are handled."""
    try:
        yield
    except OSError as error:
        limited.error(f"file: {path}", problem, path=str(path), error=error.strerror or type(error).__name__)


def unlink_if_exists(path: Path, files: Files = DISK) -> None:
    with suppress(FileNotFoundError):
        files.unlink(path)


def make_directories(path: Path, files: Files = DISK) -> None:
    """Create a directory and its parents where they are missing.

    Created directories survive a power failure. The parents get the permissions that the umask allows.
    """
    missing = [directory for directory in (path, *path.parents) if files.size_bytes(directory) is None]
    for directory in reversed(missing):
        with suppress(FileExistsError):  # another process created it
            files.make_directory(directory, DIRECTORY_MODE if directory == path else PARENT_MODE)
        # Also if another process created it, which may not have synced the name yet.
        files.sync_directory(directory.parent)


def remove_tree(path: Path, files: Files = DISK) -> None:
    """Delete a directory and everything in it. Symbolic links are not followed; `path` must not be one."""
    # `names` would follow the link, and the loop would empty the directory that it points to.
    if path.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    for name in files.names(path):
        try:
            files.unlink(path / name)
        # Tried as a file first: unlink removes a symbolic link to a directory and never follows it.
        except IsADirectoryError:
            remove_tree(path / name, files)
    files.remove_directory(path)
