"""Fast path of a connection: a delivery whose head equals that of an accepted delivery bypasses aiohttp.

    known head, one complete delivery ─▶ `FastConnection` of the core ─▶ `BatchHandler`
    known head, complete body ─▶ DeliveryHandler.answer_complete ─▶ write ─▶ next
    known head, partial body ─▶ DeliveryHandler.answer_arriving ─▶ write ─▶ next
    anything else ─▶ aiohttp

The bytes that aiohttp's parser is fed are counted. The fast path is used only if these were exactly the head
and body of one request, so that the parser is at the start of a request.

Invariant: one request at a time; bytes after the request are held until it is answered. Limits, deadlines,
counts and the way a connection is closed are the same as without the fast path.
"""

from __future__ import annotations

import asyncio

from aiohttp.web_request import BaseRequest

from receiver.http.parser import HEAD_BYTES_MAX
from receiver.intake.admission import announced_bytes_max
from receiver.intake.answers import Reply
from receiver.intake.connections.body import ArrivingBody
from receiver.intake.connections.listener import AcceptedConnection
from receiver.intake.connections.protocol import INTERNAL_ERROR, READ_BUFFER_BYTES, IntakeProtocol
from receiver.intake.endpoint import Endpoint
from receiver.intake.handler import HEAD
from receiver.intake.head import Head
from receiver.intake.known_heads import HEAD_END, known_head
from receiver.logs import limited
from receiver.transcode import FastConnection, KnownHead

KNOWN_HEAD_BYTES_MAX = 4 * 1024
"""Maximum length of a remembered head: every connection keeps its own copy."""


