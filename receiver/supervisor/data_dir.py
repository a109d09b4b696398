"""The data directory: who owns it, and the file that tells others where the receiver is.

    lock            held by the supervisor: a second receiver says so at once
    children.lock   held by the supervisor and, inherited, by every child. A supervisor that was killed leaves
                    children that finish by themselves; the next one waits until the last has let go
    receiver.json   addresses and process ids of the running receiver, removed when it stops

Both locks are `flock`s: the kernel frees them with the last descriptor, however its owner ends.
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
    """Another receiver works on this data directory."""


class Pids(msgspec.Struct, frozen=True, kw_only=True):
    """Process ids, kept current when a process is replaced."""

    supervisor: int
    intake: tuple[int, ...]
    store: int


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What `receiver.json` says."""

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
    """Where the receiver on this directory is. Raises `OperatorError` if there is none."""
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
    """A data directory that is ours, once it is taken."""

    def __init__(self, path: Path, children_wait_s: float = CHILDREN_WAIT_S) -> None:
        self.path = path
        self._children_wait_s = children_wait_s
        self._lock_fd = -1
        self.children_lock_fd = -1
        """Passed to every child: it keeps the lock until the last of them ends."""

    async def take(self) -> None:
        """Make it if need be, and be the only one to work on it. Raises `DirectoryTaken`."""
        try:
            _make(self.path)
            self._lock_fd = _open(self.path / "lock")
            self.children_lock_fd = _open(self.path / "children.lock")
        except OSError as reason:
            raise OperatorError(f"data_dir '{self.path}' cannot be used: {reason.strerror}") from reason
        if not _lock(self._lock_fd):
            raise self._taken("another receiver works on it", "lock")
        os.ftruncate(self._lock_fd, 0)
        os.write(self._lock_fd, f"{os.getpid()}\n".encode())
        if not await self._children_have_ended():
            raise self._taken("processes of an earlier receiver do not end", "children.lock")
        with suppress(OSError):
            self.remove_state()  # of a receiver that was killed: its addresses are wrong now

    async def _children_have_ended(self) -> bool:
        deadline_s = time.monotonic() + self._children_wait_s
        while not _lock(self.children_lock_fd):
            if time.monotonic() > deadline_s:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def _taken(self, why: str, lock_name: str) -> DirectoryTaken:
        pids = ", ".join(str(pid) for pid in holders(self.path / lock_name)) or "unknown"
        self.let_go()
        return DirectoryTaken(
            f"data_dir '{self.path}' is in use: {why} (process {pids}); expected it to be free"
        )

    def write_state(self, state: State) -> None:
        """Replace `receiver.json` in one step."""
        beside = self.path / f"{STATE_NAME}.new"
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(state)) + b"\n")
        beside.chmod(0o600)
        beside.replace(self.path / STATE_NAME)

    def let_go(self) -> None:
        """Free the locks."""
        for fd in (self._lock_fd, self.children_lock_fd):
            if fd >= 0:
                os.close(fd)
        self._lock_fd = self.children_lock_fd = -1

    def remove_state(self) -> None:
        """Say that no receiver runs here any more."""
        (self.path / STATE_NAME).unlink(missing_ok=True)


def holders(path: Path) -> list[int]:
    """Processes that have this file open, other than this one; those of other users stay unseen."""
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


def _make(path: Path) -> None:
    """Make the directory so that a power cut cannot take it, and all that is promised in it, away."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for made in missing:
        above = os.open(made.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(above)
        finally:
            os.close(above)


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
