"""Faults at the calls of `Disk`, through which the receiver changes all its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from receiver.durable.files import Disk

READ_CALLS = frozenset({"open", "read", "read_head", "names", "size_bytes", "free_bytes"})
SYNC_CALLS = frozenset({"sync_data", "sync", "sync_directory", "sync_file_system"})
WRITE_CALLS = SYNC_CALLS | {
    *("create", "write", "truncate", "rename", "link", "unlink"),
    *("make_directory", "set_mode", "remove_directory"),
}
UNAFFECTED_CALLS = frozenset({"close", "lock", "is_at"})
"""Calls that never fail here: a process that ends performs them, too."""
CALLS_MAX = 4_000


@dataclass
class DiskFault:
    """The n-th call of `calls` fails, and with `is_permanent` all later ones do."""

    calls: frozenset[str]
    at: int
    is_permanent: bool
    error: Callable[[], BaseException] | None
    """`None`: the call succeeds, but a write accepts only half of the bytes."""
    seen: int = 0

    def fails(self, call: str) -> bool:
        """Count a call. Return whether it fails."""
        if call not in self.calls:
            return False
        self.seen += 1
        return self.seen == self.at or (self.is_permanent and self.seen > self.at)

    @property
    def is_reached(self) -> bool:
        return self.seen >= self.at


def faults_at_each_call(
    calls: frozenset[str], error: Callable[[], BaseException] | None, *, is_permanent: bool, step: int = 1
) -> Iterator[DiskFault]:
    """Yield a fault at every `step`-th of these calls, until a run ends before the fault."""
    for at in range(1, CALLS_MAX, step):
        fault = DiskFault(calls, at, is_permanent, error)
        yield fault
        if not fault.is_reached:
            return
    pytest.fail(f"more than {CALLS_MAX} calls; expected the scenario to need fewer")


@contextmanager
def process_with(fault: DiskFault) -> Iterator[None]:
    """Inject the fault into every `Disk`. At the end close open files, as the end of a process does."""
    fds: set[int] = set()
    with pytest.MonkeyPatch.context() as patch:
        for name in READ_CALLS | WRITE_CALLS:
            patch.setattr(Disk, name, _failing(fault, name, getattr(Disk, name)))
        for name in ("create", "open"):
            patch.setattr(Disk, name, _recording(fds, getattr(Disk, name)))
        patch.setattr(Disk, "close", _forgetting(fds, Disk.close))
        yield
    for fd in fds:
        os.close(fd)


def _recording(fds: set[int], call: Callable[..., int]) -> Callable[..., int]:
    def wrapper(self: Disk, path: Path) -> int:
        fd = call(self, path)
        fds.add(fd)
        return fd

    return wrapper


def _forgetting(fds: set[int], call: Callable[..., None]) -> Callable[..., None]:
    def wrapper(self: Disk, fd: int) -> None:
        fds.discard(fd)
        call(self, fd)

    return wrapper


def _failing(fault: DiskFault, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a call so that it meets the fault. A failing write leaves half of its bytes."""

    def wrapper(self: Disk, *arguments: Any) -> Any:  # noqa: ANN401 - of any call
        if not fault.fails(name):
            return call(self, *arguments)
        if name == "write":
            fd, content, offset = arguments
            written_bytes = call(self, fd, content[: len(content) // 2], offset)
            if fault.error is None:
                return written_bytes
        assert fault.error is not None, "only a write can be short"
        raise fault.error()

    return wrapper
