"""A disk that refuses the n-th call of commits and hand-overs, for every n: once, or from then on.

The scenario is that of `hand_over`; what it does to its files goes through `Disk`, so that each call can be
refused here, in this process, hundreds of times a minute. What meets an error it cannot deal with ends, as
its process would, and the next one begins.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from receiver.durable.files import Disk
from receiver.errors import OperatorError
from tests.crash.aftermath import Said, assert_promises_are_kept
from tests.crash.hand_over import live

CALLS_MAX = 2_000
LOOKS = frozenset({"open", "read", "names", "size_bytes", "free_bytes"})
CHANGES = frozenset(
    {
        *("create", "write", "truncate", "sync_data", "sync", "sync_directory"),
        *("make_directory", "remove_directory", "rename", "unlink"),
    }
)


@dataclass
class Refusal:
    """From the n-th call on, once or always."""

    code: int
    calls: frozenset[str]
    at: int
    lasts: bool
    seen: int = 0

    def stands_in_the_way(self, call: str) -> bool:
        """Count a call; whether it is refused."""
        if call not in self.calls:
            return False
        self.seen += 1
        return self.seen == self.at or (self.lasts and self.seen > self.at)

    @property
    def is_met(self) -> bool:
        return self.seen >= self.at


@contextmanager
def a_life_with(refusal: Refusal) -> Iterator[None]:
    """Every `Disk` of this process refuses so; at the end what is open is closed, as when a process ends."""
    fds: set[int] = set()
    with pytest.MonkeyPatch.context() as patch:
        for name in LOOKS | CHANGES:
            patch.setattr(Disk, name, refusing(refusal, name, getattr(Disk, name)))
        for name in ("create", "open"):
            patch.setattr(Disk, name, noting(fds, getattr(Disk, name)))
        patch.setattr(Disk, "close", forgetting(fds, Disk.close))
        yield
    for fd in fds:
        os.close(fd)


def noting(fds: set[int], call: Callable[..., int]) -> Callable[..., int]:
    def called(self: Disk, path: Path) -> int:
        fd = call(self, path)
        fds.add(fd)
        return fd

    return called


def forgetting(fds: set[int], call: Callable[..., None]) -> Callable[..., None]:
    def called(self: Disk, fd: int) -> None:
        fds.discard(fd)
        call(self, fd)

    return called


def refusing(refusal: Refusal, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, with what stands in its way. Half of a refused write is there."""

    def called(self: Disk, *arguments: Any) -> Any:  # noqa: ANN401 - of any call
        if not refusal.stands_in_the_way(name):
            return call(self, *arguments)
        if name == "write":
            fd, content, offset = arguments
            taken = call(self, fd, content[: len(content) // 2], offset)
            if refusal.code == SHORT:
                return taken
        raise OSError(refusal.code, os.strerror(refusal.code))

    return called


SHORT = 0
"""No error: the write takes half and says so."""


def survive(directory: Path, refusal: Refusal) -> None:
    """Live with it, or end with it; then the disk is well again, and the next one begins."""
    said = Said()
    with a_life_with(refusal), suppress(OSError, OperatorError):
        live(directory, said.hear)
        assert refusal.lasts or said.acknowledged == said.issued
    assert_promises_are_kept(directory, said)


@pytest.mark.fault(
    "ENOSPC, EIO, EMFILE, EROFS, short write at the n-th call, for all n, of commits and hand-overs"
)
@pytest.mark.parametrize("lasts", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize(
    ("code", "calls"),
    [
        pytest.param(errno.ENOSPC, CHANGES - {"unlink", "remove_directory", "truncate"}, id="ENOSPC"),
        pytest.param(errno.EIO, CHANGES, id="EIO when it changes something"),
        pytest.param(errno.EIO, LOOKS, id="EIO when it looks"),
        pytest.param(errno.EMFILE, frozenset({"create", "open", "read", "sync_directory"}), id="EMFILE"),
        pytest.param(errno.EROFS, CHANGES - {"sync_data", "sync", "sync_directory"} | {"open"}, id="EROFS"),
        pytest.param(SHORT, frozenset({"write"}), id="short write"),
    ],
)
def test_whichever_call_is_refused_promises_are_kept(
    quick_dir: Path, code: int, calls: frozenset[str], *, lasts: bool
) -> None:
    for at in range(1, CALLS_MAX):
        directory = quick_dir / str(at)
        directory.mkdir()
        refusal = Refusal(code, calls, at, lasts)

        survive(directory, refusal)

        shutil.rmtree(directory)
        if not refusal.is_met:
            return
    pytest.fail(f"more than {CALLS_MAX} calls; expected the scenario to need fewer")
