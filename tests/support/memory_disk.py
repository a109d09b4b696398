"""File system in memory that loses data, fails and kills the process on request: `Files` for tests.

Every file and directory has two states: the one that a process sees, and the one on the medium. Changes are
pending until a sync writes them to the medium; a power cut keeps some prefix of them. A failed sync of a file
discards its pending writes while the process still sees them, and a later sync succeeds. Linux behaves in
this way, which is why a failed sync must not be repeated.
"""

from __future__ import annotations

import errno
import os
from copy import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from receiver.durable.files import DIRECTORY_MODE

if TYPE_CHECKING:
    from collections.abc import Callable

State = TypeVar("State", bytearray, dict[str, "Node[Any]"])


def broken_disk() -> OSError:
    """Return the error of a disk that fails."""
    return OSError(errno.EIO, os.strerror(errno.EIO))


def full_disk() -> OSError:
    """Return the error of a disk without space."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Killed(BaseException):
    """Raised where the simulated process is killed in the middle of a call."""


class Node(Generic[State]):
    """A file or a directory: visible state, state on the medium, and the pending changes."""

    def __init__(self, empty: State) -> None:
        self.now: State = empty
        self.kept: State = copy(empty)
        self.pending: list[Callable[[State], object]] = []

    def change(self, step: Callable[[State], object]) -> None:
        """Apply a change to the visible state and add it to the pending changes."""
        step(self.now)
        self.pending.append(step)

    def keep(self, count: int) -> None:
        """Write the first `count` pending changes to the medium."""
        for step in self.pending[:count]:
            step(self.kept)
        del self.pending[:count]

    def lose(self) -> None:
        """Drop the pending changes."""
        self.now = copy(self.kept)
        self.pending = []


@cache
def links_of(path: Path) -> tuple[tuple[Path, str], ...]:
    """Return each directory above a path with the name of its entry, the nearest first."""
    return tuple((each.parent, each.name) for each in (path, *path.parents) if each.name)


class MemoryDisk:
    """`Files` in memory. `fault` is called before each call that changes something, and may raise."""

    def __init__(self) -> None:
        self.tree: dict[Path, Node[dict[str, Node[Any]]]] = {Path("/"): Node({})}
        self.calls: list[tuple[str, str]] = []
        self.fault: Callable[[int, str], None] = lambda _count, _call: None
        self.write_bytes_max = 1 << 30
        self.free = 1 << 40
        self._fds: dict[int, Node[bytearray]] = {}
        self._locks: dict[int, Node[bytearray]] = {}
        self._next_fd = 3

    # Controls for tests.

    def fail(self, *calls: str, code: int = errno.EIO, times: int = 1) -> None:
        """Make the next `times` calls of each of these functions fail."""
        left = dict.fromkeys(calls, times)

        def fault(_count: int, name: str) -> None:
            if left.get(name, 0):
                left[name] -= 1
                raise OSError(code, os.strerror(code))

        self.fault = fault

    def fail_nth(self, count: int, how: Callable[[], BaseException], *, is_permanent: bool = False) -> None:
        """Make the n-th call from now fail, and with `is_permanent` all calls after it."""
        target = len(self.calls) + count

        def fault(at: int, _call: str) -> None:
            if at == target or (is_permanent and at > target):
                raise how()

        self.fault = fault

    def heal(self) -> None:
        """Remove the injected fault."""
        self.fault = lambda _count, _call: None

    def kill(self) -> None:
        """Kill the process: descriptors and locks are released, written data stays."""
        self.heal()
        self._fds.clear()
        self._locks.clear()

    def cut_power(self, pick: Callable[[int], int] = lambda _count: 0) -> None:
        """Cut the power. Each file and directory keeps the first `pick(count)` of its pending changes."""
        self.kill()
        for node in self._nodes():
            node.keep(pick(len(node.pending)))
            node.lose()

    def scatter(self, is_kept: Callable[[], bool]) -> None:
        """Cut the power. Each pending change is kept or lost independently of the others."""
        self.kill()
        for node in self._nodes():
            node.pending = [step for step in node.pending if is_kept()]
            node.keep(len(node.pending))
            node.lose()

    @property
    def descriptor_count(self) -> int:
        """Number of open descriptors."""
        return len(self._fds)

    def is_directory(self, path: Path) -> bool:
        """Return whether the path is a directory."""
        return path in self.tree and self._is_linked(path)

    def _nodes(self) -> list[Node[Any]]:
        files: dict[int, Node[Any]] = {}
        for directory in self.tree.values():
            for node in (*directory.now.values(), *directory.kept.values()):
                files[id(node)] = node
            files[id(directory)] = directory
        return list(files.values())

    # Implementation of `Files`.

    def create(self, path: Path) -> int:
        self._step("create", path)
        if path.name in self._entries(path.parent):
            raise FileExistsError(errno.EEXIST, "exists")
        node = Node(bytearray())
        self.tree[path.parent].change(lambda names: names.update({path.name: node}))
        return self._fd(node)

    def open(self, path: Path) -> int:
        return self._fd(self._file(path))

    def close(self, fd: int) -> None:
        self._fds.pop(fd)
        self._locks.pop(fd, None)

    def lock(self, fd: int) -> bool:
        if self._fds[fd] in self._locks.values():
            return False
        self._locks[fd] = self._fds[fd]
        return True

    def is_at(self, fd: int, path: Path) -> bool:
        return self._entries(path.parent).get(path.name) is self._fds[fd]

    def write(self, fd: int, content: memoryview, offset: int) -> int:
        chunk = bytes(content[: self.write_bytes_max])
        try:
            self._step("write", Path(str(fd)))
        except BaseException:
            self._put(fd, chunk[: len(chunk) // 2], offset)
            raise
        self._put(fd, chunk, offset)
        return len(chunk)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._step("truncate", Path(str(fd)))
        self._fds[fd].change(lambda content: content.__setitem__(slice(size_bytes, None), b""))

    def sync_data(self, fd: int) -> None:
        self._sync("sync_data", fd)

    def sync(self, fd: int) -> None:
        self._sync("sync", fd)

    def sync_directory(self, path: Path) -> None:
        node = self._directory(path)
        self._step("sync_directory", path)
        node.keep(len(node.pending))

    def sync_file_system(self, path: Path) -> None:
        self._directory(path)
        self._step("sync_file_system", path)
        for node in self._nodes():
            node.keep(len(node.pending))

    def read(self, path: Path) -> bytes:
        return bytes(self._file(path).now)

    def read_head(self, path: Path, size_bytes: int) -> bytes:
        return self.read(path)[:size_bytes]

    def size_bytes(self, path: Path) -> int | None:
        if path in self.tree and self._is_linked(path):
            return 0
        node = self._entries(path.parent).get(path.name)
        return None if node is None else len(node.now)

    def names(self, path: Path) -> list[str]:
        return sorted(self._directory(path).now)

    def make_directory(self, path: Path, mode: int = DIRECTORY_MODE) -> None:  # noqa: ARG002 - no permissions here
        self._step("make_directory", path)
        if path.name in self._directory(path.parent).now:
            raise FileExistsError(errno.EEXIST, "exists")
        node: Node[dict[str, Node[Any]]] = Node({})
        self.tree[path] = node
        self.tree[path.parent].change(lambda names: names.update({path.name: node}))

    def set_mode(self, path: Path, _mode: int) -> None:
        self._directory(path)
        self._step("set_mode", path)

    def remove_directory(self, path: Path) -> None:
        self._step("remove_directory", path)
        if self._directory(path).now:
            raise OSError(errno.ENOTEMPTY, "not empty")
        self.tree[path.parent].change(lambda names: names.pop(path.name, None))

    def rename(self, source: Path, target: Path) -> None:
        self._file(source)
        self._step("rename", target)
        self.tree[source.parent].change(
            lambda names: (
                names.update({target.name: names.pop(source.name)}) if source.name in names else None
            )
        )

    def link(self, source: Path, target: Path) -> None:
        node = self._file(source)
        self._step("link", target)
        self.tree[target.parent].change(lambda names: names.update({target.name: node}))

    def unlink(self, path: Path) -> None:
        if self.is_directory(path):
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        self._file(path)
        self._step("unlink", path)
        self.tree[path.parent].change(lambda names: names.pop(path.name, None))

    def free_bytes(self, path: Path) -> int:
        self._directory(path)
        return self.free

    def _step(self, call: str, path: Path) -> None:
        self.calls.append((call, path.name))
        self.fault(len(self.calls), call)

    def _sync(self, call: str, fd: int) -> None:
        node = self._fds[fd]
        try:
            self._step(call, Path(str(fd)))
        except OSError:
            node.pending.clear()
            raise
        node.keep(len(node.pending))

    def _put(self, fd: int, content: bytes, offset: int) -> None:
        """Add the write as two changes, so that a power cut can tear it."""
        half = len(content) // 2
        self._put_at(fd, content[:half], offset)
        self._put_at(fd, content[half:], offset + half)

    def _put_at(self, fd: int, content: bytes, offset: int) -> None:
        def step(seen: bytearray) -> None:
            seen.extend(bytes(max(0, offset - len(seen))))
            seen[offset : offset + len(content)] = content

        self._fds[fd].change(step)

    def _fd(self, node: Node[bytearray]) -> int:
        self._next_fd += 1
        self._fds[self._next_fd] = node
        return self._next_fd

    def _is_linked(self, path: Path) -> bool:
        child = self.tree[path]
        for parent, name in links_of(path):
            directory = self.tree.get(parent)
            if directory is None or directory.now.get(name) is not child:
                return False
            child = directory
        return True

    def _directory(self, path: Path) -> Node[dict[str, Node[Any]]]:
        if path not in self.tree or not self._is_linked(path):
            raise FileNotFoundError(errno.ENOENT, "no such directory")
        return self.tree[path]

    def _entries(self, path: Path) -> dict[str, Node[Any]]:
        return self.tree[path].now if path in self.tree and self._is_linked(path) else {}

    def _file(self, path: Path) -> Node[bytearray]:
        node = self._entries(path.parent).get(path.name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file")
        return node
