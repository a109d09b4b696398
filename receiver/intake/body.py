"""Reading a body: as fast as the floor asks, up to the limit, within the claim.

Keeps: memory is claimed by what arrived, not by what was announced beyond the claim. Of a body on the
    shortcut one read and less than `arriving.STEP_BYTES` may be there that is not claimed yet.
Never: an answer to a sender that is too slow. OTLP clients do not retry a 408, but they do retry a closed
connection, so it is closed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from aiohttp.web_protocol import RequestPayloadError

from receiver.errors import BodyTooLarge, MemoryBudgetSpent
from receiver.intake.admission import Claim
from receiver.settings import Limits
from receiver.sizes import size_text

GAVE_WAY = "the body came slowly and others needed its room; expected to come again"
SENDER_GONE = (ConnectionError, RequestPayloadError, RuntimeError)
"""What a payload raises when its connection is lost."""


class Payload(Protocol):
    """A body on its way: aiohttp's `StreamReader`, or ours (see `receiver/intake/arriving_body.py`)."""

    total_bytes: int
    """So much has arrived."""

    def is_eof(self) -> bool:
        """Tell whether all of it has arrived."""

    def read_nowait(self) -> bytes:
        """Give what has arrived."""

    async def readany(self) -> bytes:
        """Wait for more and give it; nothing: the body has ended."""

    def set_exception(self, exc: BaseException) -> None:
        """Tell whoever reads that the rest does not come."""


class BodyTooSlow(Exception):  # noqa: N818 - told to nobody: the connection is closed
    """The body came slower than the floor allows."""


class SenderGone(Exception):  # noqa: N818 - told to nobody: nobody is there
    """The connection ended before the body did."""


class BadFraming(Exception):  # noqa: N818 - becomes a 400
    """What came instead of the rest of the body is not HTTP."""


@dataclass(frozen=True, slots=True)
class SpeedFloor:
    """How slow a body may be."""

    grace_s: float
    bytes_per_s_min: int
    total_s: float

    def allowed_s(self, received_bytes: int) -> float:
        """Give the time that a body may take for so many bytes."""
        return min(self.grace_s + received_bytes / self.bytes_per_s_min, self.total_s)


def speed_floor(limits: Limits) -> SpeedFloor:
    """Give the floor that these settings mean."""
    return SpeedFloor(limits.body_grace_s, limits.body_bytes_per_s_min, limits.body_timeout_s)


def refuse_over(size_bytes: int, bytes_max: int) -> None:
    """Refuse a body, declared or real, that is over its limit."""
    if size_bytes > bytes_max:
        raise BodyTooLarge(f"body is over the limit; expected at most {size_text(bytes_max)}")


async def read(payload: Payload, claim: Claim, *, bytes_max: int, floor: SpeedFloor) -> bytes:
    """Read a whole body. Raises `BodyTooLarge`, `MemoryBudgetSpent`, `BodyTooSlow` or `SenderGone`."""
    try:
        if payload.is_eof():
            return _checked(payload.read_nowait(), claim, bytes_max)
        return await _gather(payload, claim, bytes_max, floor)
    except SENDER_GONE as reason:
        raise SenderGone from reason


def _checked(body: bytes, claim: Claim, bytes_max: int) -> bytes:
    refuse_over(len(body), bytes_max)
    claim.grow_to(len(body))
    return body


async def _gather(payload: Payload, claim: Claim, bytes_max: int, floor: SpeedFloor) -> bytes:
    claim.when_dismissed = lambda: payload.set_exception(MemoryBudgetSpent(GAVE_WAY))
    pieces: list[bytes] = []
    received_bytes = 0
    patience = _Patience(payload, floor)
    try:
        while piece := await payload.readany():
            received_bytes += len(piece)
            refuse_over(received_bytes, bytes_max)
            claim.grow_to(received_bytes)
            pieces.append(piece)
    finally:
        patience.end()
    return b"".join(pieces)


class _Patience:
    """Ends a body that is too slow. Its timer is not set anew for each piece: it looks when it is due."""

    def __init__(self, payload: Payload, floor: SpeedFloor) -> None:
        self._payload, self._floor = payload, floor
        self._loop = asyncio.get_running_loop()
        self._begun_at = self._loop.time()
        self._timer = self._loop.call_at(self._ends_at(), self._look)

    def end(self) -> None:
        """Nobody waits any more."""
        self._timer.cancel()

    def _ends_at(self) -> float:
        return self._begun_at + self._floor.allowed_s(self._payload.total_bytes)

    def _look(self) -> None:
        if self._payload.is_eof():
            return
        ends_at = self._ends_at()
        if ends_at > self._loop.time():
            self._timer = self._loop.call_at(ends_at, self._look)
        else:
            self._payload.set_exception(BodyTooSlow())
