"""Fast path of a connection: a delivery with the same head as one accepted before on it bypasses aiohttp.

    known head, complete body ─▶ FastPath.handle ─▶ write ─▶ next
    known head, partial body ─▶ DeliveryHandler.answer_known ─▶ write ─▶ next
    anything else ─▶ aiohttp

The bytes that aiohttp's parser is fed are counted. The fast path is used only if these were exactly the head
and body of one request, so that the parser is at the start of a request.

Invariant: one request at a time; the bytes after it are held until it is answered. Limits, deadlines, counts
    and the way a connection is closed are the same as without the fast path.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from receiver.http.parser import HEAD_BYTES_MAX
from receiver.intake.admission import announced_bytes_max
from receiver.intake.arriving_body import ArrivingBody
from receiver.intake.handler import HEAD
from receiver.intake.known_heads import HEAD_END, head_bytes
from receiver.intake.protocol import INTERNAL_ERROR, READ_BUFFER_BYTES, IntakeProtocol
from receiver.logs import limited

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from receiver.intake.answers import Reply
    from receiver.intake.fast_path import KnownHead

KNOWN_HEAD_BYTES_MAX = 4 * 1024
"""A longer head is not remembered: every connection has its own."""


class FastPathProtocol(IntakeProtocol):
    """`IntakeProtocol` with the fast path."""

    __slots__ = (
        "_answer_task",
        "_arriving",
        "_bytes_fed",
        "_delivery_handler",
        "_first",
        "_held",
        "_is_answering",
        "_known",
    )

    def __init__(self, *args: Any, **settings: Any) -> None:  # noqa: ANN401 - see `IntakeProtocol`
        super().__init__(*args, **settings)
        self._bytes_fed = 0
        """Bytes that aiohttp's parser was fed since the start of a request."""
        self._first = b""
        """The first of these bytes, enough for a head."""
        self._delivery_handler = self._intake.delivery_handler
        self._known: KnownHead | None = None
        """The head of the last accepted delivery."""
        self._arriving: ArrivingBody | None = None
        """The incomplete body of a request on the fast path."""
        self._held = b""
        """Bytes received after the body of the current request."""
        self._is_answering = False
        """A request on the fast path is being answered."""
        self._answer_task: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        """Handle the bytes on the fast path if possible, otherwise by aiohttp."""
        if self._is_broken or self._is_closing:
            super().data_received(data)
        elif self._arriving is not None:
            self._note_activity()
            self._hold(self._arriving.feed(data))
        elif self._is_answering:
            self._note_activity()
            self._hold(data)
        elif not self._try_fast_path(data):
            if HEAD_END not in self._first:
                first, end, _ = (self._first + data[:HEAD_BYTES_MAX]).partition(HEAD_END)
                self._first = (first + end)[:HEAD_BYTES_MAX]
            self._bytes_fed += len(data)
            super().data_received(data)

    def _try_fast_path(self, data: bytes) -> bool:
        """Handle a delivery whose head is known. Return False if aiohttp must parse the bytes."""
        known = self._known
        if known is None or self._bytes_fed or self._force_close:
            return False
        body_position = known.pattern.match(data)
        if body_position is None or not self._delivery_handler.is_in_force(known.head):
            return False
        length_bytes, start = body_position
        end = start + length_bytes
        if length_bytes > known.head.route.body_bytes_max:
            return False
        if self._is_idle:
            self._note_activity()
        self._request_count += 1
        self._is_answering = True
        if end <= len(data) and length_bytes <= known.inline_bytes_max:
            if end < len(data):
                self._hold(data[end:])
            self._answer_whole(known, data[start:end])
        else:
            claimed_bytes = announced_bytes_max(is_known=known.head.shows_token)
            self._open_payload = self._arriving = ArrivingBody(length_bytes, claimed_bytes)
            self._hold(self._arriving.feed(data[start:]))
            self._answer_task = self._loop.create_task(self._take(known, length_bytes, self._arriving))
        return True

    def _hold(self, data: bytes) -> None:
        """Keep bytes that follow the current request until it is answered."""
        if data:
            self._held += data
            if len(self._held) > READ_BUFFER_BYTES:
                self._pause_transport_reading()

    def _answer_whole(self, known: KnownHead, raw: bytes) -> None:
        """Answer a complete delivery without a task."""
        self._open_payload = None
        try:
            self._delivery_handler.fast_path.handle(known, raw, self._answer)
        except Exception as reason:  # noqa: BLE001 - as in `_take`
            limited.error("unforeseen", "request failed with an unexpected error", exc_info=reason)
            self._answer(INTERNAL_ERROR)

    def _answer(self, reply: Reply) -> None:
        """Send the reply to a complete delivery; only a peer that is slow to read needs a task."""
        transport = self.transport
        if self._paused or transport is None:
            self._answer_task = self._loop.create_task(self._answer_slowly(reply))
            return
        is_over = self._must_close(reply)
        transport.write(reply.wire(close=is_over, bodyless=False))
        self._answered_count += 1
        self._finish_answer(is_over=is_over)

    async def _answer_slowly(self, reply: Reply) -> None:
        self._finish_answer(is_over=await self._send(reply, is_unread=False, may_stay=True))

    async def _take(self, known: KnownHead, length_bytes: int, arriving: ArrivingBody) -> None:
        """Answer a delivery whose body is still arriving, then continue with the bytes after it."""
        try:
            reply = await self._delivery_handler.answer_known(known, length_bytes, arriving)
        except Exception as reason:  # noqa: BLE001 - the sender gets 503 and retries
            limited.error("unforeseen", "request failed with an unexpected error", exc_info=reason)
            reply = INTERNAL_ERROR
        is_over = await self._send(reply, is_unread=not arriving.is_eof(), may_stay=True)
        self._arriving = None
        self._finish_answer(is_over=is_over)

    def _finish_answer(self, *, is_over: bool) -> None:
        """Continue with the bytes after the answered delivery, or close the connection."""
        if is_over:
            self._is_answering = False
            self.force_close()
            return
        self._last_activity_at = now = self._loop.time()
        if self._held:
            self._closes_at = now + self._header_timeout_s
            # Not called directly: a thousand small requests in one read would recurse a thousand calls deep.
            self._loop.call_soon(self._parse_held)
        else:
            self._is_answering = False
            self._become_idle(now)

    def _parse_held(self) -> None:
        self._is_answering = False
        held, self._held = self._held, b""
        if self.transport is not None:
            self._resume_transport_reading()
            self.data_received(held)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the body that was being read with an error."""
        if self._arriving is not None and not self._arriving.is_eof():
            self._arriving.set_exception(ConnectionResetError("the connection is lost"))
        super().connection_lost(exc)

    def _is_between_requests(self) -> bool:
        """Return whether the parser certainly holds no part of a head; the byte count shows it, too."""
        return not self._bytes_fed or super()._is_between_requests()

    def _remember(self, request: BaseRequest, *, is_accepted: bool) -> None:
        """Remember this head if the parser was fed exactly this request."""
        body_bytes = int(request.headers.get("Content-Length", "0"))
        pattern = head_bytes(self._first, self._bytes_fed, body_bytes)
        if pattern is None:
            return
        is_short = self._bytes_fed - body_bytes <= KNOWN_HEAD_BYTES_MAX
        self._bytes_fed, self._first = 0, b""
        head = request.get(HEAD)
        if is_accepted and is_short and head is not None and not head.expects_continue:
            self._known = self._delivery_handler.fast_path.learn(head, pattern)
