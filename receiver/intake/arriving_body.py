"""A body whose length is known, as its bytes arrive. Fits `receiver.intake.body.Payload`.

Whoever reads it is woken when it is whole, or when more has come than was claimed for it: each waking costs
a turn of the event loop, and a body of 280 kB comes in many pieces.
"""

from __future__ import annotations

import asyncio
from collections import deque

from receiver.settings import KIB

STEP_BYTES = 64 * KIB
"""So much may have arrived beyond what was claimed."""


class ArrivingBody:
    """The bytes of one body, and nothing of what comes after it."""

    __slots__ = ("_left_bytes", "_pieces", "_trouble", "_waiter", "_wake_bytes", "total_bytes")

    def __init__(self, length_bytes: int, claimed_bytes: int = 0) -> None:
        """`claimed_bytes`: whoever reads it need not know of so many."""
        self._left_bytes = length_bytes
        self._wake_bytes = max(claimed_bytes, STEP_BYTES)
        self.total_bytes = 0
        """So much has arrived."""
        self._pieces: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._trouble: BaseException | None = None

    def feed(self, data: bytes) -> bytes:
        """Take what belongs to the body; give back the rest."""
        mine = data[: self._left_bytes]
        if mine:
            self._left_bytes -= len(mine)
            self.total_bytes += len(mine)
            self._pieces.append(mine)
            if self._is_worth_reading:
                self._wake()
        return data[len(mine) :]

    def is_eof(self) -> bool:
        """Tell whether all of it has arrived."""
        return not self._left_bytes

    def read_nowait(self) -> bytes:
        """Give what has arrived and was not given yet."""
        pieces, self._pieces = self._pieces, deque()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def readany(self) -> bytes:
        """Give one piece, or wait until more are worth it; nothing: the body has ended."""
        while not self._is_worth_reading and self._trouble is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._trouble is not None:
            raise self._trouble
        if not self._pieces:
            return b""
        piece = self._pieces.popleft()
        if not self._pieces:
            self._wake_bytes = max(self._wake_bytes, self.total_bytes + STEP_BYTES)
        return piece

    def set_exception(self, exc: BaseException) -> None:
        """Tell whoever reads that the rest does not come."""
        self._trouble = exc
        self._wake()

    @property
    def _is_worth_reading(self) -> bool:
        return not self._left_bytes or self.total_bytes >= self._wake_bytes

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
