"""A body whose length is known, as its bytes arrive. Fits `receiver.intake.body.Payload`."""

from __future__ import annotations

import asyncio


class Arriving:
    """The bytes of one body, and nothing of what comes after it."""

    __slots__ = ("_left_bytes", "_pieces", "_trouble", "_waiter")

    def __init__(self, length_bytes: int) -> None:
        self._left_bytes = length_bytes
        self._pieces: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._trouble: BaseException | None = None

    def feed(self, data: bytes) -> bytes:
        """Take what belongs to the body; give back the rest."""
        mine = data[: self._left_bytes]
        if mine:
            self._left_bytes -= len(mine)
            self._pieces.append(mine)
            self._wake()
        return data[len(mine) :]

    def is_eof(self) -> bool:
        """Tell whether all of it has arrived."""
        return not self._left_bytes

    def read_nowait(self) -> bytes:
        """Give what has arrived and was not given yet."""
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def readany(self) -> bytes:
        """Wait for more and give it; nothing: the body has ended."""
        while self._left_bytes and not self._pieces and self._trouble is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._trouble is not None:
            raise self._trouble
        return self.read_nowait()

    def set_exception(self, exc: BaseException) -> None:
        """Tell whoever reads that the rest does not come."""
        self._trouble = exc
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
