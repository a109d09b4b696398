"""The private parts of aiohttp that connections use, each under a public name.

aiohttp may rename a private part in any minor version, so pyproject.toml allows one minor version only, and a
test checks each name in this module.

Never: leaves a private name of aiohttp to another module.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from logging import Logger
from typing import Any, Protocol, TypeVar, cast

from aiohttp.http_parser import HttpRequestParser
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_protocol import _ErrInfo as ParseFailure
from aiohttp.web_protocol import _MsgType as Message
from aiohttp.web_server import Server

from receiver.http.parser import FIELD_BYTES_MAX, HEADERS_MAX, LINE_BYTES_MAX

__all__ = ["AiohttpConnection", "Message", "ParseFailure"]

T = TypeVar("T")


class Slot(Protocol[T]):
    """A slot of aiohttp's class under a public name. Access costs no more than by the original name."""

    def __get__(self, instance: object, owner: type, /) -> T:
        """Return the value."""

    def __set__(self, instance: object, value: T, /) -> None:
        """Set the value."""


def _slot(name: str) -> Any:  # noqa: ANN401 - any `Slot`
    return getattr(RequestHandler, name)


class AiohttpConnection(RequestHandler):
    """aiohttp's request loop on one connection."""

    __slots__ = ()

    loop: Slot[asyncio.AbstractEventLoop] = _slot("_loop")
    parser: Slot[HttpRequestParser | None] = _slot("_parser")
    """Holds the part of a head that has arrived; `None` frees it."""
    messages: Slot[deque[Message]] = _slot("_messages")
    """Parsed requests and parse failures that wait for the request loop."""
    message_waiter: Slot[asyncio.Future[None] | None] = _slot("_waiter")
    """Wakes the request loop when a message is added."""
    request_count: Slot[int] = _slot("_request_count")
    """Number of messages that were added since the connection was opened."""
    is_force_closed: Slot[bool] = _slot("_force_close")
    is_writing_paused: Slot[bool] = _slot("_paused")
    is_upgraded: Slot[bool] = _slot("_upgraded")
    keepalive_timer: Slot[asyncio.Handle | None] = _slot("_keepalive_handle")
    parsed_requests_max: Slot[int] = _slot("_max_msg_queue_size")
    """Number of waiting messages at which reading pauses."""
    parsed_requests_resume: Slot[int] = _slot("_msg_queue_resume_size")
    """Number of waiting messages at which reading continues."""

    pause_transport_reading = RequestHandler._pause_transport_reading  # noqa: SLF001
    resume_transport_reading = RequestHandler._resume_transport_reading  # noqa: SLF001

    def __init__(
        self,
        server: Server,
        *,
        keepalive_timeout: float,
        read_buffer_bytes: int,
        lingering_time: float,
        auto_decompress: bool = True,
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=keepalive_timeout,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=FIELD_BYTES_MAX,
            max_headers=HEADERS_MAX,
            read_bufsize=read_buffer_bytes,
            lingering_time=lingering_time,
            auto_decompress=auto_decompress,
            access_log=cast("Logger", None),
        )

    @staticmethod
    def limit_unsent(transport: asyncio.BaseTransport, unsent_ms_max: int) -> None:
        """Let TCP close the connection if its peer acknowledges nothing for this time."""
        sock = transport.get_extra_info("socket")
        # Only TCP has this option; setting it on another socket raises an error.
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unsent_ms_max)

    def check_keepalive(self) -> None:
        """Close the connection if it has been idle for too long. Called by aiohttp's timer."""
        super()._process_keepalive()

    def _process_keepalive(self) -> None:
        self.check_keepalive()

    async def wait_for_peer(self) -> None:
        """Wait until the peer has read enough of what was written. aiohttp calls it after each write."""
        await super()._drain_helper()

    async def _drain_helper(self) -> None:
        await self.wait_for_peer()
