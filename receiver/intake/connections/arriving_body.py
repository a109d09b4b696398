"""Arriving body: the bytes of a body of known length. Implements `receiver.intake.connections.body.Payload`.

The reader is woken only when the body is complete or when more has arrived than was claimed for it: each
wake-up costs an iteration of the event loop, and a body of 280 kB arrives in many pieces.
"""

from __future__ import annotations

import asyncio
from collections import deque

from receiver.settings import KIB

STEP_BYTES = 64 * KIB
"""Bytes that may have arrived beyond the claim before the reader is woken."""


class ArrivingBody:
    """The bytes of one body, without the bytes that follow it on the connection."""

    __slots__ = ("_error", "_left_bytes", "_pieces", "_waiter", "_wake_bytes", "total_bytes")

    def __init__(self, length_bytes: int, claimed_bytes: int = 0) -> None:
        """`claimed_bytes`: bytes that are claimed already, so that the reader need not be woken for them."""
        self._left_bytes = length_bytes
        self._wake_bytes = max(claimed_bytes, STEP_BYTES)
        self.total_bytes = 0
        """Bytes that have arrived."""
        self._pieces: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None

    def feed(self, data: bytes) -> bytes:
        """Take the bytes that belong to the body and return the rest."""
        # The rest is the beginning of a pipelined request.
        own = data[: self._left_bytes]
        if own:
            self._left_bytes -= len(own)
            self.total_bytes += len(own)
            self._pieces.append(own)
            if self._is_worth_reading:
                self._wake()
        return data[len(own) :]

    def is_eof(self) -> bool:
        """Return whether the whole body has arrived."""
        return not self._left_bytes

    def read_nowait(self) -> bytes:
        """Return the bytes that have arrived since the last read."""
        pieces, self._pieces = self._pieces, deque()
        # Most bodies arrive in one piece: avoid a copy.
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def readany(self) -> bytes:
        """Return one piece, after enough has arrived to wake the reader; empty at the end of the body."""
        while not self._is_worth_reading and self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        # Before the pieces that are left: an incomplete body is of no use.
        if self._error is not None:
            raise self._error
        if not self._pieces:
            return b""
        piece = self._pieces.popleft()
        if not self._pieces:
            # The reader claims all that has arrived, so the next step starts here.
            self._wake_bytes = max(self._wake_bytes, self.total_bytes + STEP_BYTES)
        return piece

    def set_exception(self, exc: BaseException) -> None:
        """Raise `exc` in the reader: the rest of the body will not arrive."""
        self._error = exc
        self._wake()

    @property
    def _is_worth_reading(self) -> bool:
        return not self._left_bytes or self.total_bytes >= self._wake_bytes

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
