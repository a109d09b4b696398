"""Connection protocol: aiohttp's parser and request loop, with our own answers, closing and timeouts.

    head timer ─▶ parse ─▶ DeliveryHandler.answer ─▶ write ─▶ keep-alive timer ─▶ next request, or close

Invariant: an HTTP error is answered with a fixed text that repeats no input. A refused body is not read to
    its end. An answer that closes a connection is not destroyed by the reset that unread bytes would cause. A
    connection may be evicted only between two requests.
Never: waits without a timeout. Head, body, answer, next request and close each have one.
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
from receiver.intake.known_heads import HEAD_END
from receiver.intake.parse_errors import (
    HEAD_TOO_LARGE,
    UNKNOWN_METHOD,
    logged_refusal,
    oversized_at,
)
from receiver.intake.tls import H2
from receiver.logs import limited
from receiver.model import ContentKind

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse

    from receiver.intake.listener import AcceptedConnection
    from receiver.intake.server import IntakeServer

READ_BUFFER_BYTES = 64 * 1024
LINGER_S = 1.0
"""Time for the peer to read an answer that closes the connection."""
LINGER_BYTES_MAX = 4 * 1024
"""Reading pauses after this many discarded bytes during that time; one read is at most 256,000 bytes."""
UNSENT_MS_MAX = 20_000
"""TCP closes a connection whose peer acknowledges nothing for this long."""
ANSWERS_MAX = 10_000
"""Answers on one connection, ± 20 %: reconnecting spreads senders over the processes."""
BUSY = answers.verdict(MemoryBudgetSpent("too many connections are open"), ContentKind.JSON)
STOPPING_MESSAGE = "the receiver is stopping and the body is incomplete; retry in a few seconds"
INTERNAL_ERROR = answers.verdict(MemoryBudgetSpent("the receiver failed to answer"), ContentKind.JSON)


class IntakeProtocol(RequestHandler):
    """aiohttp's request loop with our answers, closing and timeouts."""

    __slots__ = (
        "_answered_count",
        "_answers_max",
        "_busy_timer",
        "_closed_event",
        "_closes_at",
        "_connection",
        "_discarded_bytes",
        "_fed_bytes",
        "_half_closed",
        "_head_bytes",
        "_header_timeout_s",
        "_hidden_bytes",
        "_idle_timeout_s",
        "_intake",
        "_is_broken",
        "_is_closing",
        "_is_idle",
        "_last_activity_at",
        "_open_payload",
        "_refused_line",
        "_tail",
    )

    def __init__(
        self,
        intake: IntakeServer,
        connection: AcceptedConnection,
        *,
        header_timeout_s: float,
        keepalive_timeout_s: float,
        loop: asyncio.AbstractEventLoop,
        **settings: Any,  # noqa: ANN401 - aiohttp's own settings
    ) -> None:
        # aiohttp's timer calls `_process_keepalive` at this interval, which decides whether to close.
        check_s = min(header_timeout_s, keepalive_timeout_s)
        super().__init__(intake, loop=loop, keepalive_timeout=check_s, **settings)
        self._header_timeout_s = header_timeout_s
        self._idle_timeout_s = keepalive_timeout_s
        self._closes_at = 0.0
        """Time of the event loop at which the connection is closed, unless it has a complete request."""
        self._is_idle = True
        """May be evicted: no byte of an unanswered request has arrived."""
        self._head_bytes = 0
        """Bytes received of a head that has not ended."""
        self._hidden_bytes = 0
        """Bytes that may be part of that head, because they arrived with the end of the previous request."""
        self._fed_bytes = 0
        """Number of bytes in the last call of the parser."""
        self._tail = b""
        """The last bytes that the parser was fed."""
        self._intake = intake
        self._connection = connection
        self._busy_timer: asyncio.TimerHandle | None = None
        """Timer that sends the over-limit 503 even if no request arrives."""
        self._open_payload: Payload | None = None
        self._refused_line = b""
        """First bytes of a connection whose first request aiohttp cannot parse."""
        self._answered_count = 0
        self._is_broken = False
        self._half_closed = False
        self._is_closing = False
        self._discarded_bytes = 0
        self._closed_event: asyncio.Event = asyncio.Event()
        self._last_activity_at = 0.0
        self._answers_max = int(ANSWERS_MAX * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to serve a connection, or refuse it if it is over the limit."""
        stream = cast("asyncio.Transport", transport)
        self._connection.close_protocol = self.hang_up
        if self._connection.is_closed:
            self._is_closing = True
            stream.abort()
            return
        if self._connection.is_refused:
            self._refuse(stream)
            return
        sock = stream.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNSENT_MS_MAX)
        handshake = stream.get_extra_info("ssl_object")
        if handshake is not None and handshake.selected_alpn_protocol() == H2:
            wrong_protocol.warn("connection refused", wrong_protocol.GRPC, self._connection.address)
        self._last_activity_at = now = self._loop.time()
        self._closes_at = now + self._header_timeout_s
        super().connection_made(transport)

    def _refuse(self, stream: asyncio.Transport) -> None:
        """Send 503 when a request arrives: an HTTP client ignores an answer without a request."""
        self.transport = stream
        self._is_closing = True
        self._busy_timer = self._loop.call_later(LINGER_S, self._send_busy)

    def _send_busy(self) -> None:
        """Send 503 to a connection over the limit, and close it after `LINGER_S`."""
        timer, self._busy_timer = self._busy_timer, None
        stream = self.transport
        if timer is None or stream is None:
            return
        timer.cancel()
        stream.write(BUSY.wire(close=True, bodyless=False))
        if stream.can_write_eof():
            stream.write_eof()
        self._loop.call_later(LINGER_S, stream.close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release the buffers of this connection and wake its waiters."""
        self._closed_event.set()
        self._connection.mark_closed()
        super().connection_lost(exc)
        self._open_payload = (
            None  # breaks a reference cycle that would live until the next garbage collection
        )

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and stop parsing at the first error."""
        if data:  # aiohttp calls this without data to resume its parser
            self._note_activity()
        if self._is_broken or self._is_closing:
            self._send_busy()
            self._discard(len(data))
            return
        self._tail = (self._tail + data)[-len(HEAD_END) :]
        if data:
            self._fed_bytes = len(data)
        super().data_received(data)
        if self._messages:
            self._inspect_messages(data)
        if self.is_working:
            self._end_head()
        elif data:
            self._grow_head(len(data))

    def _inspect_messages(self, data: bytes) -> None:
        """Keep the body of the last message, or stop parsing after an error."""
        oversized = oversized_at(self._messages)
        if oversized is not None:
            kept = list(self._messages)[:oversized]
            self._messages.clear()
            self._messages.extend([*kept, HEAD_TOO_LARGE])
        message, payload = self._messages[-1]
        if isinstance(message, _ErrInfo):
            self._refused_line = data[:LINE_BYTES_MAX] if self._request_count == 1 else b""
            self._stop_parsing()
        else:
            self._open_payload = payload

    def _note_activity(self) -> None:
        """Mark the connection active, so that it is not evicted."""
        self._last_activity_at = self._loop.time()
        if self._is_idle:
            self._is_idle = False
            self._connection.mark_active()

    def _grow_head(self, more_bytes: int) -> None:
        """Count more bytes of a head that has not ended. Its timeout starts at the first byte."""
        if not self._head_bytes and self._request_count:
            self._closes_at = self._last_activity_at + self._header_timeout_s
        self._head_bytes += more_bytes
        self._connection.set_head_bytes(self._hidden_bytes + self._head_bytes)
        if self._head_bytes > HEAD_BYTES_MAX and not self._force_close:
            self._request_count += 1
            self._messages.append(HEAD_TOO_LARGE)
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
            self._stop_parsing()

    def _end_head(self) -> None:
        if self._head_bytes or self._hidden_bytes:
            self._head_bytes = self._hidden_bytes = 0
            self._connection.clear_head()

    def _await_next_request(self) -> None:
        """Start the keep-alive timeout, or the header timeout if part of a head may have arrived."""
        if self.is_working:
            return
        now = self._loop.time()
        if self._is_between_requests():
            self._become_idle(now)
        else:
            self._closes_at = now + self._header_timeout_s
            self._hidden_bytes = self._fed_bytes
            self._connection.set_head_bytes(self._hidden_bytes)

    def _is_between_requests(self) -> bool:
        """Return whether the parser certainly holds no part of a head, once everything it parsed is answered.

        A partial head cannot end with an empty line: that would complete it.
        """
        return self._tail == HEAD_END

    def _become_idle(self, now: float) -> None:
        self._closes_at = now + self._idle_timeout_s
        self._is_idle = True
        self._connection.mark_idle()

    def _process_keepalive(self) -> None:
        """Close the connection if no head arrived in time; otherwise check again later."""
        self._keepalive_handle = None
        if self._force_close or self._is_closing:
            return
        now = self._loop.time()
        check_at = now + self._keepalive_timeout
        if not self.is_working:
            if now >= self._closes_at:
                self.force_close()
                return
            check_at = min(check_at, self._closes_at)
        self._keepalive_handle = self._loop.call_at(check_at, self._process_keepalive)

    def _discard(self, more_bytes: int) -> None:
        self._discarded_bytes += more_bytes
        if self._discarded_bytes > LINGER_BYTES_MAX and self.transport is not None:
            self.transport.pause_reading()

    def _stop_parsing(self) -> None:
        """Stop parsing. Also ends a body that is being read, whose reader aiohttp would leave waiting."""
        self._is_broken = True
        self._end_head()
        self._parser = None  # frees what it has parsed of a head
        if self._open_payload is not None and not self._open_payload.is_eof():
            self._open_payload.set_exception(BadFraming())

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp's version always closes at once
        """Answer a complete request of a peer that has closed its sending side; otherwise close."""
        self._half_closed = True
        if self._open_payload is not None and not self._open_payload.is_eof():
            self._open_payload.set_exception(ConnectionResetError("the body ends early"))
        return self.is_working and not self._is_closing and self.ssl_context is None

    @property
    def is_working(self) -> bool:
        """Return whether a request is being answered or waits for its answer."""
        return self._request_count > self._answered_count

    def idle_s(self, now: float) -> float:
        """Return the seconds since the last activity of the peer; 0 while a request is being answered."""
        return 0.0 if self.is_working else now - self._last_activity_at

    def end_incomplete_request(self) -> None:
        """Stop waiting for the rest of a request: answer an incomplete body with 503, close otherwise."""
        if self._open_payload is not None and not self._open_payload.is_eof():
            self._open_payload.set_exception(ShuttingDown(STOPPING_MESSAGE))
        elif not self.is_working:
            self.hang_up()

    def hang_up(self) -> None:
        """Close without an answer."""
        self.force_close()

    def abort(self) -> None:
        """Close at once and drop unsent bytes."""
        if self.transport is not None:
            self.transport.abort()

    async def finish_response(
        self,
        request: BaseRequest,
        resp: StreamResponse,
        start_time: float | None,  # noqa: ARG002 - aiohttp's access log, which is off
    ) -> tuple[StreamResponse, bool]:
        """Send the reply. Return whether the connection must be closed."""
        close = await self._send(
            cast("Reply", resp),
            is_unread=self._is_broken or not request.content.is_eof(),
            may_stay=request.keep_alive and request.version.minor > 0 and not self._upgraded,
            bodyless=request.method == "HEAD",
        )
        if not close:
            self._remember(request, is_accepted=resp.status == 200)  # noqa: PLR2004 - 200 means accepted
            self._await_next_request()
        return resp, close

    def _remember(self, request: BaseRequest, *, is_accepted: bool) -> None:
        """Hook for `FastPathProtocol`, called after each answered request."""

    async def _send(self, reply: Reply, *, is_unread: bool, may_stay: bool, bodyless: bool = False) -> bool:
        """Send a reply. Return whether the connection must be closed."""
        transport = self.transport
        if transport is None or reply is HANG_UP:
            self.force_close()
            return True
        close = is_unread or not may_stay or self._must_close(reply)
        transport.write(reply.wire(close=close, bodyless=bodyless))
        if self._paused:
            await self._flush(transport)
        if is_unread:
            await self._linger(transport)
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
        """Wait for a peer that is slow to read its answer, until the answer deadline."""
        try:
            async with asyncio.timeout(self._intake.answer_deadline_s):
                await self._drain_helper()
        except (TimeoutError, ConnectionError):
            transport.abort()

    async def _linger(self, transport: asyncio.Transport) -> None:
        """Keep the connection open until the peer has read the answer: unread bytes would reset it."""
        self._is_closing = True
        if transport.is_closing():
            return
        self._resume_transport_reading()
        if transport.can_write_eof():
            transport.write_eof()
        try:
            async with asyncio.timeout(LINGER_S):
                await self._closed_event.wait()
        except TimeoutError:
            return

    def handle_error(
        self,
        request: BaseRequest,  # noqa: ARG002 - must not be repeated in the answer
        status: int = 500,  # noqa: ARG002 - aiohttp's default
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - contains input
    ) -> StreamResponse:
        """Answer a request that aiohttp could not parse, or that failed with an unexpected error."""
        if isinstance(exc, BadHttpMethod) and (unknown_method := UNKNOWN_METHOD.match(self._refused_line)):
            reply = self._intake.delivery_handler.refuse_method(unknown_method[1].decode("ascii"))
        elif isinstance(exc, HttpProcessingError):
            reply = answers.http_refusal(*logged_refusal(exc, self._refused_line, self._connection.address))
            self._intake.count_http_refusal(reply.status)
        else:
            limited.error("unforeseen", "request failed with an unexpected error", exc_info=exc)
            reply = INTERNAL_ERROR
        return cast("StreamResponse", reply)
