"""A file system in memory that forgets, fails and dies on command: `Files` for tests of the journal.

Everything has two states: what a process sees now, and what is kept by the medium. Changes wait until a
sync carries them over; a power cut keeps some first part of them. A failed sync of a file throws its
waiting writes away while the process goes on seeing them, and a later sync succeeds: what Linux does, and
why nobody may sync twice.
"""

from __future__ import annotations

import errno
import os
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

State = TypeVar("State", bytearray, dict[str, "Node[Any]"])


class Killed(BaseException):
    """The process died in the middle of a call."""


class Node(Generic[State]):
    """A file or a directory: what is seen, what is kept, and the changes in between."""

    def __init__(self, empty: State) -> None:
        self.now: State = empty
        self.kept: State = copy(empty)
        self.pending: list[Callable[[State], object]] = []

    def change(self, step: Callable[[State], object]) -> None:
        """Do it now, keep it later."""
        step(self.now)
        self.pending.append(step)

    def keep(self, count: int) -> None:
        """Carry the first changes over."""
        for step in self.pending[:count]:
            step(self.kept)
        del self.pending[:count]

    def lose(self) -> None:
        """Go back to what is kept."""
        self.now = copy(self.kept)
        self.pending = []


class MemoryDisk:
    """See above. `fault` is asked before each call that changes something and may raise."""

    def __init__(self) -> None:
        self.tree: dict[Path, Node[dict[str, Node[Any]]]] = {Path("/"): Node({})}
        self.calls: list[tuple[str, str]] = []
        self.fault: Callable[[int, str], None] = lambda _count, _call: None
        self.write_bytes_max = 1 << 30
        self.free = 1 << 40
        self._fds: dict[int, Node[bytearray]] = {}
        self._locks: dict[int, Node[bytearray]] = {}
        self._next_fd = 3

    # What a test does to it.

    def fail(self, *calls: str, code: int = errno.EIO, times: int = 1) -> None:
        """Let the next so many calls of each of these names fail."""
        left = dict.fromkeys(calls, times)

        def fault(_count: int, name: str) -> None:
            if left.get(name, 0):
                left[name] -= 1
                raise OSError(code, os.strerror(code))

        self.fault = fault

    def fail_nth(self, count: int, how: Callable[[], BaseException], *, for_ever: bool = False) -> None:
        """Let the n-th call from now fail, whatever it is, and perhaps all after it."""
        target = len(self.calls) + count

        def fault(at: int, _call: str) -> None:
            if at == target or (for_ever and at > target):
                raise how()

        self.fault = fault

    def heal(self) -> None:
        """Fail no more."""
        self.fault = lambda _count, _call: None

    def kill(self) -> None:
        """End the process: descriptors and locks go, everything written stays."""
        self.heal()
        self._fds.clear()
        self._locks.clear()

    def cut_power(self, pick: Callable[[int], int]) -> None:
        """End the machine. Of its waiting changes each file and directory keeps the first `pick(count)`."""
        self.kill()
        for node in self._nodes():
            node.keep(pick(len(node.pending)))
            node.lose()

    def scatter(self, is_kept: Callable[[], bool]) -> None:
        """End the machine. Each waiting change is kept or not, whatever became of those before it."""
        self.kill()
        for node in self._nodes():
            node.pending = [step for step in node.pending if is_kept()]
            node.keep(len(node.pending))
            node.lose()

    @property
    def descriptor_count(self) -> int:
        """How many descriptors were not given back."""
        return len(self._fds)

    def is_directory(self, path: Path) -> bool:
        """Whether a directory lies there."""
        return path in self.tree and self._is_linked(path)

    def _nodes(self) -> list[Node[Any]]:
        files: dict[int, Node[Any]] = {}
        for directory in self.tree.values():
            for node in (*directory.now.values(), *directory.kept.values()):
                files[id(node)] = node
            files[id(directory)] = directory
        return list(files.values())

    # What the journal asks of it.

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
        taken = bytes(content[: self.write_bytes_max])
        try:
            self._step("write", Path(str(fd)))
        except BaseException:
            self._put(fd, taken[: len(taken) // 2], offset)
            raise
        self._put(fd, taken, offset)
        return len(taken)

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

    def make_directory(self, path: Path) -> None:
        self._step("make_directory", path)
        if path.name in self._directory(path.parent).now:
            raise FileExistsError(errno.EEXIST, "exists")
        node: Node[dict[str, Node[Any]]] = Node({})
        self.tree[path] = node
        self.tree[path.parent].change(lambda names: names.update({path.name: node}))

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

    def unlink(self, path: Path) -> None:
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
        """Two changes: a power cut may tear a write."""
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
        return path == Path("/") or (
            path.parent in self.tree
            and self.tree[path.parent].now.get(path.name) is self.tree[path]
            and self._is_linked(path.parent)
        )

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
