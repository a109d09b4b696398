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
from typing import cast

from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse

from receiver.errors import MemoryBudgetSpent, ShuttingDown
from receiver.http.aiohttp_internals import AiohttpConnection, ParseFailure
from receiver.http.parser import HEAD_BYTES_MAX, LINE_BYTES_MAX
from receiver.intake import answers
from receiver.intake.answers import HANG_UP, LINGER_S, Reply
from receiver.intake.connections import wrong_protocol
from receiver.intake.connections.body import Payload
from receiver.intake.connections.listener import AcceptedConnection
from receiver.intake.connections.parse_errors import (
    BAD_FRAMING,
    HEAD_TOO_LARGE,
    UNKNOWN_METHOD,
    logged_refusal,
    oversized_at,
)
from receiver.intake.connections.tls import H2
from receiver.intake.endpoint import Endpoint
from receiver.intake.head import HttpRefused
from receiver.intake.known_heads import HEAD_END
from receiver.logs import limited
from receiver.model import ContentKind

READ_BUFFER_BYTES = 64 * 1024
LINGER_BYTES_MAX = 4 * 1024
"""Discarded bytes after which a lingering connection is not read. One read is at most 256,000 bytes."""
UNSENT_MS_MAX = 20_000
"""Time without acknowledgements from the peer after which TCP closes the connection."""
ANSWERS_MAX = 10_000
"""Maximum answers per connection, ± 20 %. Reconnecting distributes senders over the processes."""
BUSY = answers.verdict(MemoryBudgetSpent("too many connections are open"), ContentKind.JSON)
STOPPING_MESSAGE = "the receiver is stopping and the body is incomplete; retry in a few seconds"
INTERNAL_ERROR = answers.verdict(MemoryBudgetSpent("the receiver failed to answer"), ContentKind.JSON)


