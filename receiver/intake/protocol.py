"""One connection: aiohttp's parser and request loop, with our answers, closings and timeouts.

    head timer ─▶ parse ─▶ Reception.answer ─▶ write ─▶ keep-alive timer ─▶ next request, or close

Invariant: what HTTP itself refuses is a fixed Status, never an echo; a refused body is not read to its end;
an answer that closes a connection is not destroyed by the reset that unread bytes would cause. A connection
may be evicted only between two requests.
Never: a wait without an end. Head, body, answer, the next request and the close each have a timeout.
"""

from __future__ import annotations

import asyncio
import random
import socket
from typing import TYPE_CHECKING, Any, cast

from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from receiver.errors import MemoryBudgetSpent, ShuttingDown
from receiver.http.parser import HEAD_BYTES_MAX, LINE_BYTES_MAX
from receiver.intake import answers, wrong_protocol
from receiver.intake.answers import HANG_UP, Reply
from receiver.intake.body import BadFraming, Payload
from receiver.intake.parse_errors import (
    HEAD_TOO_LARGE,
    ODD_METHOD,
    logged_refusal,
    oversized_at,
)
from receiver.intake.recognition import HEAD_END
from receiver.intake.tls import H2
from receiver.logs import limited
from receiver.model import ContentKind

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse

    from receiver.intake.door import Guest
    from receiver.intake.server import IntakeServer

READ_BUFFER_BYTES = 64 * 1024
FAREWELL_S = 1.0
"""After an answer that closes the connection the peer gets so long to read it."""
FAREWELL_BYTES_MAX = 4 * 1024
"""Meanwhile reading goes on until so much was thrown away; one read is at most 256,000 bytes."""
UNSENT_MS_MAX = 20_000
"""A peer that takes nothing for so long is gone, or wants to look so."""
ANSWERS_MAX = 10_000
"""Answers on one connection, give or take a fifth: new connections spread over the processes."""
BUSY = answers.verdict(MemoryBudgetSpent("too many connections are open"), ContentKind.JSON)
GOING = "the receiver is stopping and the body is not whole; expected to be back in seconds"
TROUBLE = answers.verdict(MemoryBudgetSpent("the receiver failed to answer"), ContentKind.JSON)


