"""Listener: accepts connections up to their limits, and performs the TLS handshake.

Invariant: an idle connection is closed to make room for a new connection (see `eviction.py`). It is a
connection of the same address if that address is at its limit, or of any address if all connections or file
descriptors are used up. A new connection is answered 503 only if no connection is idle. Before the listener
closes, it accepts the backlog.
Never: has more open connections than the limits allow, apart from `REFUSALS_MAX` that are being refused.
Connections in the TLS handshake count as open.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from receiver.http.peer import network_of
from receiver.intake.connections import wrong_protocol
from receiver.intake.connections.eviction import UNFINISHED_HEADS_BYTES_MAX, IdleConnections, UnfinishedHeads
from receiver.intake.connections.load_shedding import LoadShedder
from receiver.intake.connections.wrong_protocol import handshake_cause
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.refusals import refused
from receiver.settings import Settings

ACCEPTS_MAX = 64
"""Maximum number of connections accepted in one iteration of the event loop."""
REFUSALS_MAX = 64
"""Maximum number of connections over the limits that are being answered 503 at the same time. Any further
connections are closed without an answer."""
ADDRESS_SHARE = 4
"""Divisor of the connection limit for the share that one address may hold."""
ACCEPT_PAUSE_S = 0.1
"""Pause after an accept that failed for lack of descriptors or memory, if no connection can be evicted."""
EVICTED_PAUSE_S = 0.01
"""The same after an eviction: the descriptor is free once the event loop has closed the connection."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits on open connections."""

    connections_max: int
    per_address_max: int | None
    """`None`: no limit per address."""
    exempts_loopback: bool
    """Whether loopback is exempt from the limit per address, because a local proxy has many clients."""

    def of(self, address: str) -> int:
        """Return the limit of one address."""
        if self.per_address_max is None or (self.exempts_loopback and is_loopback(address)):
            return self.connections_max
        return self.per_address_max


