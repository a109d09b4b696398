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
from receiver.intake.away import Away
from receiver.intake.eviction import UNFINISHED_HEADS_BYTES_MAX, IdleConnections, UnfinishedHeads
from receiver.intake.wrong_protocol import handshake_cause
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.settings import Settings

ACCEPTS_MAX = 64
"""Connections accepted before others get their turn again."""
REFUSALS_MAX = 64
"""Connections over the caps that are told so at the same time; more are closed without a word."""
ADDRESS_SHARE = 4
"""One address may hold one in so many of all connections."""
REST_S = 0.1
"""Pause of the listener without a descriptor or memory for a connection, and without one to evict."""
EVICTED_REST_S = 0.01
"""The same after an eviction: the descriptor is free once the event loop has closed the connection."""
V6_NETWORK_BITS = 64
"""What one customer gets is one address to us."""


@dataclass(frozen=True, slots=True)
class Caps:
    """How many connections may be open."""

    connections_max: int
    per_address_max: int | None
    """None: no such cap."""
    spares_loopback: bool
    """What comes from this machine is a proxy with many behind it."""

    def of(self, address: str) -> int:
        """Give the cap of one address."""
        if self.per_address_max is None or (self.spares_loopback and is_loopback(address)):
            return self.connections_max
        return self.per_address_max


