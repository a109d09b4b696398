"""Listener: accepts connections up to their limits, and performs the TLS handshake.

Invariant: an idle connection is closed for a new one (see `eviction.py`): one of the same address if that is
    at its limit, one of any address if all connections or file descriptors are used up. Only where no
    connection is idle is the new one answered 503. Before the listener closes, it accepts the backlog.
Never: more connections than the limits, and `REFUSALS_MAX` that are being refused; handshakes count.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from receiver.intake import wrong_protocol
from receiver.intake.eviction import UNFINISHED_HEADS_BYTES_MAX, IdleConnections, UnfinishedHeads
from receiver.intake.load_shedding import LoadShedder
from receiver.intake.wrong_protocol import handshake_cause
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.settings import Settings

ACCEPTS_MAX = 64
"""Connections accepted in one turn of the event loop."""
REFUSALS_MAX = 64
"""Connections over the limits that are being answered 503 at the same time; more are closed without an
answer."""
ADDRESS_SHARE = 4
"""One address may hold one in this many of all connections."""
ACCEPT_PAUSE_S = 0.1
"""Pause after an accept that failed for lack of descriptors or memory, if no connection can be evicted."""
EVICTED_PAUSE_S = 0.01
"""The same after an eviction: the descriptor is free once the event loop has closed the connection."""
V6_NETWORK_BITS = 64
"""IPv6 networks of this size count as one address, because providers assign them to one customer."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits on open connections."""

    connections_max: int
    per_address_max: int | None
    """`None`: no limit per address."""
    exempts_loopback: bool
    """Connections from this machine come from a proxy for many clients, so they have no limit per address."""

    def of(self, address: str) -> int:
        """Return the limit of one address."""
        if self.per_address_max is None or (self.exempts_loopback and is_loopback(address)):
            return self.connections_max
        return self.per_address_max


def caps(settings: Settings) -> Caps:
    """Return the connection limits of these settings."""
    all_max, configured = settings.limits.connections_max, settings.limits.connections_per_address_max
    if configured is None and settings.behind_proxy:
        return Caps(all_max, None, exempts_loopback=True)
    return Caps(all_max, configured or max(1, all_max // ADDRESS_SHARE), exempts_loopback=configured is None)


def address_of(host: str) -> str:
    """Return the key for limits per address: an IPv4 address, or an IPv6 network."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return str(address)
    return str(ipaddress.IPv6Network((address, V6_NETWORK_BITS), strict=False).network_address)


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
        """Evicted or closed. After a cancelled handshake `connection_made` may still be called."""
        self.handshake: asyncio.Task[None] | None = None
        self.close_protocol: Callable[[], None] | None = None
        """Closes the connection, once it has a protocol."""

    def mark_active(self) -> None:
        """Exempt the connection from eviction: a request has begun to arrive."""
        self._listener.idle.discard(self)

    def mark_idle(self) -> None:
        """Allow eviction again: every request is answered."""
        if not self.is_closed:
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
            return bool(self.sock.recv(1, socket.MSG_PEEK))
        except OSError:  # nothing there, or closed
            return False

    def mark_closed(self) -> None:
        """Forget the connection: it is closed."""
        self.is_closed = True
        self.close_protocol = None  # breaks the reference cycle with the protocol
        self._listener.forget(self)


class DrainListener:
    """Accepts connections within the limits."""

    def __init__(
        self,
        make_protocol: Callable[[AcceptedConnection], asyncio.Protocol],
        caps: Caps,
        metrics: Metrics,
        *,
        load_shedder: LoadShedder,
        handshake_s: float,
    ) -> None:
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
        self.idle: IdleConnections[AcceptedConnection] = IdleConnections()
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
        inherited.detach()

    async def close(self, arriving_s: float) -> None:
        """Wait for connections that are being established, accept the backlog, then stop."""
        if self._listening is None:
            return
        await asyncio.sleep(arriving_s)
        for listening in self._all_listening():
            self._loop.remove_reader(listening)
            while self._accept(listening):  # noqa: ASYNC110 - only an accept shows that a queue is empty
                await asyncio.sleep(0)
        self._listening.close()
        self._listening = None
        for inherited in self._inherited.values():
            self._stop_accepting(inherited)
        self._inherited.clear()

    def _all_listening(self) -> list[socket.socket]:
        """Return our own socket and the inherited ones; empty after `close`."""
        return [] if self._listening is None else [self._listening, *self._inherited.values()]

    def count_head(self, connection: AcceptedConnection, head_bytes: int) -> None:
        """Set the size of an unfinished head; evict the oldest heads if all together are too large."""
        for oldest in self.heads.grow(connection, head_bytes):
            self._evict(oldest, "unfinished_head")
            limited.warning(
                "unfinished_heads",
                "connection closed: unfinished request heads are too large together, its own is the oldest",
                peer=oldest.address,
                bytes_max=UNFINISHED_HEADS_BYTES_MAX,
            )

    def forget(self, connection: AcceptedConnection) -> None:
        """Forget a connection that is closed."""
        self.idle.discard(connection)
        self.heads.discard(connection)
        self._refused.discard(connection)
        if connection in self._connections:
            del self._connections[connection]
            self._of_address[connection.address] -= 1
            if not self._of_address[connection.address]:
                del self._of_address[connection.address]

    def _accept(self, listening: socket.socket) -> bool:
        """Accept up to `ACCEPTS_MAX` waiting connections. True: more may be waiting."""
        for _ in range(ACCEPTS_MAX):
            if self._listening is None:
                return False
            try:
                sock, peer = listening.accept()
            except BlockingIOError:
                return False
            except (InterruptedError, ConnectionAbortedError):
                continue
            except OSError as reason:
                self._pause_accepting(reason)
                return False
            self._open_connection(sock, address_of(peer[0]))
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
        if self._tls is None and self._load_shedder.sheds(sock):
            return
        connection = AcceptedConnection(self, sock, address, is_refused=not self._has_room(address))
        if connection.is_refused:
            self._metrics.add("refusals", reason="connection")
            if len(self._refused) >= REFUSALS_MAX:
                sock.close()
                return
            self._refused.add(connection)
        else:
            self._connections[connection] = None
            self.idle.add_silent(connection)
            self._of_address[address] += 1
        connection.handshake = self._loop.create_task(self._perform_handshake(connection))
        self._handshakes.add(connection.handshake)
        connection.handshake.add_done_callback(self._handshakes.discard)

    def _has_room(self, address: str) -> bool:
        """Return whether a connection of this address may be opened, evicting an idle one if necessary."""
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
        self.forget(connection)
        connection.is_closed = True
        if connection.close_protocol is not None:
            connection.close_protocol()
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
        except OSError as reason:  # ssl.SSLError and TimeoutError are OSErrors
            self.forget(connection)
            self._metrics.add("refusals", reason="tls_handshake")
            wrong_protocol.warn("TLS handshake failed", handshake_cause(reason), connection.address)
