"""The drain endpoint: aiohttp's low-level server on a socket that the supervisor holds.

Keeps: stopping shows no reset. The socket stays open elsewhere, so new connections wait in its queue; open
ones are told `Connection: close` with their next answer, idle ones are closed once they have been quiet.
Never: aiohttp's pure-Python parser. Four request smuggling bugs were in it alone.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, cast

from aiohttp import http_parser, web

from receiver.errors import OperatorError
from receiver.intake import protocol
from receiver.intake.protocol import IntakeProtocol

if TYPE_CHECKING:
    from aiohttp.web_protocol import _RequestHandler

    from receiver.intake.reception import Reception
    from receiver.metrics import Metrics
    from receiver.settings import Limits

BACKLOG = 4_096
"""Connections that wait to be accepted; aiohttp's own 128 would shrink the supervisor's queue."""
IDLE_S = 1.0
"""A stopping receiver closes connections that have been quiet for so long."""
LOOK_S = 0.02


def require_c_parser() -> None:
    """Refuse to start without aiohttp's compiled parser."""
    if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
        raise OperatorError(
            "aiohttp has no compiled HTTP parser here; expected its C extensions to be installed"
        )


class IntakeServer(web.Server):
    """Makes connections, knows them, and says goodbye to them."""

    def __init__(self, reception: Reception, limits: Limits, metrics: Metrics) -> None:
        require_c_parser()
        super().__init__(cast("_RequestHandler", reception.answer))
        self._limits = limits
        self._metrics = metrics
        self._listener: asyncio.Server | None = None
        self.is_stopping = False

    def __call__(self) -> IntakeProtocol:
        """Make the protocol of one connection."""
        return IntakeProtocol(
            self,
            loop=self._loop,
            keepalive_timeout=self._limits.header_timeout_s,
            max_line_size=protocol.LINE_BYTES_MAX,
            max_field_size=protocol.FIELD_BYTES_MAX,
            max_headers=protocol.HEADERS_MAX,
            read_bufsize=protocol.READ_BUFFER_BYTES,
            lingering_time=0,
            auto_decompress=False,
            access_log=None,
        )

    @property
    def connection_count(self) -> int:
        """Count the open connections."""
        return len(self._connections)

    @property
    def has_room(self) -> bool:
        """Tell whether one more connection fits."""
        return len(self._connections) < self._limits.connections_max

    @property
    def answer_deadline_s(self) -> float:
        """Give the time a peer has for taking an answer."""
        return self._limits.answer_deadline_s

    def count_http_refusal(self, status: int) -> None:
        """Count what did not get as far as the reception."""
        self._metrics.add("refusals", reason=f"http_{status}")
        self._metrics.add("deliveries", drain="", status=str(status))

    def use(self, limits: Limits) -> None:
        """Use these limits for connections to come."""
        self._limits = limits

    async def listen(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept connections from now on."""
        self._listener = await self._loop.create_server(
            self,
            sock=listening,
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=self._limits.tls_handshake_timeout_s if tls else None,
        )

    async def stop(self, grace_s: float) -> None:
        """Accept no more, finish what is in flight, close the rest when it is quiet."""
        self.is_stopping = True
        if self._listener is not None:
            self._listener.close()
        deadline = self._loop.time() + grace_s
        while self._connections and (now := self._loop.time()) < deadline:
            for connection in self._open():
                if connection.idle_s(now) >= IDLE_S:
                    connection.hang_up()
            await asyncio.sleep(LOOK_S)
        for connection in self._open():
            connection.abort()

    def _open(self) -> list[IntakeProtocol]:
        return cast("list[IntakeProtocol]", self.connections)
