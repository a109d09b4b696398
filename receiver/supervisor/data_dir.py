"""Data directory: its locks, and the file with the addresses of the running receiver.

    lock            held by the supervisor, so that a second receiver fails at once
    children.lock   held by the supervisor and inherited by every child. The children of a killed supervisor
                    finish their work and exit; the next supervisor waits until the last of them has exited
    receiver.json   addresses and process ids of the running receiver, removed when it stops

Both locks are `flock`s: the kernel frees them when the last descriptor is closed.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from receiver.errors import CommandFailed, OperatorError

STATE_NAME = "receiver.json"
CHILDREN_WAIT_S = 10.0
POLL_S = 0.05


class DirectoryTaken(CommandFailed):
    """Another receiver uses this data directory."""


class Pids(msgspec.Struct, frozen=True, kw_only=True):
    """Process ids, updated when a process is replaced."""

    supervisor: int
    intake: tuple[int, ...]
    store: int


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Content of `receiver.json`."""

    listen: str
    """HOST:PORT of the drain endpoint, as bound."""
    admin: str
    api: str
    urls: dict[str, str]
    """`listen`, `admin`, `api` as URLs to connect to from this machine."""
    pids: Pids
    version: str
    started_at: str


def read_state(directory: Path) -> State:
    """Return the state of the receiver that uses this directory. Raises `CommandFailed` if there is none."""
    try:
        return msgspec.json.decode((directory / STATE_NAME).read_bytes(), type=State)
    except FileNotFoundError as reason:
        raise CommandFailed(
            f"no receiver runs on '{directory}'; expected `trace-drain serve --data {directory}`"
        ) from reason
    except (OSError, msgspec.DecodeError) as reason:
        raise CommandFailed(
            f"'{directory / STATE_NAME}' cannot be read; expected a receiver's state"
        ) from reason


class DataDir:
    """A data directory and the locks on it."""

    def __init__(self, path: Path, children_wait_s: float = CHILDREN_WAIT_S) -> None:
        self.path = path
        self._children_wait_s = children_wait_s
        self._lock_fd = -1
        self.children_lock_fd = -1
        """Inherited by every child, so that the lock is held until the last of them exits."""

    async def take(self) -> None:
        """Create the directory if needed and lock it. Raises `DirectoryTaken`."""
        try:
            _create(self.path)
            self._lock_fd = _open(self.path / "lock")
            self.children_lock_fd = _open(self.path / "children.lock")
        except OSError as reason:
            raise OperatorError(f"data_dir '{self.path}' cannot be used: {reason.strerror}") from reason
        if not _lock(self._lock_fd):
            raise self._in_use_error("another receiver uses it", "lock")
        os.ftruncate(self._lock_fd, 0)
        os.write(self._lock_fd, f"{os.getpid()}\n".encode())
        if not await self._children_have_ended():
            raise self._in_use_error("processes of an earlier receiver have not exited", "children.lock")
        with suppress(OSError):
            self.remove_state()  # a killed receiver leaves its file, and its addresses are wrong now

    async def _children_have_ended(self) -> bool:
        deadline_s = time.monotonic() + self._children_wait_s
        while not _lock(self.children_lock_fd):
            if time.monotonic() > deadline_s:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def _in_use_error(self, why: str, lock_name: str) -> DirectoryTaken:
        pids = ", ".join(str(pid) for pid in holders(self.path / lock_name)) or "unknown"
        self.release()
        return DirectoryTaken(
            f"data_dir '{self.path}' is in use: {why} (process {pids}); expected it to be free"
        )

    def write_state(self, state: State) -> None:
        """Replace `receiver.json` atomically."""
        draft = self.path / f"{STATE_NAME}.new"
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(state)) + b"\n")
        draft.chmod(0o600)
        draft.replace(self.path / STATE_NAME)

    def release(self) -> None:
        """Release the locks."""
        for fd in (self._lock_fd, self.children_lock_fd):
            if fd >= 0:
                os.close(fd)
        self._lock_fd = self.children_lock_fd = -1

    def remove_state(self) -> None:
        """Delete `receiver.json`, because no receiver runs any more."""
        (self.path / STATE_NAME).unlink(missing_ok=True)


def holders(path: Path) -> list[int]:
    """Return the other processes that have this file open, without those of other users."""
    wanted = path.resolve()
    processes = {int(process.name): process for process in Path("/proc").glob("[0-9]*")}
    return sorted(
        pid for pid, process in processes.items() if pid != os.getpid() and _has_open(process, wanted)
    )


def _has_open(process: Path, wanted: Path) -> bool:
    try:
        return any(fd.readlink() == wanted for fd in (process / "fd").iterdir())
    except OSError:
        return False


def _create(path: Path) -> None:
    """Create the directory durably: a power cut must not remove it with the data in it."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for created in missing:
        parent_fd = os.open(created.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(parent_fd)
        finally:
            os.close(parent_fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as reason:
        if reason.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True
