"""Body of a delivery: its bytes as they arrive, read within the minimum speed, size limit and memory claim.

Invariant: beyond the initial claim, memory is claimed as bytes arrive, not for declared bytes. On the fast
path, one read and up to `STEP_BYTES` may have arrived that are not claimed yet.
Never: answers a sender that is too slow. OTLP clients do not retry after a 408, but they do retry after a
closed connection, so the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from aiohttp.web_protocol import RequestPayloadError

from receiver.errors import BodyTooLarge, MemoryBudgetSpent
from receiver.intake.admission import Claim
from receiver.settings import KIB, Limits
from receiver.sizes import size_text

STEP_BYTES = 64 * KIB
"""Bytes that may have arrived beyond the claim before the reader is woken."""
PREEMPTED = "the body arrived slowly and other bodies needed its memory; send it again"
SENDER_GONE = (ConnectionError, RequestPayloadError, RuntimeError)
"""Errors that a payload raises when its connection is lost."""


class Payload(Protocol):
    """A body that is arriving: aiohttp's `StreamReader` or our `ArrivingBody`."""

    total_bytes: int
    """Bytes that have arrived."""

    def is_eof(self) -> bool:
        """Return whether the whole body has arrived."""

    def read_nowait(self) -> bytes:
        """Return the bytes that have arrived."""

    async def readany(self) -> bytes:
        """Wait for more bytes and return them; empty at the end of the body."""

    def set_exception(self, exc: BaseException) -> None:
        """Raise `exc` in the reader: the rest of the body will not arrive."""


class ArrivingBody:
    """The bytes of one body of known length, without the bytes that follow it on the connection.

    The reader is woken only when the body is complete or when more has arrived than was claimed for it: each
    wake-up costs an iteration of the event loop, and a body of 280 kB arrives in many pieces.
    """

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


class BodyTooSlow(Exception):  # noqa: N818 - never answered: the connection is closed
    """The body arrived more slowly than the minimum speed."""


class SenderGone(Exception):  # noqa: N818 - never answered: the peer has closed
    """The connection ended before the body was complete."""


@dataclass(frozen=True, slots=True)
class SpeedFloor:
    """The minimum speed of a body."""

    grace_s: float
    bytes_per_s_min: int
    total_s: float

    def allowed_s(self, received_bytes: int) -> float:
        """Return the time that a body may take for this many bytes."""
        return min(self.grace_s + received_bytes / self.bytes_per_s_min, self.total_s)


def speed_floor(limits: Limits) -> SpeedFloor:
    """Return the minimum speed that these limits set."""
    return SpeedFloor(limits.body_grace_s, limits.body_bytes_per_s_min, limits.body_timeout_s)


def refuse_over(size_bytes: int, bytes_max: int) -> None:
    """Raise `BodyTooLarge` if a declared or actual size is over the limit."""
    if size_bytes > bytes_max:
        raise too_large(bytes_max)


def too_large(bytes_max: int) -> BodyTooLarge:
    """Return the error for a body over this limit."""
    return BodyTooLarge(f"body is over the limit; expected at most {size_text(bytes_max)}")


async def read(payload: Payload, claim: Claim, *, bytes_max: int, floor: SpeedFloor) -> bytes:
    """Read a whole body. Raises `BodyTooLarge`, `MemoryBudgetSpent`, `BodyTooSlow` or `SenderGone`."""
    try:
        if payload.is_eof():
            return _checked(payload.read_nowait(), claim, bytes_max)
        return await _gather(payload, claim, bytes_max, floor)
    except SENDER_GONE as error:
        raise SenderGone from error


def _checked(body: bytes, claim: Claim, bytes_max: int) -> bytes:
    refuse_over(len(body), bytes_max)
    claim.grow_to(len(body))
    return body


async def _gather(payload: Payload, claim: Claim, bytes_max: int, floor: SpeedFloor) -> bytes:
    # A dismissed body fails in its reader, so that its sender gets a 503 instead of silence.
    claim.on_dismissed = lambda: payload.set_exception(MemoryBudgetSpent(PREEMPTED))
    pieces: list[bytes] = []
    received_bytes = 0
    timer = _SlowBodyTimer(payload, floor)
    try:
        while piece := await payload.readany():
            received_bytes += len(piece)
            # A chunked body declares no length, so its size is checked as it arrives.
            refuse_over(received_bytes, bytes_max)
            claim.grow_to(received_bytes)
            pieces.append(piece)
    finally:
        timer.cancel()
    return b"".join(pieces)


class _SlowBodyTimer:
    """Timer that ends a body below the minimum speed. Checks when it is due; no piece restarts it."""

    def __init__(self, payload: Payload, floor: SpeedFloor) -> None:
        self._payload, self._floor = payload, floor
        self._loop = asyncio.get_running_loop()
        self._begun_at = self._loop.time()
        self._timer = self._loop.call_at(self._ends_at(), self._check)

    def cancel(self) -> None:
        """Cancel the timer: the body was read or refused."""
        self._timer.cancel()

    def _ends_at(self) -> float:
        return self._begun_at + self._floor.allowed_s(self._payload.total_bytes)

    def _check(self) -> None:
        if self._payload.is_eof():
            return
        ends_at = self._ends_at()
        if ends_at > self._loop.time():
            self._timer = self._loop.call_at(ends_at, self._check)
        else:
            self._payload.set_exception(BodyTooSlow())
