"""Connection of the API or the admin port: aiohttp's request loop with limits on heads and waits.

Invariant: every wait for the client ends: for a request head, for the next request, for reading the answer.
    A request head takes at most `HEAD_BYTES_MAX` of memory, because no credential is checked before it ends.
Never: copies input to an answer or to the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestPayloadError

from receiver.http.aiohttp_internals import AiohttpConnection
from receiver.http.parser import FIELD_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, LINE_BYTES_MAX
from receiver.logs import limited

if TYPE_CHECKING:
    from aiohttp.streams import StreamReader
    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse
    from aiohttp.web_server import Server

READ_BUFFER_BYTES = 16 * 1024
KEEP_ALIVE_S = 120.0
"""Idle time after which a connection is closed. Longer than the scrape interval of Prometheus, a minute."""
LINGER_S = 1.0
"""Time for which the rest of a refused request is read and ignored: a reset would destroy the answer."""
KERNEL_MARGIN_S = 5.0
"""Time after our own timeout at which the kernel drops a connection without acknowledgements."""


class Limits(NamedTuple):
    """Limits of one port."""

    port: str
    """`api`, `admin` or `clickhouse`, for the labels of metrics and the fields of log lines."""
    connections_max: int
    header_timeout_s: float
    write_timeout_s: float


class HttpConnection(AiohttpConnection):
    """aiohttp's request loop with our limits."""

    __slots__ = (
        "_answered_count",
        "_head_bytes",
        "_head_timer",
        "_idle_since_s",
        "_is_closing",
        "_limits",
        "_on_close",
        "_on_lost",
        "_open_payload",
    )

    def __init__(
        self,
        server: Server,
        limits: Limits,
        *,
        on_lost: Callable[[HttpConnection], None],
        on_close: Callable[[str], None],
    ) -> None:
        """`on_close`: called with the reason when we close the connection."""
        super().__init__(
            server,
            keepalive_timeout=KEEP_ALIVE_S,
            read_buffer_bytes=READ_BUFFER_BYTES,
            lingering_time=LINGER_S,
        )
        # One request is answered at a time; further requests wait in the kernel, not in memory.
        self.parsed_requests_max = 1
        self.parsed_requests_resume = 0
        self._limits = limits
        self._on_lost = on_lost
        self._on_close = on_close
        self._answered_count = 0
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._idle_since_s = self.loop.time()
        self._is_closing = False
        self._open_payload: StreamReader | None = None
        """Body of the last parsed request."""

    @property
    def is_working(self) -> bool:
        return self.request_count > self._answered_count

    @property
    def idle_since_s(self) -> float:
        """Return the loop time of the last answer, or of the connect."""
        return self._idle_since_s

    @property
    def _is_body_arriving(self) -> bool:
        """Return whether received bytes belong to a body, perhaps of a request that was answered early."""
        payload = self._open_payload
        return payload is not None and not payload.is_eof() and payload.exception() is None

    def disconnect(self, reason: str) -> None:
        """Close the connection without an answer, even if it is not established yet."""
        self._on_close(reason)
        self._is_closing = True
        if self.transport is not None:
            # Not `close`, which would wait for a client that does not read.
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer of the first request head."""
        # Evicted before the event loop had set it up.
        if self._is_closing:
            cast("asyncio.Transport", transport).abort()
            return
        self.limit_unsent(transport, int((self._limits.write_timeout_s + KERNEL_MARGIN_S) * 1000))
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timer and remove the connection from the listener."""
        self._stop_head_timer()
        self._on_lost(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes. Refuses a head that is too large."""
        if self._is_closing:
            return
        rest = b""
        if not (self.is_working or self._is_body_arriving):
            # aiohttp limits each line and their number; together that would allow 16 times as much. A body
            # may arrive together with its head, and does not count.
            allowed = HEAD_BYTES_MAX - self._head_bytes
            data, rest = data[:allowed], data[allowed:]
            self._head_bytes += len(data)
        self._parse(data)
        if rest:
            if not self.is_working:
                self._refuse_head()
                return
            self._parse(rest)
        if self.is_working or self._is_body_arriving:
            self._stop_head_timer()
            self._head_bytes = 0
        # A later head has begun; before its first byte only the keep-alive timeout applies.
        elif self._head_timer is None:
            self._start_head_timer()

    def _parse(self, data: bytes) -> None:
        super().data_received(data)
        if self.messages:
            self._open_payload = self.messages[-1][1]

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._limits.header_timeout_s, self._end_late_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_late_head(self) -> None:
        self._head_timer = None
        if not self.is_working:
            self.disconnect("head_timeout")

    def _refuse_head(self) -> None:
        """Answer 431, ignore the rest of the request, and close the connection."""
        self._is_closing = True
        self._stop_head_timer()
        self._on_close("head_too_large")
        transport = self.transport
        if transport is None:
            return
        transport.write(raw_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _TOO_LARGE))
        if transport.can_write_eof():
            # The client still reads the answer, and the rest of its request is ignored until the abort.
            transport.write_eof()
        self.loop.call_later(LINGER_S, transport.abort)

    async def finish_response(
        self, request: BaseRequest, resp: StreamResponse, start_time: float | None
    ) -> tuple[StreamResponse, bool]:
        """Send the answer; from then on the connection is idle."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            # Even if writing failed, or the connection would count as busy and never be evicted.
            self._answered_count += 1
            self._idle_since_s = self.loop.time()

    async def wait_for_peer(self) -> None:
        """Wait until the client has read enough, for at most `write_timeout_s`."""
        try:
            async with asyncio.timeout(self._limits.write_timeout_s):
                await super().wait_for_peer()
        except TimeoutError:
            self.disconnect("write_timeout")
            raise ConnectionResetError("the client does not read its answer") from None

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,  # noqa: ARG002 - aiohttp's guess
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - holds input
    ) -> StreamResponse:
        """Answer a request that could not be parsed or whose handler raised an unexpected exception."""
        # The client is gone: nothing to answer, and nothing to log as a failure.
        if isinstance(exc, ConnectionError):
            raise exc
        if isinstance(exc, HttpProcessingError):
            response = error_response(*_parse_error_answer(exc))
        elif isinstance(exc, RequestPayloadError):
            response = error_response(HTTPStatus.BAD_REQUEST, _BODY_DAMAGED)
        else:
            limited.error(
                f"{self._limits.port}: request", "request failed", port=self._limits.port, exc_info=exc
            )
            response = error_response(500, "the receiver failed to answer; its log says why")
        # A second status line inside the answer would look like data to the client.
        if request.writer.output_size > 0:
            raise ConnectionError("part of the answer was sent already")
        response.force_close()
        return response