class FastPathProtocol(IntakeProtocol):
    """`IntakeProtocol` with the fast path."""

    __slots__ = (
        "_answer_task",
        "_arriving",
        "_bytes_fed",
        "_delivery_handler",
        "_fast",
        "_first",
        "_held",
        "_is_answering",
        "_known_bytes",
        "data_received",
        "known_head",
    )

    def __init__(self, endpoint: Endpoint, connection: AcceptedConnection) -> None:
        super().__init__(endpoint, connection)
        self._bytes_fed = 0
        """Bytes that aiohttp's parser was fed since the start of a request."""
        self._first = b""
        """Beginning of these bytes, long enough for a head."""
        self._delivery_handler = endpoint.delivery_handler
        self.known_head: Head | None = None
        """The head of the last accepted delivery."""
        self._known_bytes = KnownHead(b"", b"")
        """The bytes of that head."""
        self._arriving: ArrivingBody | None = None
        """The incomplete body of a request on the fast path."""
        self._held = b""
        """Bytes received after the body of the current request."""
        self._is_answering = False
        """Whether a request on the fast path is being answered."""
        self._answer_task: asyncio.Task[None] | None = None
        self._fast = FastConnection(endpoint.fast_path, self, self._receive)
        self.data_received = self._fast  # type: ignore[method-assign] # a call of Python less for each delivery

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.transport is not None:
            self._fast.write = self.transport.write

    def _receive(self, data: bytes) -> None:
        """Handle the bytes on the fast path if possible, otherwise by aiohttp."""
        self.catch_up()
        if self._is_broken or self._is_closing:
            super().data_received(data)
        elif self._arriving is not None:
            self._note_activity()
            self._hold(self._arriving.feed(data))
        elif self._is_answering or self._fast.is_waiting:
            self._note_activity()
            self._hold(data)
        elif not self._try_fast_path(data):
            # Only the head is kept for `_remember`; a body would be held in memory twice.
            if HEAD_END not in self._first:
                first, end, _ = (self._first + data[:HEAD_BYTES_MAX]).partition(HEAD_END)
                self._first = (first + end)[:HEAD_BYTES_MAX]
            self._bytes_fed += len(data)
            super().data_received(data)

    def catch_up(self) -> None:
        """Note what the core took and answered since the last call."""
        answered, answered_at = self._fast.take_answered()
        if answered:
            self.request_count += answered
            self._answered_count += answered
            self._last_activity_at = answered_at
            self._mark_active()
            super()._become_idle(answered_at)
        if self._fast.is_waiting:
            self._mark_active()

    def _mark_active(self) -> None:
        # Not for held bytes: the connection did not become idle before them.
        if self._is_idle:
            self._is_idle = False
            self._connection.mark_active()

    def take_back(self, data: bytes) -> None:
        """Handle bytes that the core could not have taken."""
        self._fast.is_ready = False
        held, self._held = self._held, b""
        self._receive(data + held)

    def answer_collected(self, reply: Reply) -> None:
        """Send the reply to a delivery that the core collected, as on the fast path without the core."""
        self._fast.is_waiting = self._fast.is_ready = False
        self.catch_up()
        self._mark_active()
        self.request_count += 1
        self._is_answering = True
        self._answer(reply)

    def _try_fast_path(self, data: bytes) -> bool:
        """Handle a delivery whose head is known. Return False if aiohttp must parse the bytes."""
        request_head = self.known_head
        # Bytes that aiohttp was fed since the last request may be the start of a head, which it must finish.
        if request_head is None or self._bytes_fed or self.is_force_closed:
            return False
        body_position = self._known_bytes.match(data)
        # After a reload the routes are another object, so every remembered head is checked again by aiohttp.
        if body_position is None or request_head.routes is not self._delivery_handler.routes:
            return False
        length_bytes, start = body_position
        end = start + length_bytes
        # aiohttp's path answers 413 in the same way as without the fast path.
        if length_bytes > request_head.route.body_bytes_max:
            return False
        self._mark_active()
        # Counted as aiohttp counts its requests, because `is_working` compares requests with answers.
        self.request_count += 1
        self._is_answering = True
        # A larger body is verified in a thread, and waiting for the thread needs a task.
        if end <= len(data) and length_bytes <= request_head.inline_bytes_max:
            if end < len(data):
                self._hold(data[end:])
            self._answer_complete(request_head, data[start:end])
        else:
            # The same as the initial claim in `admit`: the reader need not be woken for bytes that are
            # claimed.
            claimed_bytes = announced_bytes_max(is_known=request_head.shows_token)
            self._open_payload = self._arriving = ArrivingBody(length_bytes, claimed_bytes)
            self._hold(self._arriving.feed(data[start:]))
            self._answer_task = self.loop.create_task(
                self._answer_partial(request_head, length_bytes, self._arriving)
            )
        return True

    def _hold(self, data: bytes) -> None:
        """Keep bytes that follow the current request until it is answered."""
        if data:
            self._held += data
            self._fast.direct_answers = 0
            # A sender that pipelines must not fill the memory.
            if len(self._held) > READ_BUFFER_BYTES:
                self.pause_transport_reading()

    def _answer_complete(self, request_head: Head, raw: bytes) -> None:
        """Answer a complete delivery without a task."""
        self._open_payload = None
        try:
            self._delivery_handler.answer_complete(request_head, raw, self._answer)
        except Exception as error:  # noqa: BLE001 - as in `_answer_partial`
            limited.error("unforeseen", "request failed with an unexpected error", exc_info=error)
            self._answer(INTERNAL_ERROR)

    def _answer(self, reply: Reply) -> None:
        """Send the reply to a complete delivery. Needs a task only for a peer that is slow to read."""
        transport = self.transport
        if self.is_writing_paused or transport is None:
            self._answer_task = self.loop.create_task(self._answer_slowly(reply))
            return
        is_over = self._must_close(reply)
        transport.write(reply.wire(close=is_over, bodyless=False))
        self._answered_count += 1
        self._finish_answer(is_over=is_over)

    async def _answer_slowly(self, reply: Reply) -> None:
        self._finish_answer(is_over=await self._send(reply, is_unread=False, may_stay=True))

    async def _answer_partial(self, request_head: Head, length_bytes: int, arriving: ArrivingBody) -> None:
        """Answer a delivery whose body is still arriving, then continue with the bytes after it."""
        try:
            reply = await self._delivery_handler.answer_arriving(request_head, length_bytes, arriving)
        except Exception as error:  # noqa: BLE001 - the sender gets 503 and retries
            limited.error("unforeseen", "request failed with an unexpected error", exc_info=error)
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
        self._last_activity_at = now = self.loop.time()
        if self._held:
            self._closes_at = now + self._header_timeout_s
            # Not called directly: a thousand small requests in one read would recurse a thousand calls deep.
            self.loop.call_soon(self._parse_held)
        else:
            self._is_answering = False
            self._become_idle(now)

    def _parse_held(self) -> None:
        self._is_answering = False
        held, self._held = self._held, b""
        if self.transport is not None:
            self.resume_transport_reading()
            self._receive(held)

    def _become_idle(self, now: float) -> None:
        super()._become_idle(now)
        self._fast.is_ready = not self._bytes_fed
        if not (self._half_closed or self.is_writing_paused):
            self._fast.direct_answers = max(0, self._answers_max - self._answered_count)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._fast.direct_answers = 0

    def eof_received(self) -> bool:  # type: ignore[override] # as in `IntakeProtocol`
        self._fast.direct_answers = 0
        return super().eof_received()

    @property
    def is_working(self) -> bool:
        return self._fast.is_waiting or super().is_working

    def idle_s(self, now: float) -> float:
        self.catch_up()
        return super().idle_s(now)

    def check_keepalive(self) -> None:
        self.catch_up()
        super().check_keepalive()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the body that was being read with an error."""
        self._fast.close()
        # aiohttp does not know this body, so it would leave its reader waiting.
        if self._arriving is not None and not self._arriving.is_eof():
            self._arriving.set_exception(ConnectionResetError("the connection is lost"))
        super().connection_lost(exc)

    def _is_between_requests(self) -> bool:
        """Return whether the parser certainly holds no part of a head; the byte count shows it, too."""
        return not self._bytes_fed or super()._is_between_requests()

    def _remember(self, request: BaseRequest, *, is_accepted: bool) -> None:
        """Remember this head if the parser was fed exactly this request."""
        body_bytes = int(request.headers.get("Content-Length", "0"))
        pattern = known_head(self._first, self._bytes_fed, body_bytes)
        # Pipelined bytes: the count is never reset, which ends the use of the fast path on this connection.
        if pattern is None:
            return
        is_short = self._bytes_fed - body_bytes <= KNOWN_HEAD_BYTES_MAX
        self._bytes_fed, self._first = 0, b""
        head = request.get(HEAD)
        # The fast path skips all checks of the head, so only a head that passed them is remembered. It sends
        # no `100 Continue`, so a head that asks for it goes to aiohttp each time.
        if is_accepted and is_short and head is not None and not head.expects_continue:
            self.known_head, self._known_bytes = self._delivery_handler.with_sender(head), pattern
            self._fast.learn(pattern, self._endpoint.batch_handler.sender_of(self.known_head))
