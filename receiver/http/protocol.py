"""One connection of the API or the admin port: aiohttp's request loop with bounded heads and waits.

Invariant: every wait for the client ends: for a request head, for the next request, for reading the answer.
    A request head holds at most `HEAD_BYTES_MAX`, whatever is sent before any credential is checked.
Never: input in an answer or in the log.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from receiver.http.parser import FIELD_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, LINE_BYTES_MAX
from receiver.logs import limited

if TYPE_CHECKING:
    from logging import Logger

    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse
    from aiohttp.web_server import Server

READ_BUFFER_BYTES = 16 * 1024
KEEP_ALIVE_S = 120.0
"""A connection without a request is closed after so long. Prometheus scrapes every minute at most."""
LINGER_S = 1.0
"""After an answer the rest of a request is read and ignored for so long: a reset would destroy the answer."""
KERNEL_MARGIN_S = 5.0
"""The kernel drops a connection whose client acknowledges nothing so long after our own timeout."""


class Limits(NamedTuple):
    """Limits of one port."""

    port: str
    """`api` or `admin`: a label of metrics and a field of log lines."""
    connections_max: int
    header_timeout_s: float
    write_timeout_s: float


class HttpConnection(RequestHandler):
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
    )

    def __init__(
        self,
        server: Server,
        limits: Limits,
        *,
        on_lost: Callable[[HttpConnection], None],
        on_close: Callable[[str], None],
    ) -> None:
        """`on_close`: called with the reason for which we close a connection."""
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=KEEP_ALIVE_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=FIELD_BYTES_MAX,
            max_headers=HEADERS_MAX,
            read_bufsize=READ_BUFFER_BYTES,
            lingering_time=LINGER_S,
            access_log=cast("Logger", None),
        )
        # One request is answered at a time; the next ones wait in the kernel, not in memory.
        self._max_msg_queue_size = 1
        self._msg_queue_resume_size = 0
        self._limits = limits
        self._on_lost = on_lost
        self._on_close = on_close
        self._answered_count = 0
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._idle_since_s = loop.time()
        self._is_closing = False

    @property
    def is_working(self) -> bool:
        """Return whether a request is being answered."""
        return self._request_count > self._answered_count

    @property
    def idle_since_s(self) -> float:
        """Return the loop time of the last answer, or of the connect."""
        return self._idle_since_s

    def disconnect(self, reason: str) -> None:
        """Close the connection without an answer, also if it is not made yet."""
        self._on_close(reason)
        self._is_closing = True
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer of the first request head."""
        if self._is_closing:
            cast("asyncio.Transport", transport).abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            unsent_ms_max = int((self._limits.write_timeout_s + KERNEL_MARGIN_S) * 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unsent_ms_max)
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timer and remove the connection from the listener."""
        self._stop_head_timer()
        self._on_lost(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived; refuse a head that is too large."""
        if self._is_closing:
            return
        if not self.is_working:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse_head()
                return
        super().data_received(data)
        if self.is_working:
            self._stop_head_timer()
            self._head_bytes = 0
        elif self._head_timer is None:
            self._start_head_timer()

    def _start_head_timer(self) -> None:
        self._head_timer = self._loop.call_later(self._limits.header_timeout_s, self._end_late_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_late_head(self) -> None:
        self._head_timer = None
        if not self.is_working:
            self.disconnect("head_timeout")

    def _refuse_head(self) -> None:
        """Answer 431, ignore the rest, close."""
        self._is_closing = True
        self._stop_head_timer()
        self._on_close("head_too_large")
        transport = self.transport
        if transport is None:
            return
        transport.write(raw_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _TOO_LARGE))
        if transport.can_write_eof():
            transport.write_eof()
        self._loop.call_later(LINGER_S, transport.abort)

    async def finish_response(
        self, request: BaseRequest, resp: StreamResponse, start_time: float | None
    ) -> tuple[StreamResponse, bool]:
        """Send the answer; from then on the connection is idle."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._answered_count += 1
            self._idle_since_s = self._loop.time()

    async def _drain_helper(self) -> None:
        """Wait until the client has read enough, for at most `write_timeout_s`."""
        try:
            async with asyncio.timeout(self._limits.write_timeout_s):
                await super()._drain_helper()
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
        if isinstance(exc, ConnectionError):
            raise exc
        if isinstance(exc, HttpProcessingError):
            response = error_response(*_parse_error_answer(exc))
        else:
            limited.error(
                f"{self._limits.port}: request", "request failed", port=self._limits.port, exc_info=exc
            )
            response = error_response(500, "the receiver failed to answer; its log says why")
        if request.writer.output_size > 0:
            raise ConnectionError("part of the answer was sent already")
        response.force_close()
        return response


_TOO_LARGE = f"request head is over {HEAD_BYTES_MAX} bytes; expected at most that"


def _parse_error_answer(error: HttpProcessingError) -> tuple[int, str]:
    """Return status and fixed text for a parse error. The error's own text holds input."""
    if isinstance(error, LineTooLong):
        return 431, f"request line or a header is over {FIELD_BYTES_MAX} bytes; expected at most that"
    if error.message == "Too many headers received":
        return 431, f"more than {HEADERS_MAX} headers; expected at most that"
    return 400, "not a well-formed HTTP request; expected HTTP/1.1"


def error_response(status: int, message: str) -> web.Response:
    """Return an answer in the form of all errors: JSON with `error` and `status`."""
    headers = {"Content-Type": "application/json"}
    return web.Response(status=status, body=_error_body(status, message), headers=headers)


def raw_error(status: HTTPStatus, message: str) -> bytes:
    """Return the same as bytes, for a connection without a parsed request."""
    body = _error_body(status, message)
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _error_body(status: int, message: str) -> bytes:
    return msgspec.json.encode({"error": message, "status": int(status)}) + b"\n"
