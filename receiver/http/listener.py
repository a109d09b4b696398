"""Listener of the API or the admin port: accepts connections up to a limit. The intake has its own.

Invariant: at the limit a new connection evicts the longest idle connection. If no connection is idle, the new
connection gets 503. Without free descriptors the listener pauses.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from http import HTTPStatus

from aiohttp import web
from aiohttp.web_server import Server

from receiver.http.parser import require_c_parser
from receiver.http.protocol import HttpConnection, Limits, raw_error
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.settings import Limits as LimitSettings

ACCEPTS_MAX = 64
"""Connections accepted in one event loop iteration, so that other work is not delayed."""
PAUSE_S = 0.1
"""Pause after accept failed, for example without free descriptors, so that the loop does not spin."""
SHUTDOWN_S = 1.0
"""Grace period of running requests on a stop."""
READ_BYTES = 64 * 1024
FULL = raw_error(HTTPStatus.SERVICE_UNAVAILABLE, "all connections are busy; expected a free one")


class Listener:
    """One listening socket, its connections, and the application that answers them."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._listening: socket.socket | None = None
        self._runner: web.AppRunner | None = None
        self._server: Server | None = None
        self._connections: set[HttpConnection] = set()
        self._attach_tasks: set[asyncio.Task[None]] = set()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def open(self, application: web.Application, listening: socket.socket) -> None:
        """Accept connections from now on. Raises `OperatorError` without the C parser."""
        require_c_parser()
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S
        )
        await self._runner.setup()
        self._server = self._runner.server
        listening.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
        self._listening = listening
        self._loop.add_reader(listening, self._accept)

    async def close(self) -> None:
        """Stop accepting, let running requests finish, then close every connection."""
        if self._listening is not None:
            # Before the close: another file may get the same descriptor number, which the loop would watch.
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        if self._runner is not None:
            # After the socket is closed, so that no connection is accepted meanwhile.
            await self._runner.cleanup()

    def _accept(self) -> None:
        for accepted_count in range(ACCEPTS_MAX):
            if self._listening is None:
                return
            try:
                sock, _ = self._listening.accept()
            except BlockingIOError:
                return
            # The client disconnected while it was in the queue.
            except (InterruptedError, ConnectionAbortedError):
                continue
            except OSError as error:
                # Without a free descriptor accept() fails even if no more connections wait.
                if not accepted_count:
                    self._pause(error)
                return
            self._add_connection(sock)

    def _pause(self, reason: OSError) -> None:
        """Evict a connection to free a descriptor, and accept again after `PAUSE_S`."""
        port = self._limits.port
        limited.error(f"{port}: accept", "connections cannot be accepted", port=port, error=reason.strerror)
        self._evict_idle()
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._listening is not None:
            self._loop.add_reader(self._listening, self._accept)

    def _add_connection(self, sock: socket.socket) -> None:
        sock.setblocking(False)  # noqa: FBT003 - as above
        if self.connection_count >= self._limits.connections_max and not self._evict_idle():
            self._refuse(sock)
            return
        assert self._server is not None, "set by open()"  # noqa: S101 - for the type checker
        connection = HttpConnection(
            self._server, self._limits, on_lost=self._connections.discard, on_close=self._count
        )
        # Counted before it is established, or a burst of connections would exceed the limit.
        self._connections.add(connection)
        # The event loop keeps only weak references to tasks, so hold this task until it is done.
        attach_task = self._loop.create_task(self._attach(sock, connection))
        self._attach_tasks.add(attach_task)
        attach_task.add_done_callback(self._attach_tasks.discard)

    async def _attach(self, sock: socket.socket, connection: HttpConnection) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, sock)
        except OSError:  # the client has already disconnected
            self._connections.discard(connection)

    def _evict_idle(self) -> bool:
        """Close the connection that has been idle longest. Return False if no connection is idle."""
        idle = [connection for connection in self._connections if not connection.is_working]
        if not idle:
            return False
        # A linear search is fast enough: these ports have a few hundred connections at most.
        longest = min(idle, key=lambda connection: connection.idle_since_s)
        # Now, not in `on_lost`: the new connection is counted before the socket has closed.
        self._connections.discard(longest)
        longest.disconnect("evicted")
        return True

    def _refuse(self, sock: socket.socket) -> None:
        """Answer 503 without waiting for the request. Unread bytes would turn the close into a reset."""
        self._count("full")
        with sock, suppress(OSError):
            with suppress(BlockingIOError):
                # The request usually arrived with the connection. Reading it avoids the reset.
                sock.recv(READ_BYTES)
            sock.send(FULL)

    def _count(self, reason: str) -> None:
        port = self._limits.port
        self._metrics.add("connections_closed", port=port, reason=reason)
        limited.warning(f"{port}: {reason}", "connection closed", port=port, error=reason)


class Ports:
    def __init__(self, limits: LimitSettings, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._listeners: list[Listener] = []

    async def serve(self, name: str, application: web.Application, listen_fd: int) -> None:
        """Serve the application on the inherited socket. `name`: for metrics and log lines."""
        limits = self._limits
        listener = Listener(
            Limits(name, limits.api_connections_max, limits.header_timeout_s, limits.write_timeout_s),
            self._metrics,
        )
        self._listeners.append(listener)
        await listener.open(application, socket.socket(fileno=listen_fd))

    async def close(self) -> None:
        """Stop accepting, let running requests finish, and close every connection."""
        for listener in self._listeners:
            await listener.close()
