"""Eviction: chooses the connection to close for a new connection, or for more bytes of unfinished heads.

Connections are evicted in this order:

1. connections that were accepted at least `SILENT_S` ago and have sent nothing: oldest first;
2. connections between two requests: longest idle first;
3. connections that were accepted more recently and have sent nothing: oldest first.

Invariant: a connection is never evicted after bytes of an unanswered request have arrived, even if they are
still in the kernel's buffer. The only exception: an unfinished head may be evicted when all unfinished heads
together reach their limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain, islice, takewhile
from typing import Generic, Protocol, TypeVar

from receiver.settings import MIB

SILENT_S = 1.0
"""Age from which on a connection that has sent nothing is evicted before connections that were used."""
CANDIDATES_MAX = 16
"""Maximum number of connections to check for one eviction, because each check costs a system call."""
UNFINISHED_HEADS_BYTES_MAX = 16 * MIB
"""Limit on the received bytes of all unfinished heads in an intake. Parsed heads take three times as much."""


class Evictable(Protocol):
    """A connection, as eviction sees it."""

    address: str
    """IPv4 address or IPv6 network of the peer."""
    accepted_at_s: float

    def has_unread_bytes(self) -> bool:
        """Return whether the kernel holds bytes that were not read yet."""


C = TypeVar("C", bound=Evictable)


class _Queue(Generic[C]):
    """Connections in the order in which they were added, for all peers and for each peer."""

    def __init__(self) -> None:
        self._all: dict[C, None] = {}
        self._of_address: dict[str, dict[C, None]] = {}

    def add(self, connection: C) -> None:
        self._all[connection] = None
        # Dictionaries as ordered sets: insertion order is the age, and removal takes constant time.
        self._of_address.setdefault(connection.address, {})[connection] = None

    def discard(self, connection: C) -> bool:
        """Remove a connection. Return whether it was in the queue."""
        if connection not in self._all:
            return False
        del self._all[connection]
        same = self._of_address[connection.address]
        del same[connection]
        # Remove empty entries, or memory would grow with the number of addresses ever seen.
        if not same:
            del self._of_address[connection.address]
        return True

    def of(self, address: str | None) -> Iterator[C]:
        """Iterate over the connections of one address, or over all."""
        return iter(self._all if address is None else self._of_address.get(address, {}))


class IdleConnections(Generic[C]):
    """The connections that may be evicted."""

    def __init__(self, catch_up: Callable[[], None], now: Callable[[], float] = time.monotonic) -> None:
        """`catch_up`: adds and discards connections whose requests the core has taken and answered."""
        self._catch_up = catch_up
        self._now = now
        self._silent: _Queue[C] = _Queue()
        self._used: _Queue[C] = _Queue()

    def add_silent(self, connection: C) -> None:
        """Add a connection that was just accepted."""
        self._silent.add(connection)

    def add_used(self, connection: C) -> None:
        """Add a connection whose last request is answered."""
        # First, because connections that became idle earlier are evicted earlier.
        self._catch_up()
        self._used.add(connection)

    def discard(self, connection: C) -> None:
        """Remove a connection that has sent bytes or was closed."""
        # A connection is in one queue at most, and a connection with many requests is in this one.
        if not self._used.discard(connection):
            self._silent.discard(connection)

    def next_to_evict(self, address: str | None = None) -> C | None:
        """Return the connection to evict, of one address or of all; `None` if no connection is idle."""
        self._catch_up()
        silent_before_s = self._now() - SILENT_S
        in_order = chain(
            # The order of insertion is the order of acceptance, so all later connections are younger.
            takewhile(
                lambda connection: connection.accepted_at_s <= silent_before_s, self._silent.of(address)
            ),
            self._used.of(address),
            # Repeats the older connections, which had unread bytes if the search gets here.
            self._silent.of(address),
        )
        # Without a limit, a thousand connections with unread bytes would each cost a system call per
        # eviction.
        candidates = islice(in_order, CANDIDATES_MAX)
        return next((connection for connection in candidates if not connection.has_unread_bytes()), None)


class UnfinishedHeads(Generic[C]):
    """The bytes of request heads that have not ended, by connection, oldest head first."""

    def __init__(self) -> None:
        self._bytes: dict[C, int] = {}
        self.bytes_total = 0

    def grow(self, connection: C, head_bytes: int) -> list[C]:
        """Set the size of a head. Return the connections to evict if all heads together are too large."""
        self.bytes_total += head_bytes - self._bytes.get(connection, 0)
        # A key that exists keeps its place, so the age of a head is that of its first byte.
        self._bytes[connection] = head_bytes
        # `bytes_total` is not reduced here: the caller evicts, which calls `discard` for each connection.
        evicted, bytes_left = [], self.bytes_total
        for oldest, size_bytes in self._bytes.items():
            if bytes_left <= UNFINISHED_HEADS_BYTES_MAX:
                break
            evicted.append(oldest)
            bytes_left -= size_bytes
        return evicted

    def discard(self, connection: C) -> None:
        """Stop counting a head that is complete or whose connection has closed."""
        self.bytes_total -= self._bytes.pop(connection, 0)