def caps(settings: Settings) -> Caps:
    """Give the caps that these settings mean."""
    all_max, said = settings.limits.connections_max, settings.limits.connections_per_address_max
    if said is None and settings.behind_proxy:
        return Caps(all_max, None, spares_loopback=True)
    return Caps(all_max, said or max(1, all_max // ADDRESS_SHARE), spares_loopback=said is None)


def address_of(host: str) -> str:
    """Name whom a connection comes from: an IPv4 address, or an IPv6 network."""
    if ":" not in host:
        return host
    found = ipaddress.IPv6Address(host.partition("%")[0])
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    if found.is_loopback:
        return str(found)
    return str(ipaddress.IPv6Network((found, V6_NETWORK_BITS), strict=False).network_address)


def is_loopback(address: str) -> bool:
    """Tell whether an address is this machine."""
    return address.startswith("127.") or address == "::1"


class Guest:
    """One connection, from its acceptance to its end."""

    __slots__ = ("_door", "accepted_at_s", "address", "handshake", "is_out", "is_refused", "plug", "show_out")

    def __init__(self, door: Door, plug: socket.socket, address: str, *, is_refused: bool) -> None:
        self._door = door
        self.plug = plug
        self.address = address
        self.accepted_at_s = time.monotonic()
        self.is_refused = is_refused
        self.is_out = False
        """Evicted or closed. After a cancelled handshake `connection_made` may still be called."""
        self.handshake: asyncio.Task[None] | None = None
        self.show_out: Callable[[], None] | None = None
        """Closes the connection, once it has a protocol."""

    def becomes_active(self) -> None:
        """Exempt the connection from eviction: a request has begun to arrive."""
        self._door.idle.discard(self)

    def becomes_idle(self) -> None:
        """Allow eviction again: every request is answered."""
        if not self.is_out:
            self._door.idle.add_used(self)

    def head_grows(self, head_bytes: int) -> None:
        """Count the bytes of a request head that has not ended yet."""
        if not self.is_out:
            self._door.count_head(self, head_bytes)

    def head_ends(self) -> None:
        """Stop counting the head: it has ended."""
        self._door.heads.discard(self)

    def has_unread_bytes(self) -> bool:
        """Return whether the kernel holds bytes that were not read yet."""
        try:
            return bool(self.plug.recv(1, socket.MSG_PEEK))
        except OSError:  # nothing there, or closed
            return False

    def leaves(self) -> None:
        """Forget the connection: it is closed."""
        self.is_out = True
        self.show_out = None  # the protocol, which holds us
        self._door.forget(self)


class Door:
    """Lets connections in."""

    def __init__(
        self,
        make: Callable[[Guest], asyncio.Protocol],
        caps: Caps,
        metrics: Metrics,
        *,
        away: Away,
        handshake_s: float,
    ) -> None:
        self._make = make
        self._caps = caps
        self._away = away
        self._handshake_s = handshake_s
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._listening: socket.socket | None = None
        self._borrowed: dict[int, socket.socket] = {}
        """Inherited sockets of intakes that are being replaced."""
        self._tls: ssl.SSLContext | None = None
        self._guests: dict[Guest, None] = {}
        self._refused: set[Guest] = set()
        self._of_address: Counter[str] = Counter()
        self.idle: IdleConnections[Guest] = IdleConnections()
        self.heads: UnfinishedHeads[Guest] = UnfinishedHeads()
        self._greeting: set[asyncio.Task[None]] = set()

    @property
    def guest_count(self) -> int:
        """Count those that were let in, handshakes included."""
        return len(self._guests)

    @property
    def is_busy(self) -> bool:
        """Tell whether somebody is being greeted, refused or sent away."""
        return bool(self._greeting or self._refused or self._away.held_count)

    def use(self, caps: Caps, *, handshake_s: float) -> None:
        """Use these for connections to come."""
        self._caps, self._handshake_s = caps, handshake_s

    def open(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept connections from now on."""
        listening.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
        self._listening, self._tls = listening, tls
        self._loop.add_reader(listening, self._accept, listening)

    def accept_for(self, listen_fds: Collection[int]) -> None:
        """Accept also from these inherited sockets, and no longer from any others but our own."""
        if self._listening is None:
            return
        for fd in self._borrowed.keys() - set(listen_fds):
            self._give_back(self._borrowed.pop(fd))
        for fd in set(listen_fds) - self._borrowed.keys():
            listening = self._borrowed[fd] = socket.socket(fileno=fd)
            listening.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
            self._loop.add_reader(listening, self._accept, listening)

    def _give_back(self, borrowed: socket.socket) -> None:
        """Stop accepting from it; the descriptor stays open for the next time."""
        self._loop.remove_reader(borrowed)
        borrowed.detach()

    async def close(self, arriving_s: float) -> None:
        """Let in who is there or arrives just now, then accept no more."""
        if self._listening is None:
            return
        await asyncio.sleep(arriving_s)
        for listening in self._all_listening():
            self._loop.remove_reader(listening)
            while self._accept(listening):  # noqa: ASYNC110 - only an accept shows that a queue is empty
                await asyncio.sleep(0)
        self._listening.close()
        self._listening = None
        for borrowed in self._borrowed.values():
            self._give_back(borrowed)
        self._borrowed.clear()

    def _all_listening(self) -> list[socket.socket]:
        """Return our own socket and the borrowed ones; none once closed."""
        return [] if self._listening is None else [self._listening, *self._borrowed.values()]

    def count_head(self, guest: Guest, head_bytes: int) -> None:
        """Set the size of an unfinished head; close the connections with the oldest ones if need be."""
        for oldest in self.heads.grow(guest, head_bytes):
            self._evict(oldest, "unfinished_head")
            limited.warning(
                "unfinished_heads",
                "connection closed: unfinished request heads are too large together, its own is the oldest",
                peer=oldest.address,
                bytes_max=UNFINISHED_HEADS_BYTES_MAX,
            )

    def forget(self, guest: Guest) -> None:
        """Forget a connection that is closed."""
        self.idle.discard(guest)
        self.heads.discard(guest)
        self._refused.discard(guest)
        if guest in self._guests:
            del self._guests[guest]
            self._of_address[guest.address] -= 1
            if not self._of_address[guest.address]:
                del self._of_address[guest.address]

    def _accept(self, listening: socket.socket) -> bool:
        """Accept up to `ACCEPTS_MAX` waiting connections. True: more may be waiting."""
        for _ in range(ACCEPTS_MAX):
            if self._listening is None:
                return False
            try:
                plug, peer = listening.accept()
            except BlockingIOError:
                return False
            except (InterruptedError, ConnectionAbortedError):
                continue
            except OSError as reason:
                self._rest(reason)
                return False
            self._welcome(plug, address_of(peer[0]))
        return True

    def _rest(self, reason: OSError) -> None:
        """Evict an idle connection when descriptors or memory run out, and pause instead of spinning."""
        is_evicted = self._evict_idle()
        limited.error(
            f"accept:{reason.errno}",
            "connection cannot be accepted",
            error=reason.strerror,
            action="an idle connection is closed in its place"
            if is_evicted
            else "raise the limit of open files",
        )
        for listening in self._all_listening():
            self._loop.remove_reader(listening)
        if self._listening is not None:
            self._loop.call_later(EVICTED_REST_S if is_evicted else REST_S, self._resume)

    def _resume(self) -> None:
        for listening in self._all_listening():
            self._loop.add_reader(listening, self._accept, listening)

    def _welcome(self, plug: socket.socket, address: str) -> None:
        plug.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
        if self._tls is None and self._away.takes(plug):
            return
        guest = Guest(self, plug, address, is_refused=not self._has_room(address))
        if guest.is_refused:
            self._metrics.add("refusals", reason="connection")
            if len(self._refused) >= REFUSALS_MAX:
                plug.close()
                return
            self._refused.add(guest)
        else:
            self._guests[guest] = None
            self.idle.add_silent(guest)
            self._of_address[address] += 1
        guest.handshake = self._loop.create_task(self._greet(guest))
        self._greeting.add(guest.handshake)
        guest.handshake.add_done_callback(self._greeting.discard)

    def _has_room(self, address: str) -> bool:
        """Return whether a connection of this address may be opened, if need be in place of an idle one."""
        if self._of_address[address] >= self._caps.of(address):
            return self._evict_idle(address)
        return len(self._guests) < self._caps.connections_max or self._evict_idle()

    def _evict_idle(self, address: str | None = None) -> bool:
        """Close an idle connection, of this address or of any. Returns False if there is none."""
        guest = self.idle.next_to_evict(address)
        if guest is None:
            return False
        self._evict(guest, "idle_connection")
        return True

    def _evict(self, guest: Guest, metric_reason: str) -> None:
        self.forget(guest)
        guest.is_out = True
        if guest.show_out is not None:
            guest.show_out()
        elif guest.handshake is not None:
            guest.handshake.cancel()
            guest.plug.close()
        self._metrics.add("refusals", reason=metric_reason)

    async def _greet(self, guest: Guest) -> None:
        """Shake hands, and hand the connection to its protocol."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(guest),
                guest.plug,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_s if self._tls else None,
            )
        except OSError as reason:  # ssl.SSLError and TimeoutError are OSErrors
            self.forget(guest)
            self._metrics.add("refusals", reason="tls_handshake")
            wrong_protocol.warn("TLS handshake failed", handshake_cause(reason), guest.address)
