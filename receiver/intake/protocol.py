"""One connection: aiohttp's parser and request loop, with our answers, closings and timeouts.

    head timer ─▶ parse ─▶ Reception.answer ─▶ write ─▶ next request, or close

Keeps: what HTTP itself refuses is a fixed Status, never an echo; a refused body is not read to its end; an
answer that closes a connection is not destroyed by the reset that unread bytes would cause.
Never: a wait without an end. Header, body, answer and farewell each have theirs.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
from typing import TYPE_CHECKING, Any, cast

from aiohttp.http_exceptions import BadHttpMethod, BadStatusLine, HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from receiver.errors import MemoryBudgetSpent, ShuttingDown
from receiver.http.parser import FIELD_BYTES_MAX, HEADERS_MAX, LINE_BYTES_MAX
from receiver.intake import answers
from receiver.intake.answers import HANG_UP, Reply
from receiver.intake.body import BadFraming, Payload
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
ODD_METHOD = re.compile(rb"[A-Za-z][A-Za-z-]{0,31} (/[!-~]*) HTTP/1\.[01]\r\n")
"""A request line with a method that the parser does not know, and its path."""
BUSY = answers.verdict(MemoryBudgetSpent("too many connections are open"), ContentKind.JSON)
GOING = "the receiver is stopping and the body is not whole; expected to be back in seconds"
TROUBLE = answers.verdict(MemoryBudgetSpent("the receiver failed to answer"), ContentKind.JSON)


class IntakeProtocol(RequestHandler):
    """aiohttp's request loop with our manners."""

    __slots__ = (
        "_answered_count",
        "_answers_max",
        "_discarded_bytes",
        "_gone",
        "_guest",
        "_half_closed",
        "_intake",
        "_is_broken",
        "_is_leaving",
        "_is_silent",
        "_last_heard_at",
        "_open_payload",
        "_refusal",
        "_refused_line",
    )

    def __init__(
        self,
        intake: IntakeServer,
        guest: Guest,
        *,
        loop: asyncio.AbstractEventLoop,
        **settings: Any,  # noqa: ANN401 - aiohttp's own settings
    ) -> None:
        super().__init__(intake, loop=loop, **settings)
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
        self._is_silent = True
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
        self._last_heard_at = self._loop.time()
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
        self._heard()
        if self._is_broken or self._is_leaving:
            self._say_busy()
            self._discard(len(data))
            return
        super().data_received(data)
        if self._messages:
            message, payload = self._messages[-1]
            if isinstance(message, _ErrInfo):
                self._refused_line = data[:LINE_BYTES_MAX] if self._request_count == 1 else b""
                self._break_off()
            else:
                self._open_payload = payload

    def _heard(self) -> None:
        self._last_heard_at = self._loop.time()
        if self._is_silent:
            self._is_silent = False
            self._guest.speaks()

    def _discard(self, more_bytes: int) -> None:
        self._discarded_bytes += more_bytes
        if self._discarded_bytes > FAREWELL_BYTES_MAX and self.transport is not None:
            self.transport.pause_reading()

    def _break_off(self) -> None:
        """Tell the body that was being read, if any, that it will not end: aiohttp leaves it waiting."""
        self._is_broken = True
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
        return resp, close

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
            reply = answers.http_refusal(*_refusal_of(exc))
            self._intake.count_http_refusal(reply.status)
        else:
            limited.error("unforeseen", "a request failed", exc_info=exc)
            reply = TROUBLE
        return cast("StreamResponse", reply)


def _refusal_of(error: HttpProcessingError) -> tuple[int, str]:
    """Give the status and fixed text for a parse error. The error's own text holds input."""
    if isinstance(error, LineTooLong):
        if error.args[1] == LINE_BYTES_MAX:
            return 414, f"request target is over {LINE_BYTES_MAX} bytes; expected a path of a drain"
        return 431, f"a header is over {FIELD_BYTES_MAX} bytes; expected at most that"
    if error.message == "Too many headers received":
        return 431, f"more than {HEADERS_MAX} headers; expected at most that"
    if isinstance(error, BadHttpMethod):
        return 400, "not an HTTP request; expected HTTP/1.1, and HTTPS only where it is configured"
    is_version = isinstance(error, BadStatusLine) and "Invalid HTTP version" in error.message
    if is_version or error.message.startswith("Pause on PRI"):
        return 505, "HTTP version is not spoken here; expected HTTP/1.1"
    return 400, "not a well-formed HTTP request; expected HTTP/1.1"