class IntakeProtocol(AiohttpConnection):
    """aiohttp's request loop with our answers, closing and timeouts."""

    __slots__ = (
        "_answered_count",
        "_answers_max",
        "_busy_timer",
        "_closed_event",
        "_closes_at",
        "_connection",
        "_discarded_bytes",
        "_endpoint",
        "_fed_bytes",
        "_half_closed",
        "_head_bytes",
        "_header_timeout_s",
        "_hidden_bytes",
        "_idle_timeout_s",
        "_is_broken",
        "_is_closing",
        "_is_idle",
        "_last_activity_at",
        "_open_payload",
        "_refused_line",
        "_tail",
    )

    def __init__(self, endpoint: Endpoint, connection: AcceptedConnection) -> None:
        limits = endpoint.limits
        super().__init__(
            endpoint,
            # aiohttp's timer calls `check_keepalive` at this interval, which decides whether to close.
            keepalive_timeout=min(limits.header_timeout_s, limits.keepalive_timeout_s),
            read_buffer_bytes=READ_BUFFER_BYTES,
            lingering_time=0,  # aiohttp would read a refused body; `_linger` does not
            auto_decompress=False,  # signatures cover the body as sent, and the core unpacks within limits
        )
        self._header_timeout_s = limits.header_timeout_s
        self._idle_timeout_s = limits.keepalive_timeout_s
        self._closes_at = 0.0
        """Time of the event loop at which the connection is closed, unless it has a complete request."""
        self._is_idle = True
        """Whether it may be evicted, because no byte of an unanswered request has arrived."""
        self._head_bytes = 0
        """Bytes received of a head that has not ended."""
        self._hidden_bytes = 0
        """Bytes that may be part of that head, because they arrived with the end of the previous request."""
        self._fed_bytes = 0
        """Number of bytes in the last call of the parser."""
        self._tail = b""
        """The last bytes that the parser was fed."""
        self._endpoint = endpoint
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
        """Start serving a connection, or refuse it if it is over the limit."""
        stream = cast("asyncio.Transport", transport)
        self._connection.close_protocol = self.force_close
        if self._connection.is_closed:  # evicted during the handshake, whose cancellation came too late
            self._is_closing = True
            stream.abort()
            return
        if self._connection.is_refused:
            self._refuse(stream)
            return
        self.limit_unsent(transport, UNSENT_MS_MAX)
        handshake = stream.get_extra_info("ssl_object")
        if handshake is not None and handshake.selected_alpn_protocol() == H2:
            wrong_protocol.warn("connection refused", wrong_protocol.GRPC, self._connection.address)
        self._last_activity_at = now = self.loop.time()
        self._closes_at = now + self._header_timeout_s
        super().connection_made(transport)

    def _refuse(self, stream: asyncio.Transport) -> None:
        """Prepare to send 503 when a request arrives: clients ignore an answer that comes earlier."""
        self.transport = stream  # without aiohttp's `connection_made`, which starts a task
        self._is_closing = True
        self._busy_timer = self.loop.call_later(LINGER_S, self._send_busy)

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
        self.loop.call_later(LINGER_S, stream.close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release the buffers of this connection and wake its waiters."""
        self._closed_event.set()
        self._connection.mark_closed()
        super().connection_lost(exc)
        # Breaks a reference cycle that would live until the next garbage collection.
        self._open_payload = None

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and stop parsing at the first error."""
        if data:  # aiohttp calls this without data to resume its parser
            self._note_activity()
        if self._is_broken or self._is_closing:
            self._send_busy()
            self._discard(len(data))
            return
        # Joined, because the empty line at the end of a head may be split between two reads.
        self._tail = (self._tail + data)[-len(HEAD_END) :]
        if data:
            self._fed_bytes = len(data)
        super().data_received(data)
        if self.messages:
            self._inspect_messages(data)
        if self.is_working:
            self._end_head()
        elif data:
            self._grow_head(len(data))

    def _inspect_messages(self, data: bytes) -> None:
        """Remember the body of the last message, or stop parsing after an error."""
        oversized = oversized_at(self.messages)
        if oversized is not None:  # the requests before it still get their answers
            kept = list(self.messages)[:oversized]
            self.messages.clear()
            self.messages.extend([*kept, HEAD_TOO_LARGE])
        message, payload = self.messages[-1]
        if isinstance(message, ParseFailure):
            self._refused_line = data[:LINE_BYTES_MAX] if self.request_count == 1 else b""
            self._stop_parsing()
        else:
            self._open_payload = payload

    def _note_activity(self) -> None:
        """Mark the connection active, so that it is not evicted."""
        self._last_activity_at = self.loop.time()
        if self._is_idle:
            self._is_idle = False
            self._connection.mark_active()

    def _grow_head(self, more_bytes: int) -> None:
        """Count more bytes of a head that has not ended. Its timeout starts at the first byte."""
        if not self._head_bytes and self.request_count:  # the first head's timeout began at the connect
            self._closes_at = self._last_activity_at + self._header_timeout_s
        self._head_bytes += more_bytes
        self._connection.set_head_bytes(self._hidden_bytes + self._head_bytes)
        if self._head_bytes > HEAD_BYTES_MAX and not self.is_force_closed:
            self.request_count += 1  # as aiohttp does for parsed messages, so that it is answered
            self.messages.append(HEAD_TOO_LARGE)
            if self.message_waiter is not None and not self.message_waiter.done():
                self.message_waiter.set_result(None)
            self._stop_parsing()

    def _end_head(self) -> None:
        if self._head_bytes or self._hidden_bytes:
            self._head_bytes = self._hidden_bytes = 0
            self._connection.clear_head()

    def _await_next_request(self) -> None:
        """Start the keep-alive timeout, or the header timeout if part of a head may have arrived."""
        if self.is_working:
            return
        now = self.loop.time()
        if self._is_between_requests():
            self._become_idle(now)
        else:
            self._closes_at = now + self._header_timeout_s
            self._hidden_bytes = self._fed_bytes
            self._connection.set_head_bytes(self._hidden_bytes)

    def _is_between_requests(self) -> bool:
        """Return whether the parser certainly holds no part of a head after all answers were sent.

        A partial head cannot end with an empty line: that would complete it.
        """
        return self._tail == HEAD_END

    def _become_idle(self, now: float) -> None:
        self._closes_at = now + self._idle_timeout_s
        self._is_idle = True
        self._connection.mark_idle()

    def check_keepalive(self) -> None:
        """Close the connection if no head arrived in time; otherwise check again later."""
        self.keepalive_timer = None
        if self.is_force_closed or self._is_closing:
            return
        now = self.loop.time()
        check_at = now + self.keepalive_timeout
        if not self.is_working:
            if now >= self._closes_at:
                self.force_close()
                return
            check_at = min(check_at, self._closes_at)
        self.keepalive_timer = self.loop.call_at(check_at, self.check_keepalive)

    def _discard(self, more_bytes: int) -> None:
        self._discarded_bytes += more_bytes
        if self._discarded_bytes > LINGER_BYTES_MAX and self.transport is not None:
            self.transport.pause_reading()  # TCP then stops a peer that keeps sending

    def _stop_parsing(self) -> None:
        """Stop parsing. Also ends a body that is being read, whose reader aiohttp would leave waiting."""
        self._is_broken = True
        self._end_head()
        self.parser = None  # frees the parsed part of a head
        if self._open_payload is not None and not self._open_payload.is_eof():
            self._open_payload.set_exception(HttpRefused(400, BAD_FRAMING))

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp's version always closes at once
        """Answer a complete request of a peer that has closed its sending side; otherwise close."""
        self._half_closed = True
        if self._open_payload is not None and not self._open_payload.is_eof():
            self._open_payload.set_exception(ConnectionResetError("the body ends early"))
        # asyncio closes a TLS transport at the peer's end in any case.
        return self.is_working and not self._is_closing and self.ssl_context is None

    @property
    def is_working(self) -> bool:
        """Return whether a request is being answered or waits for its answer."""
        return self.request_count > self._answered_count

    def idle_s(self, now: float) -> float:
        """Return the seconds since the last activity of the peer; 0 while a request is being answered."""
        return 0.0 if self.is_working else now - self._last_activity_at

    def end_incomplete_request(self) -> None:
        """Stop waiting for the rest of a request: answer an incomplete body with 503, close otherwise."""
        if self._open_payload is not None and not self._open_payload.is_eof():
            self._open_payload.set_exception(ShuttingDown(STOPPING_MESSAGE))
        elif not self.is_working:
            self.force_close()

    def abort(self) -> None:
        """Close the connection at once and discard unsent bytes."""
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
            # HTTP/1.0 would need an explicit `Connection: keep-alive` in the answer.
            may_stay=request.keep_alive and request.version.minor > 0 and not self.is_upgraded,
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
        if self.is_writing_paused:
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
            or self._endpoint.is_stopping
        )

    async def _flush(self, transport: asyncio.Transport) -> None:
        """Wait for a peer that is slow to read its answer, until the answer deadline."""
        try:
            async with asyncio.timeout(self._endpoint.limits.answer_deadline_s):
                await self.wait_for_peer()
        except (TimeoutError, ConnectionError):
            transport.abort()

    async def _linger(self, transport: asyncio.Transport) -> None:
        """Keep the connection open until the peer has read the answer: unread bytes would reset it."""
        self._is_closing = True
        if transport.is_closing():
            return
        self.resume_transport_reading()  # a paused transport does not notice that the peer closes
        if transport.can_write_eof():
            # The peer sees the end of the answer, while its own bytes still cause no reset.
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
            reply = self._endpoint.delivery_handler.refuse_method(
                unknown_method[1].decode("ascii"), self._connection.address
            )
        elif isinstance(exc, HttpProcessingError):
            reply = answers.http_refusal(*logged_refusal(exc, self._refused_line, self._connection.address))
            self._endpoint.count_http_refusal(reply.status)
        else:
            limited.error("unforeseen", "request failed with an unexpected error", exc_info=exc)
            reply = INTERNAL_ERROR
        return cast("StreamResponse", reply)
