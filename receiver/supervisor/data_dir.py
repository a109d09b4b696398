"""Data directory: its locks, and the file with the addresses of the running receiver.

    lock            held by the supervisor, so that a second receiver fails at once
    children.lock   held by the supervisor and inherited by every child. The children of a killed supervisor
                    finish their work and exit; the next supervisor waits until the last of them has exited
    receiver.json   addresses and process ids of the running receiver, removed when it stops

Both locks are `flock`s: the kernel frees them when the last descriptor is closed.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from receiver.channel import CHILDREN_WAIT_S
from receiver.durable.files import (
    DISK,
    make_directories,
    open_or_create,
    unlink_if_exists,
    write_all,
    write_unsynced,
)
from receiver.errors import CommandFailed, OperatorError
from receiver.supervisor.state import STATE_NAME, ReceiverState

POLL_S = 0.05


class DirectoryTaken(CommandFailed):
    """Another receiver uses this data directory."""


class DataDir:
    def __init__(self, path: Path, children_wait_s: float = CHILDREN_WAIT_S) -> None:
        self.path = path
        self._children_wait_s = children_wait_s
        self._lock_fd = -1
        self.children_lock_fd = -1
        """Descriptor of the lock that every child inherits, so that it is held until the last child exits."""

    async def take(self) -> None:
        """Create the directory if needed and lock it. Raises `DirectoryTaken`."""
        try:
            make_directories(self.path)
            self._lock_fd = open_or_create(self.path / "lock")
            self.children_lock_fd = open_or_create(self.path / "children.lock")
        except OSError as error:
            raise OperatorError(f"data_dir '{self.path}' cannot be used: {error.strerror}") from error
        # Not waited for, unlike `children.lock`: a running receiver will not release it soon.
        if not DISK.lock(self._lock_fd):
            raise self._in_use_error("another receiver uses it", "lock")
        # Only now, because until here the content belonged to another receiver.
        DISK.truncate(self._lock_fd, 0)
        write_all(DISK, self._lock_fd, f"{os.getpid()}\n".encode(), 0)
        if not await self._children_have_ended():
            raise self._in_use_error("processes of an earlier receiver have not exited", "children.lock")
        with suppress(OSError):
            self.remove_state()  # a killed receiver leaves this file, with invalid addresses

    async def _children_have_ended(self) -> bool:
        deadline_s = time.monotonic() + self._children_wait_s
        # Polled, because a blocking flock has no time-out and would block the event loop.
        while not DISK.lock(self.children_lock_fd):
            if time.monotonic() > deadline_s:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def _in_use_error(self, why: str, lock_name: str) -> DirectoryTaken:
        # Read from the kernel: the process id in the file is that of the last holder, which may have exited.
        pids = ", ".join(str(pid) for pid in holders(self.path / lock_name)) or "unknown"
        # `take` has failed, so no caller will release what it has locked so far.
        self.release()
        return DirectoryTaken(
            f"data_dir '{self.path}' is in use: {why} (process {pids}); expected it to be free"
        )

    def write_state(self, state: ReceiverState) -> None:
        """Replace `receiver.json` atomically."""
        # Without fsync: after a power failure no receiver runs, and the file is useless.
        write_unsynced(self.path / STATE_NAME, msgspec.json.format(msgspec.json.encode(state)) + b"\n")

    def release(self) -> None:
        for fd in (self._lock_fd, self.children_lock_fd):
            if fd >= 0:
                DISK.close(fd)
        self._lock_fd = self.children_lock_fd = -1

    def remove_state(self) -> None:
        """Delete `receiver.json`, because no receiver runs any more."""
        unlink_if_exists(self.path / STATE_NAME)


def holders(path: Path) -> list[int]:
    """Return the other processes that have this file open, without those of other users."""
    target = path.resolve()
    processes = {int(process.name): process for process in Path("/proc").glob("[0-9]*")}
    return sorted(
        pid for pid, process in processes.items() if pid != os.getpid() and _has_open(process, target)
    )


def _has_open(process: Path, target: Path) -> bool:
    try:
        return any(fd.readlink() == target for fd in (process / "fd").iterdir())
    # The process exited while it was examined, or it belongs to another user.
    except OSError:
        return False