def caps(settings: Settings) -> Caps:
    """Return the connection limits of these settings."""
    all_max, configured = settings.limits.connections_max, settings.limits.connections_per_address_max
    # All clients share the address of the proxy, so a limit per address would only lower the total.
    if configured is None and settings.behind_proxy:
        return Caps(all_max, None, exempts_loopback=True)
    return Caps(all_max, configured or max(1, all_max // ADDRESS_SHARE), exempts_loopback=configured is None)


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    return address.startswith("127.") or address == "::1"


class AcceptedConnection:
    """One connection, from its acceptance until it is closed."""

    __slots__ = (
        "_listener",
        "accepted_at_s",
        "address",
        "close_protocol",
        "handshake",
        "is_closed",
        "is_refused",
        "sock",
    )

    def __init__(
        self, listener: DrainListener, sock: socket.socket, address: str, *, is_refused: bool
    ) -> None:
        self._listener = listener
        self.sock = sock
        self.address = address
        self.accepted_at_s = time.monotonic()
        self.is_refused = is_refused
        self.is_closed = False
        """Whether it is evicted or closed. `connection_made` may follow even a cancelled handshake."""
        self.handshake: asyncio.Task[None] | None = None
        self.close_protocol: Callable[[], None] | None = None
        """Closes the connection; `None` before it has a protocol."""

    def mark_active(self) -> None:
        """Exempt the connection from eviction: a request has begun to arrive."""
        self._listener.idle.discard(self)

    def mark_idle(self) -> None:
        """Allow eviction again: every request is answered."""
        if not self.is_closed:
            # An evicted connection must not be chosen for eviction a second time.
            self._listener.idle.add_used(self)

    def set_head_bytes(self, head_bytes: int) -> None:
        """Count the bytes of a request head that has not ended yet."""
        if not self.is_closed:
            self._listener.count_head(self, head_bytes)

    def clear_head(self) -> None:
        """Stop counting the head: it has ended."""
        self._listener.heads.discard(self)

    def has_unread_bytes(self) -> bool:
        """Return whether the kernel holds bytes that were not read yet."""
        try:
            # MSG_PEEK leaves the byte in the buffer, where the transport will read it.
            return bool(self.sock.recv(1, socket.MSG_PEEK))
        except OSError:  # the buffer is empty, or the socket is closed
            return False

    def mark_closed(self) -> None:
        """Remove the closed connection from the listener."""
        self.is_closed = True
        self.close_protocol = None  # breaks the reference cycle with the protocol
        self._listener.forget(self)


class DrainListener:
    """Accepts connections within the limits."""

    def __init__(  # noqa: PLR0913 - tests replace each collaborator
        self,
        make_protocol: Callable[[AcceptedConnection], asyncio.Protocol],
        caps: Caps,
        metrics: Metrics,
        *,
        load_shedder: LoadShedder,
        handshake_s: float,
        catch_up: Callable[[], None],
    ) -> None:
        """`catch_up`: updates which connections are idle."""
        self._make_protocol = make_protocol
        self._caps = caps
        self._load_shedder = load_shedder
        self._handshake_s = handshake_s
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._listening: socket.socket | None = None
        self._inherited: dict[int, socket.socket] = {}
        """Inherited sockets of intakes that are being replaced."""
        self._tls: ssl.SSLContext | None = None
        self._connections: dict[AcceptedConnection, None] = {}
        self._refused: set[AcceptedConnection] = set()
        self._of_address: Counter[str] = Counter()
        self.idle: IdleConnections[AcceptedConnection] = IdleConnections(catch_up)
        self.heads: UnfinishedHeads[AcceptedConnection] = UnfinishedHeads()
        self._handshakes: set[asyncio.Task[None]] = set()

    @property
    def connection_count(self) -> int:
        """Return the number of admitted connections, including those in the handshake."""
        return len(self._connections)

    @property
    def is_busy(self) -> bool:
        """Return whether a connection is in the handshake, being refused or being shed."""
        return bool(self._handshakes or self._refused or self._load_shedder.held_count)

    def use(self, caps: Caps, *, handshake_s: float) -> None:
        """Apply new limits to later connections."""
        self._caps, self._handshake_s = caps, handshake_s

    def open(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept connections from now on."""
        listening.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
        self._listening, self._tls = listening, tls
        self._loop.add_reader(listening, self._accept, listening)

    def accept_for(self, listen_fds: Collection[int]) -> None:
        """Accept from exactly these inherited sockets in addition to our own."""
        # After `close` nothing would remove the readers again.
        if self._listening is None:
            return
        for fd in self._inherited.keys() - set(listen_fds):
            self._stop_accepting(self._inherited.pop(fd))
        for fd in set(listen_fds) - self._inherited.keys():
            listening = self._inherited[fd] = socket.socket(fileno=fd)
            listening.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
            self._loop.add_reader(listening, self._accept, listening)

    def _stop_accepting(self, inherited: socket.socket) -> None:
        """Stop accepting from an inherited socket. Its descriptor stays open for later use."""
        self._loop.remove_reader(inherited)
        # `detach`, not `close`: a later `AcceptFor` may need the descriptor again.
        inherited.detach()

    async def close(self, arriving_s: float) -> None:
        """Wait for connections that are being established, accept the backlog, then stop."""
        if self._listening is None:
            return
        # A client whose handshake with the kernel is not complete is not in the backlog yet.
        await asyncio.sleep(arriving_s)
        for listening in self._all_listening():
            self._loop.remove_reader(listening)
            # These clients connected before the stop. Closing the socket would reset them.
            while self._accept(listening):  # noqa: ASYNC110 - only an accept shows that a queue is empty
                # The connections accepted so far are served between two batches.
                await asyncio.sleep(0)
        self._listening.close()
        self._listening = None
        for inherited in self._inherited.values():
            self._stop_accepting(inherited)
        self._inherited.clear()

    def _all_listening(self) -> list[socket.socket]:
        """Return our own socket and the inherited sockets; empty after `close`."""
        return [] if self._listening is None else [self._listening, *self._inherited.values()]

    def count_head(self, connection: AcceptedConnection, head_bytes: int) -> None:
        """Set the size of an unfinished head. Evicts the oldest heads if their total size is too large."""
        for oldest in self.heads.grow(connection, head_bytes):
            self._evict(oldest, "unfinished_head")
            limited.warning(
                "unfinished_heads",
                "unfinished request heads exceed their total limit; the connection of the oldest is closed",
                peer=oldest.address,
                bytes_max=UNFINISHED_HEADS_BYTES_MAX,
            )

    def forget(self, connection: AcceptedConnection) -> None:
        """Remove a closed connection from all counts and queues."""
        self.idle.discard(connection)
        self.heads.discard(connection)
        self._refused.discard(connection)
        # An evicted connection is removed twice: at the eviction, and when its socket has closed.
        if connection in self._connections:
            del self._connections[connection]
            self._of_address[connection.address] -= 1
            # Otherwise memory would grow with the number of addresses ever seen.
            if not self._of_address[connection.address]:
                del self._of_address[connection.address]

    def _accept(self, listening: socket.socket) -> bool:
        """Accept up to `ACCEPTS_MAX` waiting connections. Return whether more may be waiting."""
        for _ in range(ACCEPTS_MAX):
            if self._listening is None:
                return False
            try:
                sock, peer = listening.accept()
            except BlockingIOError:
                return False
            # The client disconnected while it was in the queue.
            except (InterruptedError, ConnectionAbortedError):
                continue
            except OSError as error:
                self._pause_accepting(error)
                return False
            self._open_connection(sock, network_of(peer[0]))
        return True

    def _pause_accepting(self, reason: OSError) -> None:
        """Evict an idle connection when descriptors or memory run out, and pause instead of spinning."""
        is_evicted = self._evict_idle()
        limited.error(
            f"accept:{reason.errno}",
            "connection cannot be accepted",
            error=reason.strerror,
            action="an idle connection is closed in its place"
            if is_evicted
            else "raise the file descriptor limit (LimitNOFILE)",
        )
        for listening in self._all_listening():
            self._loop.remove_reader(listening)
        if self._listening is not None:
            self._loop.call_later(EVICTED_PAUSE_S if is_evicted else ACCEPT_PAUSE_S, self._resume)

    def _resume(self) -> None:
        for listening in self._all_listening():
            self._loop.add_reader(listening, self._accept, listening)

    def _open_connection(self, sock: socket.socket, address: str) -> None:
        sock.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
        # Before any object is created for the connection, because shedding must be cheap.
        # Not with TLS, because the client could not read an answer in plain text.
        if self._tls is None and self._load_shedder.shed_if_overloaded(sock):
            return
        connection = AcceptedConnection(self, sock, address, is_refused=not self._has_room(address))
        if connection.is_refused:
            self._metrics.add("refusals", reason="connection")
            refused.note("connection", peer=address, error="the limit of open connections is reached")
            # During a flood even refusals with an answer would use up memory and descriptors.
            if len(self._refused) >= REFUSALS_MAX:
                sock.close()
                return
            self._refused.add(connection)
        else:
            self._connections[connection] = None
            self.idle.add_silent(connection)
            self._of_address[address] += 1
        connection.handshake = self._loop.create_task(self._perform_handshake(connection))
        # The event loop keeps only weak references to tasks.
        self._handshakes.add(connection.handshake)
        connection.handshake.add_done_callback(self._handshakes.discard)

    def _has_room(self, address: str) -> bool:
        """Return whether a connection of this address may be opened, evicting an idle one if necessary."""
        # Checked first: an address at its own limit may displace only its own connections.
        if self._of_address[address] >= self._caps.of(address):
            return self._evict_idle(address)
        return len(self._connections) < self._caps.connections_max or self._evict_idle()

    def _evict_idle(self, address: str | None = None) -> bool:
        """Close an idle connection, of this address or of any. Returns False if there is none."""
        connection = self.idle.next_to_evict(address)
        if connection is None:
            return False
        self._evict(connection, "idle_connection")
        return True

    def _evict(self, connection: AcceptedConnection, metric_reason: str) -> None:
        # First, so that its place is free at once, although its socket closes later.
        self.forget(connection)
        connection.is_closed = True
        if connection.close_protocol is not None:
            connection.close_protocol()
        # In the handshake there is no protocol yet that could close the socket.
        elif connection.handshake is not None:
            connection.handshake.cancel()
            connection.sock.close()
        self._metrics.add("refusals", reason=metric_reason)

    async def _perform_handshake(self, connection: AcceptedConnection) -> None:
        """Perform the TLS handshake, if any, and attach the protocol."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make_protocol(connection),
                connection.sock,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_s if self._tls else None,
            )
        except OSError as error:  # ssl.SSLError and TimeoutError are OSErrors
            # No protocol was attached, so `connection_lost` will not be called.
            self.forget(connection)
            self._metrics.add("refusals", reason="tls_handshake")
            wrong_protocol.warn("TLS handshake failed", handshake_cause(error), connection.address)