class IntakeProtocol(RequestHandler):
    """aiohttp's request loop with our manners."""

    __slots__ = (
        "_answered_count",
        "_answers_max",
        "_closes_at",
        "_discarded_bytes",
        "_fed_bytes",
        "_gone",
        "_guest",
        "_half_closed",
        "_head_bytes",
        "_header_timeout_s",
        "_hidden_bytes",
        "_idle_timeout_s",
        "_intake",
        "_is_broken",
        "_is_idle",
        "_is_leaving",
        "_last_heard_at",
        "_open_payload",
        "_refusal",
        "_refused_line",
        "_tail",
    )

    def __init__(
        self,
        intake: IntakeServer,
        guest: Guest,
        *,
        header_timeout_s: float,
        keepalive_timeout_s: float,
        loop: asyncio.AbstractEventLoop,
        **settings: Any,  # noqa: ANN401 - aiohttp's own settings
    ) -> None:
        # aiohttp's timer calls `_process_keepalive` so often; when to close is decided there.
        look_s = min(header_timeout_s, keepalive_timeout_s)
        super().__init__(intake, loop=loop, keepalive_timeout=look_s, **settings)
        self._header_timeout_s = header_timeout_s
        self._idle_timeout_s = keepalive_timeout_s
        self._closes_at = 0.0
        """Time of the event loop at which the connection is closed, unless it has a whole request."""
        self._is_idle = True
        """May be evicted: not a byte of a request has arrived that is not answered."""
        self._head_bytes = 0
        """Bytes received of a head that has not ended."""
        self._hidden_bytes = 0
        """Bytes that may be part of it: they came with the end of the request before."""
        self._fed_bytes = 0
        """Bytes that the parser was fed last."""
        self._tail = b""
        """The last bytes that the parser was fed."""
        self._intake = intake
        self._guest = guest
        self._refusal: asyncio.TimerHandle | None = None
        """When who finds no room is told so, though it has not asked anything."""
        self._open_payload: Payload | None = None
        self._refused_line = b""
        """Of a connection that began with something else than HTTP as aiohttp knows it."""
        self._answered_count = 0
        self._is_broken = False
        self._half_closed = False
        self._is_leaving = False
        self._discarded_bytes = 0
        self._gone: asyncio.Event = asyncio.Event()
        self._last_heard_at = 0.0
        self._answers_max = int(ANSWERS_MAX * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection, or tell it that there is no room for one more."""
        stream = cast("asyncio.Transport", transport)
        self._guest.show_out = self.hang_up
        if self._guest.is_out:
            self._is_leaving = True
            stream.abort()
            return
        if self._guest.is_refused:
            self._refuse(stream)
            return
        plug = stream.get_extra_info("socket")
        if plug is not None and plug.family != socket.AF_UNIX:
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNSENT_MS_MAX)
        handshake = stream.get_extra_info("ssl_object")
        if handshake is not None and handshake.selected_alpn_protocol() == H2:
            wrong_protocol.warn("connection refused", wrong_protocol.GRPC, self._guest.address)
        self._last_heard_at = now = self._loop.time()
        self._closes_at = now + self._header_timeout_s
        super().connection_made(transport)

    def _refuse(self, stream: asyncio.Transport) -> None:
        """Answer whatever is asked; an answer to nothing is none to a client of HTTP."""
        self.transport = stream
        self._is_leaving = True
        self._refusal = self._loop.call_later(FAREWELL_S, self._say_busy)

    def _say_busy(self) -> None:
        """Tell who finds no room, and throw away what it sends."""
        refusal, self._refusal = self._refusal, None
        stream = self.transport
        if refusal is None or stream is None:
            return
        refusal.cancel()
        stream.write(BUSY.wire(close=True, bodyless=False))
        if stream.can_write_eof():
            stream.write_eof()
        self._loop.call_later(FAREWELL_S, stream.close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of whatever waits for this connection."""
        self._gone.set()
        self._guest.leaves()
        super().connection_lost(exc)
        self._open_payload = None  # it holds us, and a circle would stay until garbage is looked for

    def data_received(self, data: bytes) -> None:
        """Parse what came, and break off where it is not HTTP."""
        if data:  # aiohttp calls with nothing to have its parser go on
            self._note_activity()
        if self._is_broken or self._is_leaving:
            self._say_busy()
            self._discard(len(data))
            return
        self._tail = (self._tail + data)[-len(HEAD_END) :]
        if data:
            self._fed_bytes = len(data)
        super().data_received(data)
        if self._messages:
            self._look_at_messages(data)
        if self.is_working:
            self._end_head()
        elif data:
            self._grow_head(len(data))

    def _look_at_messages(self, data: bytes) -> None:
        """Note the body of the last message, or stop reading where one was refused."""
        oversized = oversized_at(self._messages)
        if oversized is not None:
            kept = list(self._messages)[:oversized]
            self._messages.clear()
            self._messages.extend([*kept, HEAD_TOO_LARGE])
        message, payload = self._messages[-1]
        if isinstance(message, _ErrInfo):
            self._refused_line = data[:LINE_BYTES_MAX] if self._request_count == 1 else b""
            self._break_off()
        else:
            self._open_payload = payload

    def _note_activity(self) -> None:
        """Note that bytes came: the connection may not be evicted."""
        self._last_heard_at = self._loop.time()
        if self._is_idle:
            self._is_idle = False
            self._guest.becomes_active()

    def _grow_head(self, more_bytes: int) -> None:
        """Count more bytes of a head that has not ended. Its timeout runs from the first one."""
        if not self._head_bytes and self._request_count:
            self._closes_at = self._last_heard_at + self._header_timeout_s
        self._head_bytes += more_bytes
        self._guest.head_grows(self._hidden_bytes + self._head_bytes)
        if self._head_bytes > HEAD_BYTES_MAX and not self._force_close:
            self._request_count += 1
            self._messages.append(HEAD_TOO_LARGE)
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
            self._break_off()

    def _end_head(self) -> None:
        if self._head_bytes or self._hidden_bytes:
            self._head_bytes = self._hidden_bytes = 0
            self._guest.head_ends()

    def _await_next_request(self) -> None:
        """Start the keep-alive timeout; or the header timeout, if part of a head may be there."""
        if self.is_working:
            return
        now = self._loop.time()
        if self._is_between_requests():
            self._become_idle(now)
        else:
            self._closes_at = now + self._header_timeout_s
            self._hidden_bytes = self._fed_bytes
            self._guest.head_grows(self._hidden_bytes)

    def _is_between_requests(self) -> bool:
        """Return whether the parser surely holds no part of a head, when all it has parsed is answered.

        A part of a head cannot end with an empty line: that would make it whole.
        """
        return self._tail == HEAD_END

    def _become_idle(self, now: float) -> None:
        self._closes_at = now + self._idle_timeout_s
        self._is_idle = True
        self._guest.becomes_idle()

    def _process_keepalive(self) -> None:
        """Close the connection if no head came in time; look again later otherwise."""
        self._keepalive_handle = None
        if self._force_close or self._is_leaving:
            return
        now = self._loop.time()
        look_at = now + self._keepalive_timeout
        if not self.is_working:
            if now >= self._closes_at:
                self.force_close()
                return
            look_at = min(look_at, self._closes_at)
        self._keepalive_handle = self._loop.call_at(look_at, self._process_keepalive)

    def _discard(self, more_bytes: int) -> None:
        self._discarded_bytes += more_bytes
        if self._discarded_bytes > FAREWELL_BYTES_MAX and self.transport is not None:
            self.transport.pause_reading()

    def _break_off(self) -> None:
        """Stop parsing. Ends the body that was being read, if any: aiohttp would leave it waiting."""
        self._is_broken = True
        self._end_head()
        self._parser = None  # and all that it has parsed of a head
        if self._open_payload is not None and not self._open_payload.is_eof():
            self._open_payload.set_exception(BadFraming())

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp's always closes at once
        """Answer a whole request of a peer that will send no more; close otherwise."""
        self._half_closed = True
        if self._open_payload is not None and not self._open_payload.is_eof():
            self._open_payload.set_exception(ConnectionResetError("the body ends early"))
        return self.is_working and not self._is_leaving and self.ssl_context is None

    @property
    def is_working(self) -> bool:
        """Tell whether a request is being answered, or waits for it."""
        return self._request_count > self._answered_count

    def idle_s(self, now: float) -> float:
        """Give the seconds since the peer was last heard of; 0 while it waits for an answer."""
        return 0.0 if self.is_working else now - self._last_heard_at

    def cut_short(self) -> None:
        """Wait no longer for the rest of a request; who is in the middle of a body is told to come again."""
        if self._open_payload is not None and not self._open_payload.is_eof():
            self._open_payload.set_exception(ShuttingDown(GOING))
        elif not self.is_working:
            self.hang_up()

    def hang_up(self) -> None:
        """Close without a word."""
        self.force_close()

    def abort(self) -> None:
        """Close now, whatever is still unsent."""
        if self.transport is not None:
            self.transport.abort()

    async def finish_response(
        self,
        request: BaseRequest,
        resp: StreamResponse,
        start_time: float | None,  # noqa: ARG002 - aiohttp's access log, which is off
    ) -> tuple[StreamResponse, bool]:
        """Send the reply. True: the connection is not to be used again."""
        close = await self._send(
            cast("Reply", resp),
            is_unread=self._is_broken or not request.content.is_eof(),
            may_stay=request.keep_alive and request.version.minor > 0 and not self._upgraded,
            bodyless=request.method == "HEAD",
        )
        if not close:
            self._remember(request, is_taken=resp.status == 200)  # noqa: PLR2004 - taken is 200
            self._await_next_request()
        return resp, close

    def _remember(self, request: BaseRequest, *, is_taken: bool) -> None:
        """Hook for what can be learned from an answered request."""

    async def _send(self, reply: Reply, *, is_unread: bool, may_stay: bool, bodyless: bool = False) -> bool:
        """Send a reply. True: the connection is not to be used again."""
        transport = self.transport
        if transport is None or reply is HANG_UP:
            self.force_close()
            return True
        close = is_unread or not may_stay or self._must_close(reply)
        transport.write(reply.wire(close=close, bodyless=bodyless))
        if self._paused:
            await self._flush(transport)
        if is_unread:
            await self._say_farewell(transport)
        self._answered_count += 1
        return close

    def _must_close(self, reply: Reply) -> bool:
        return (
            not reply.keep_alive
            or self._half_closed
            or self._answered_count >= self._answers_max
            or self._intake.is_stopping
        )

    async def _flush(self, transport: asyncio.Transport) -> None:
        """Wait for a peer that is slow to read what it asked for, but not for ever."""
        try:
            async with asyncio.timeout(self._intake.answer_deadline_s):
                await self._drain_helper()
        except (TimeoutError, ConnectionError):
            transport.abort()

    async def _say_farewell(self, transport: asyncio.Transport) -> None:
        """Let the peer read the answer before unread bytes reset the connection."""
        self._is_leaving = True
        if transport.is_closing():
            return
        self._resume_transport_reading()
        if transport.can_write_eof():
            transport.write_eof()
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._gone.wait()
        except TimeoutError:
            return

    def handle_error(
        self,
        request: BaseRequest,  # noqa: ARG002 - its text must not be told
        status: int = 500,  # noqa: ARG002 - aiohttp's guess
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - holds input
    ) -> StreamResponse:
        """Answer what aiohttp could not parse, or we did not foresee."""
        if isinstance(exc, BadHttpMethod) and (odd := ODD_METHOD.match(self._refused_line)):
            reply = self._intake.reception.refuse_method(odd[1].decode("ascii"))
        elif isinstance(exc, HttpProcessingError):
            reply = answers.http_refusal(*logged_refusal(exc, self._refused_line, self._guest.address))
            self._intake.count_http_refusal(reply.status)
        else:
            limited.error("unforeseen", "a request failed", exc_info=exc)
            reply = TROUBLE
        return cast("StreamResponse", reply)
