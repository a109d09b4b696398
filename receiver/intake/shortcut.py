"""A shortcut for the common case: a delivery whose head is that of one taken before on the same connection.

    known head, body by its length ─▶ Reception.answer_known ─▶ write ─▶ next
    anything else ─▶ aiohttp

aiohttp's parser is at the beginning of a request whenever the shortcut is taken, as its bytes are counted:
what it was fed is exactly the head and the body of one request. Where that is not so, there is no shortcut.

Keeps: one request at a time; what comes behind it is held until it is answered. Limits, deadlines, counts and
    the way a connection ends are those of every other request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from receiver.http.parser import HEAD_BYTES_MAX
from receiver.intake.admission import announced_bytes_max
from receiver.intake.arriving import Arriving
from receiver.intake.protocol import READ_BUFFER_BYTES, TROUBLE, IntakeProtocol
from receiver.intake.reception import HEAD
from receiver.intake.recognition import HEAD_END, head_bytes
from receiver.logs import limited

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from receiver.intake.answers import Reply
    from receiver.intake.regular import Known

KNOWN_HEAD_BYTES_MAX = 4 * 1024
"""A longer head is not remembered: every connection has its own."""


class ShortcutProtocol(IntakeProtocol):
    """`IntakeProtocol`, and the shortcut beside it."""

    __slots__ = (
        "_arriving",
        "_bytes_fed",
        "_first",
        "_held",
        "_is_taking",
        "_known",
        "_reception",
        "_taking",
    )

    def __init__(self, *args: Any, **settings: Any) -> None:  # noqa: ANN401 - see `IntakeProtocol`
        super().__init__(*args, **settings)
        self._bytes_fed = 0
        """To aiohttp's parser, since the beginning of a request."""
        self._first = b""
        """The first of them, enough for a head."""
        self._reception = self._intake.reception
        self._known: Known | None = None
        """The head that was taken last."""
        self._arriving: Arriving | None = None
        """The body of a request on the shortcut."""
        self._held = b""
        """What came after that body."""
        self._is_taking = False
        """One is being answered that took the shortcut."""
        self._taking: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        """Take the shortcut, or leave it to aiohttp."""
        if self._is_broken or self._is_leaving:
            super().data_received(data)
        elif self._arriving is not None:
            self._note_activity()
            self._hold(self._arriving.feed(data))
        elif self._is_taking:
            self._note_activity()
            self._hold(data)
        elif not self._takes(data):
            if HEAD_END not in self._first:
                first, end, _ = (self._first + data[:HEAD_BYTES_MAX]).partition(HEAD_END)
                self._first = (first + end)[:HEAD_BYTES_MAX]
            self._bytes_fed += len(data)
            super().data_received(data)

    def _takes(self, data: bytes) -> bool:
        """Take a delivery whose head is known."""
        known = self._known
        if known is None or self._bytes_fed or self._force_close:
            return False
        found = known.pattern.match(data)
        if found is None or not self._reception.is_in_force(known.head):
            return False
        length_bytes, start = found
        end = start + length_bytes
        if length_bytes > known.head.route.body_bytes_max:
            return False
        if self._is_idle:
            self._note_activity()
        self._request_count += 1
        self._is_taking = True
        if end <= len(data) and length_bytes <= known.at_once_bytes_max:
            if end < len(data):
                self._hold(data[end:])
            self._take_whole(known, data[start:end])
        else:
            claimed_bytes = announced_bytes_max(is_known=known.head.shows_token)
            self._open_payload = self._arriving = Arriving(length_bytes, claimed_bytes)
            self._hold(self._arriving.feed(data[start:]))
            self._taking = self._loop.create_task(self._take(known, length_bytes, self._arriving))
        return True

    def _hold(self, data: bytes) -> None:
        """Keep what came behind the body until that is answered."""
        if data:
            self._held += data
            if len(self._held) > READ_BUFFER_BYTES:
                self._pause_transport_reading()

    def _take_whole(self, known: Known, raw: bytes) -> None:
        """Answer a delivery that is all there: no task waits for it."""
        self._open_payload = None
        try:
            self._reception.regulars.take(known, raw, self._answer)
        except Exception as reason:  # noqa: BLE001 - as below
            limited.error("unforeseen", "a request failed", exc_info=reason)
            self._answer(TROUBLE)

    def _answer(self, reply: Reply) -> None:
        """Send the reply to a whole delivery; a peer that is slow to read is waited for by a task."""
        transport = self.transport
        if self._paused or transport is None:
            self._taking = self._loop.create_task(self._answer_slowly(reply))
            return
        is_over = self._must_close(reply)
        transport.write(reply.wire(close=is_over, bodyless=False))
        self._answered_count += 1
        self._go_on(is_over=is_over)

    async def _answer_slowly(self, reply: Reply) -> None:
        self._go_on(is_over=await self._send(reply, is_unread=False, may_stay=True))

    async def _take(self, known: Known, length_bytes: int, arriving: Arriving) -> None:
        """Answer one delivery, and go on with what came behind it."""
        try:
            reply = await self._reception.answer_known(known, length_bytes, arriving)
        except Exception as reason:  # noqa: BLE001 - whatever it is, the sender is told to come again
            limited.error("unforeseen", "a request failed", exc_info=reason)
            reply = TROUBLE
        is_over = await self._send(reply, is_unread=not arriving.is_eof(), may_stay=True)
        self._arriving = None
        self._go_on(is_over=is_over)

    def _go_on(self, *, is_over: bool) -> None:
        """Go on with what came behind the delivery that is answered."""
        if is_over:
            self._is_taking = False
            self.force_close()
            return
        self._last_heard_at = now = self._loop.time()
        if self._held:
            self._closes_at = now + self._header_timeout_s
            # Not from here: a thousand small requests in one piece would be as many calls deep.
            self._loop.call_soon(self._take_held)
        else:
            self._is_taking = False
            self._become_idle(now)

    def _take_held(self) -> None:
        self._is_taking = False
        held, self._held = self._held, b""
        if self.transport is not None:
            self._resume_transport_reading()
            self.data_received(held)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the body that was being read that it will not end."""
        if self._arriving is not None and not self._arriving.is_eof():
            self._arriving.set_exception(ConnectionResetError("the connection is lost"))
        super().connection_lost(exc)

    def _is_between_requests(self) -> bool:
        """Return whether the parser surely holds no part of a head: by the count of its bytes, too."""
        return not self._bytes_fed or super()._is_between_requests()

    def _remember(self, request: BaseRequest, *, is_taken: bool) -> None:
        """Remember this head if the parser was fed this request and nothing else."""
        body_bytes = int(request.headers.get("Content-Length", "0"))
        pattern = head_bytes(self._first, self._bytes_fed, body_bytes)
        if pattern is None:
            return
        is_short = self._bytes_fed - body_bytes <= KNOWN_HEAD_BYTES_MAX
        self._bytes_fed, self._first = 0, b""
        head = request.get(HEAD)
        if is_taken and is_short and head is not None and not head.expects_continue:
            self._known = self._reception.regulars.know(head, pattern)
