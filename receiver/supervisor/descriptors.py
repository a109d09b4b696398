"""File descriptors kept in reserve, so that a process can be replaced when all others are in use.

Invariant: no code awaits between taking descriptors from the reserve and refilling it, so no other code gets
them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from receiver.logs import limited

RESERVED = 32
"""Starting a process needs 6 descriptors and keeps 1, so the reserve allows many starts."""


class DescriptorReserve:
    """Descriptors that are held open on /dev/null until they are needed."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self.refill()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Free the reserve for the calls inside, which must not await, and refill it afterwards."""
        self.close()
        try:
            yield
        finally:
            self.refill()

    def refill(self) -> None:
        """Open descriptors until the reserve is full; log an error if none is left."""
        try:
            while len(self._held) < RESERVED:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            limited.error(
                "descriptors",
                "supervisor has no file descriptors left",
                error=error.strerror,
                action="replacements of processes use reserved descriptors; raise LimitNOFILE",
                reserve=len(self._held),
            )

    def close(self) -> None:
        """Free the reserve."""
        while self._held:
            with suppress(OSError):
                os.close(self._held.pop())