PROBLEM = "application/problem+json"
_TOO_LARGE = f"request line and headers exceed the limit of {HEAD_BYTES_MAX} bytes"
_BODY_DAMAGED = "the body is not valid; expected the declared framing and compression"


def _parse_error_answer(error: HttpProcessingError) -> tuple[int, str]:
    """Return status and fixed text for a parse error. The error's own text holds input."""
    if isinstance(error, LineTooLong):
        # The exceeded limit is the only sign of what was too long.
        if error.args[1] == LINE_BYTES_MAX:
            return 414, f"the URL exceeds the limit of {LINE_BYTES_MAX} bytes"
        return 431, f"a header exceeds the limit of {FIELD_BYTES_MAX} bytes"
    if error.message == "Too many headers received":
        return 431, f"the request has more than {HEADERS_MAX} headers"
    return 400, "not a well-formed HTTP request; expected HTTP/1.1"


def error_response(status: int, message: str) -> web.Response:
    """Return an error response: the problem details of RFC 9457."""
    headers = {"Content-Type": PROBLEM}
    return web.Response(status=status, body=problem_body(status, message), headers=headers)


def raw_error(status: HTTPStatus, message: str) -> bytes:
    """Return an error response as bytes, for a connection without a parsed request."""
    body = problem_body(status, message)
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {PROBLEM}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def problem_body(status: int, message: str, **more: str | int) -> bytes:
    """Return problem details. The part of the message after `; ` says what was expected: the hint."""
    detail, _, hint = message.partition("; ")
    problem = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": detail,
    }
    return msgspec.json.encode({**problem, **({"hint": hint} if hint else {}), **more}) + b"\n"
