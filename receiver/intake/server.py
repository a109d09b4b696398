"""Intake server: aiohttp's low-level server on a socket that the supervisor owns.

Invariant: stopping resets no connection. The backlog of the socket is accepted first. Open connections get
    `Connection: close` with their next answer, idle ones are closed after `IDLE_S`, and a body that is
    incomplete at the end of the grace period is answered 503.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Collection
from typing import TYPE_CHECKING, cast

from aiohttp.web_server import Server

from receiver.http import parser
from receiver.intake import protocol
from receiver.intake.fast_path_protocol import FastPathProtocol
from receiver.intake.listener import AcceptedConnection, Caps, DrainListener
from receiver.intake.load_shedding import LoadShedder, held_max
from receiver.intake.protocol import LINGER_S, IntakeProtocol

if TYPE_CHECKING:
    from aiohttp.web_protocol import _RequestHandler

    from receiver.intake.handler import DeliveryHandler
    from receiver.metrics import Metrics
    from receiver.settings import Limits

IDLE_S = 1.0
"""A stopping receiver closes connections that have been idle for this long."""
ARRIVING_S = 0.5
"""A stopping receiver waits this long for connections that are being established."""
POLL_S = 0.02


class IntakeServer(Server):
    """The HTTP server of an intake: creates the protocol of each connection and stops gracefully."""

    def __init__(  # noqa: PLR0913 - tests replace each collaborator
        self,
        delivery_handler: DeliveryHandler,
        limits: Limits,
        caps: Caps,
        metrics: Metrics,
        *,
        load_shedder: LoadShedder,
        protocol: type[IntakeProtocol] = FastPathProtocol,
    ) -> None:
        parser.require_c_parser()
        super().__init__(cast("_RequestHandler", delivery_handler.answer))
        self.delivery_handler = delivery_handler
        self._protocol = protocol
        self._limits = limits
        self._metrics = metrics
        self._load_shedder = load_shedder
        self._listener = DrainListener(
            self.protocol_of,
            caps,
            metrics,
            load_shedder=load_shedder,
            handshake_s=limits.tls_handshake_timeout_s,
        )
        self.is_stopping = False

    def protocol_of(self, connection: AcceptedConnection) -> IntakeProtocol:
        """Return the protocol of a new connection."""
        return self._protocol(
            self,
            connection,
            header_timeout_s=self._limits.header_timeout_s,
            keepalive_timeout_s=self._limits.keepalive_timeout_s,
            loop=self._loop,
            max_line_size=parser.LINE_BYTES_MAX,
            max_field_size=parser.FIELD_BYTES_MAX,
            max_headers=parser.HEADERS_MAX,
            read_bufsize=protocol.READ_BUFFER_BYTES,
            lingering_time=0,
            auto_decompress=False,
            access_log=None,
        )

    @property
    def connection_count(self) -> int:
        """Return the number of open connections."""
        return self._listener.connection_count

    @property
    def answer_deadline_s(self) -> float:
        """Return the time that a peer has to read an answer."""
        return self._limits.answer_deadline_s

    def count_http_refusal(self, status: int) -> None:
        """Count a request that was refused before it reached the delivery handler."""
        self._metrics.add("refusals", reason=f"http_{status}")
        self._metrics.add("deliveries", drain="", status=str(status))

    def use(self, limits: Limits, caps: Caps) -> None:
        """Apply new limits to later connections."""
        self._limits = limits
        self._listener.use(caps, handshake_s=limits.tls_handshake_timeout_s)
        self._load_shedder.use(held_max=held_max(limits.connections_max))

    def listen(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept connections from now on."""
        self._listener.open(listening, tls)

    def accept_for(self, listen_fds: Collection[int]) -> None:
        """Accept from exactly these inherited sockets in addition to our own."""
        self._listener.accept_for(listen_fds)

    async def stop(self, grace_s: float) -> None:
        """Accept the backlog, finish the requests in flight and close all connections."""
        self.is_stopping = True
        deadline = self._loop.time() + grace_s
        await self._listener.close(min(ARRIVING_S, grace_s / 4))
        await self._until_gone(deadline - LINGER_S)
        for connection in self._open():
            connection.end_incomplete_request()
        await self._until_gone(deadline)
        for connection in self._open():
            connection.abort()
        self._load_shedder.close()

    async def _until_gone(self, until: float) -> None:
        """Wait for connections to close; close idle ones."""
        while (self._connections or self._listener.is_busy) and (now := self._loop.time()) < until:
            for connection in self._open():
                if connection.idle_s(now) >= IDLE_S:
                    connection.hang_up()
            await asyncio.sleep(POLL_S)

    def _open(self) -> list[IntakeProtocol]:
        return cast("list[IntakeProtocol]", self.connections)
