"""The directory of one intake start: drawn at random, locked while that intake lives, removed when empty.

The lock is on the note in it and goes with the process, however that ends: a start whose lock is free is
dead, and whoever takes the lock next may adopt its segments. Drawing and adopting may meet in the moment
between making the directory and locking it; the one who draws then finds the lock taken or the directory
gone, and draws again.

Keeps: two processes never write in one directory, and no directory is ever used for a second start.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import msgspec

from receiver.durable.files import write_all
from receiver.journal.names import START_NOTE, epoch_of, start_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from receiver.durable.files import Files

DRAWS_MAX = 8
"""Losing the race for a fresh directory this often in a row means that something else is wrong."""


class Note(msgspec.Struct, frozen=True):
    """Who writes in a start directory, for messages and for the order among starts; never for correctness."""

    pid: int = 0
    created_at_ns: int = 0


def draw_epoch() -> int:
    """Draw what a start is known by; no clock: a restored or cloned journal must not meet its past."""
    return secrets.randbits(64)


@dataclass(frozen=True, slots=True)
class EpochDirectory:
    """A start directory whose lock this process holds."""

    epoch: int
    directory: Path
    lock_fd: int
    files: Files

    @classmethod
    def create(cls, root: Path, files: Files, epoch: Callable[[], int] = draw_epoch) -> Self:
        """Make and lock a directory that never was, durably."""
        _make_root(root, files)
        for _ in range(DRAWS_MAX):
            directory = root / start_name(epoch())
            with suppress(FileExistsError, FileNotFoundError):
                files.make_directory(directory)
                start = cls._locked(directory, files, new=True)
                if start is not None:
                    start.write_note()
                    return start
        raise OSError(
            errno.EEXIST, f"no free start directory in {DRAWS_MAX} draws; expected one in the first"
        )

    @classmethod
    def adopt(cls, directory: Path, files: Files) -> Self | None:
        """Take over a dead start; none: its intake lives, or somebody else is there first."""
        with suppress(FileExistsError, FileNotFoundError):
            return cls._locked(directory, files, new=files.size_bytes(directory / START_NOTE) is None)
        return None

    @classmethod
    def _locked(cls, directory: Path, files: Files, *, new: bool) -> Self | None:
        path = directory / START_NOTE
        with ExitStack() as undo:
            fd = files.create(path) if new else files.open(path)
            undo.callback(files.close, fd)
            if not (files.lock(fd) and files.is_at(fd, path)):
                return None
            undo.pop_all()
        return cls(epoch_of(directory.name) or 0, directory, fd, files)

    def write_note(self) -> None:
        """Say who is here, and make the directory one that outlives a power cut."""
        note = msgspec.json.encode(Note(os.getpid(), time.time_ns()))
        with ExitStack() as undo:
            undo.callback(self.leave)
            write_all(self.files, self.lock_fd, note, 0)
            self.files.sync(self.lock_fd)
            self.files.sync_directory(self.directory)
            self.files.sync_directory(self.directory.parent)
            undo.pop_all()

    def is_gone(self) -> bool:
        """Whether the directory was taken away while in use. When the disk does not say, it was not."""
        try:
            return not self.files.is_at(self.lock_fd, self.directory / START_NOTE)
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def leave(self) -> None:
        """Free the lock. A directory with nothing but the note in it goes; if not now, then when adopted."""
        with suppress(OSError):
            if self.files.names(self.directory) == [START_NOTE]:
                self.files.unlink(self.directory / START_NOTE)
                self.files.remove_directory(self.directory)
        self.files.close(self.lock_fd)


def note_of(directory: Path, files: Files) -> Note:
    """Who writes, or wrote, there; a torn note is nobody, since ever."""
    try:
        return msgspec.json.decode(files.read(directory / START_NOTE), type=Note)
    except (FileNotFoundError, msgspec.DecodeError):
        return Note()


def _make_root(root: Path, files: Files) -> None:
    """Make it, durably, even if the one who made it died before its name was on the disk."""
    missing = [path for path in (root, *root.parents) if files.size_bytes(path) is None]
    for path in reversed(missing):
        with suppress(FileExistsError):
            files.make_directory(path)
        files.sync_directory(path.parent)
    if not missing:
        files.sync_directory(root.parent)
