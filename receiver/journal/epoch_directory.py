"""Epoch directory: the directory of one intake start, with a random name, locked while the intake runs.

The lock is on the note file; the kernel frees it when the process ends. An epoch whose lock is free is
orphaned, and the next process that takes the lock may adopt its segments. Another process may even adopt a
new directory before its creator has locked it. The creator then cannot lock the directory or finds it
deleted, and creates another one.

Invariant: two processes never write in one directory, and no directory is used by two intake starts.
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

TRIES_MAX = 8
"""Attempts to create a directory. Losing that many races in a row must have another cause."""


class EpochNote(msgspec.Struct, frozen=True):
    """Process id and start time of the intake, for messages and the order of epochs; not for correctness."""

    pid: int = 0
    created_at_ns: int = 0


def draw_epoch() -> int:
    """Return a random epoch id. No clock is used: a restored or cloned journal must not repeat an id."""
    return secrets.randbits(64)


@dataclass(frozen=True, slots=True)
class EpochDirectory:
    """An epoch directory whose lock this process holds."""

    epoch: int
    directory: Path
    lock_fd: int
    files: Files

    @classmethod
    def create(cls, root: Path, files: Files, epoch: Callable[[], int] = draw_epoch) -> Self:
        """Create and lock a new directory durably."""
        _make_root(root, files)
        for _ in range(TRIES_MAX):
            directory = root / start_name(epoch())
            # The id is taken, or an adopting process was faster and locked or deleted the new directory.
            with suppress(FileExistsError, FileNotFoundError):
                files.make_directory(directory)
                start = cls._locked(directory, files, new=True)
                if start is not None:
                    start.write_note()
                    return start
        raise OSError(errno.EEXIST, f"no new epoch directory could be created in {TRIES_MAX} tries")

    @classmethod
    def adopt(cls, directory: Path, files: Files) -> Self | None:
        """Lock an orphaned epoch. Returns `None` if its intake is running or another process adopts it."""
        with suppress(FileExistsError, FileNotFoundError):
            # A creator that was killed early leaves a directory without a note.
            return cls._locked(directory, files, new=files.size_bytes(directory / START_NOTE) is None)
        return None

    @classmethod
    def _locked(cls, directory: Path, files: Files, *, new: bool) -> Self | None:
        path = directory / START_NOTE
        with ExitStack() as undo:
            fd = files.create(path) if new else files.open(path)
            undo.callback(files.close, fd)
            # The file may have been deleted between opening and locking; a lock on it would then protect
            # nothing.
            if not (files.lock(fd) and files.is_at(fd, path)):
                return None
            undo.pop_all()
        return cls(epoch_of(directory.name) or 0, directory, fd, files)

    def write_note(self) -> None:
        """Write the note and sync the directory."""
        note = msgspec.json.encode(EpochNote(os.getpid(), time.time_ns()))
        with ExitStack() as undo:
            # A directory that may not be durable is not used: acknowledged records could vanish with it.
            undo.callback(self.leave)
            write_all(self.files, self.lock_fd, note, 0)
            self.files.sync(self.lock_fd)
            self.files.sync_directory(self.directory)
            self.files.sync_directory(self.directory.parent)
            undo.pop_all()

    def is_gone(self) -> bool:
        """Return whether the directory was removed while in use. False if the disk cannot be read."""
        try:
            return not self.files.is_at(self.lock_fd, self.directory / START_NOTE)
        except FileNotFoundError:
            return True
        # An unreadable disk does not prove a removal, after which the intake would restart.
        except OSError:
            return False

    def leave(self) -> None:
        """Delete the directory if it is empty, and release the lock. After an error, adoption deletes it."""
        with suppress(OSError):
            if self.files.names(self.directory) == [START_NOTE]:
                # Still locked: a process that has the note open finds by `is_at` that it is gone.
                self.files.unlink(self.directory / START_NOTE)
                self.files.remove_directory(self.directory)
        # Last, because this releases the lock.
        self.files.close(self.lock_fd)


def note_of(directory: Path, files: Files) -> EpochNote:
    """Read the note of an epoch directory; return an empty note if it is missing or incomplete."""
    try:
        return msgspec.json.decode(files.read(directory / START_NOTE), type=EpochNote)
    except (FileNotFoundError, msgspec.DecodeError):
        return EpochNote()


def _make_root(root: Path, files: Files) -> None:
    """Create the journal directory durably, even if another process created it and died before its sync."""
    missing = [path for path in (root, *root.parents) if files.size_bytes(path) is None]
    for path in reversed(missing):
        with suppress(FileExistsError):
            files.make_directory(path)
        files.sync_directory(path.parent)
    if not missing:
        files.sync_directory(root.parent)
