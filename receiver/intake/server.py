"""The drain endpoint: aiohttp's low-level server on a socket that the supervisor holds.

Keeps: stopping shows no reset. Who waits in the socket's queue is let in first; open connections are told
`Connection: close` with their next answer, idle ones are closed once they have been quiet, and a body that is
not whole in time is answered with 503.
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
from receiver.intake.away import Away, held_max
from receiver.intake.door import Caps, Door, Guest
from receiver.intake.protocol import FAREWELL_S, IntakeProtocol
from receiver.intake.shortcut import ShortcutProtocol

if TYPE_CHECKING:
    from aiohttp.web_protocol import _RequestHandler

    from receiver.intake.reception import Reception
    from receiver.metrics import Metrics
    from receiver.settings import Limits

IDLE_S = 1.0
"""A stopping receiver closes connections that have been quiet for so long."""
ARRIVING_S = 0.5
"""A stopping receiver waits so long for those whose connection is under way."""
LOOK_S = 0.02


class IntakeServer(Server):
    """Makes connections, knows them, and says goodbye to them."""

    def __init__(  # noqa: PLR0913 - each is a neighbour that a test replaces
        self,
        reception: Reception,
        limits: Limits,
        caps: Caps,
        metrics: Metrics,
        *,
        away: Away,
        protocol: type[IntakeProtocol] = ShortcutProtocol,
    ) -> None:
        parser.require_c_parser()
        super().__init__(cast("_RequestHandler", reception.answer))
        self.reception = reception
        self._protocol = protocol
        self._limits = limits
        self._metrics = metrics
        self._away = away
        self._door = Door(
            self.protocol_of, caps, metrics, away=away, handshake_s=limits.tls_handshake_timeout_s
        )
        self.is_stopping = False

    def protocol_of(self, guest: Guest) -> IntakeProtocol:
        """Make the protocol of one connection."""
        return self._protocol(
            self,
            guest,
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
        """Count the open connections."""
        return self._door.guest_count

    @property
    def answer_deadline_s(self) -> float:
        """Give the time a peer has for taking an answer."""
        return self._limits.answer_deadline_s

    def count_http_refusal(self, status: int) -> None:
        """Count what did not get as far as the reception."""
        self._metrics.add("refusals", reason=f"http_{status}")
        self._metrics.add("deliveries", drain="", status=str(status))

    def use(self, limits: Limits, caps: Caps) -> None:
        """Use these for connections to come."""
        self._limits = limits
        self._door.use(caps, handshake_s=limits.tls_handshake_timeout_s)
        self._away.use(held_max=held_max(limits.connections_max))

    def listen(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept connections from now on."""
        self._door.open(listening, tls)

    def accept_for(self, listen_fds: Collection[int]) -> None:
        """Accept also from these inherited sockets, and no longer from any others but our own."""
        self._door.accept_for(listen_fds)

    async def stop(self, grace_s: float) -> None:
        """Let in who waits, finish what is in flight, close the rest when it is quiet."""
        self.is_stopping = True
        deadline = self._loop.time() + grace_s
        await self._door.close(min(ARRIVING_S, grace_s / 4))
        await self._until_gone(deadline - FAREWELL_S)
        for connection in self._open():
            connection.cut_short()
        await self._until_gone(deadline)
        for connection in self._open():
            connection.abort()
        self._away.close()

    async def _until_gone(self, until: float) -> None:
        """Wait for everybody to leave; who says nothing is shown out."""
        while (self._connections or self._door.is_busy) and (now := self._loop.time()) < until:
            for connection in self._open():
                if connection.idle_s(now) >= IDLE_S:
                    connection.hang_up()
            await asyncio.sleep(LOOK_S)

    def _open(self) -> list[IntakeProtocol]:
        return cast("list[IntakeProtocol]", self.connections)
