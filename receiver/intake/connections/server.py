"""Intake server: the connections of the drain endpoint, accepted on a socket that the supervisor owns.

Invariant: stopping resets no connection. The backlog of the socket is accepted first. Open connections get
    `Connection: close` with their next answer, idle connections are closed after `IDLE_S`, and a body that is
    incomplete at the end of the grace period is answered 503.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Collection
from typing import cast

from receiver.intake.answers import LINGER_S
from receiver.intake.batch_handler import BatchCommitter
from receiver.intake.connections.fast_path_protocol import FastPathProtocol
from receiver.intake.connections.listener import AcceptedConnection, Caps, DrainListener
from receiver.intake.connections.load_shedding import LoadShedder, held_max
from receiver.intake.connections.protocol import IntakeProtocol
from receiver.intake.endpoint import Endpoint
from receiver.intake.handler import DeliveryHandler
from receiver.metrics import Metrics
from receiver.settings import Limits

IDLE_S = 1.0
"""Idle time after which a stopping receiver closes a connection."""
ARRIVING_S = 0.5
"""Time that a stopping receiver waits for connections that are being established."""
POLL_S = 0.02


class IntakeServer:
    """The HTTP server of an intake: creates the protocol of each connection and stops gracefully."""

    def __init__(  # noqa: PLR0913 - tests replace each collaborator
        self,
        delivery_handler: DeliveryHandler,
        committer: BatchCommitter,
        limits: Limits,
        caps: Caps,
        metrics: Metrics,
        *,
        load_shedder: LoadShedder,
        protocol: type[IntakeProtocol] = FastPathProtocol,
    ) -> None:
        self.endpoint = Endpoint(delivery_handler, committer, limits, metrics)
        self._protocol = protocol
        self._load_shedder = load_shedder
        self._loop = asyncio.get_running_loop()
        self._listener = DrainListener(
            self.protocol_of,
            caps,
            metrics,
            load_shedder=load_shedder,
            handshake_s=limits.tls_handshake_timeout_s,
            catch_up=self.endpoint.catch_up,
        )

    def protocol_of(self, connection: AcceptedConnection) -> IntakeProtocol:
        """Return the protocol of a new connection."""
        return self._protocol(self.endpoint, connection)

    @property
    def connections(self) -> list[IntakeProtocol]:
        """Return the open connections that have a protocol."""
        return cast("list[IntakeProtocol]", self.endpoint.connections)

    @property
    def connection_count(self) -> int:
        """Return the number of open connections, including those in the handshake."""
        return self._listener.connection_count

    def use(self, limits: Limits, caps: Caps) -> None:
        """Apply new limits to later connections."""
        self.endpoint.limits = limits
        self._listener.use(caps, handshake_s=limits.tls_handshake_timeout_s)
        self._load_shedder.use(held_max=held_max(limits.connections_max))

    def listen(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept connections from now on."""
        self._listener.open(listening, tls)

    def accept_for(self, listen_fds: Collection[int]) -> None:
        """Accept from exactly these inherited sockets in addition to our own."""
        self._listener.accept_for(listen_fds)

    async def stop(self, grace_s: float) -> None:
        """Accept the backlog, complete the requests in flight and close all connections."""
        # First, so that answers carry `Connection: close` while the backlog is still being accepted.
        self.endpoint.is_stopping = True
        deadline = self._loop.time() + grace_s
        # A short grace period must not be spent on connections that may never arrive.
        await self._listener.close(min(ARRIVING_S, grace_s / 4))
        # The rest of the time lets senders of incomplete bodies read their 503.
        await self._wait_for_close(deadline - LINGER_S)
        for connection in self.connections:
            connection.end_incomplete_request()
        await self._wait_for_close(deadline)
        for connection in self.connections:
            # A graceful close would wait for the peer again.
            connection.abort()
        self._load_shedder.close()

    async def _wait_for_close(self, until: float) -> None:
        """Wait for connections to close, and close idle connections."""
        # A connection in the handshake is not in the list yet, but will be.
        while (open_now := self.connections) or self._listener.is_busy:
            now = self._loop.time()
            if now >= until:
                return
            for connection in open_now:
                if connection.idle_s(now) >= IDLE_S:
                    connection.force_close()
            await asyncio.sleep(POLL_S)
