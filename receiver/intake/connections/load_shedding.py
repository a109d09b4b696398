"""Load shedding: answers new connections with 503 while queued deliveries need too long to be written.

Setting up a connection, parsing its request and refusing it costs ten times as much as answering it directly
on the socket. At ten times the load that difference is a quarter of a core. Existing connections are kept:
their deliveries are refused one by one, which is cheap.

Invariant: an answer is not destroyed by the reset that unread bytes would cause: the socket lingers after it.
Never: sheds a TLS connection, whose client could not read a plain-text answer.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from receiver.errors import Overloaded
from receiver.intake import answers
from receiver.intake.answers import LINGER_S
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.model import ContentKind
from receiver.refusals import refused

HELD_MAX = 1_024
"""Maximum number of sockets that linger after the answer. Above it, the oldest is closed."""
HELD_SHARE = 4
"""Connections per lingering socket, so that lingering sockets do not use up scarce descriptors."""
OVERLOADED_REPLY = answers.verdict(
    Overloaded("overloaded: more deliveries wait than can be written in time; retry in 2 s"), ContentKind.JSON
)


def held_max(connections_max: int) -> int:
    """Return the number of sockets that may linger in addition to this many connections."""
    return max(1, min(HELD_MAX, connections_max // HELD_SHARE))


class LoadShedder:
    """Answers new connections with 503 while the receiver is overloaded."""

    def __init__(
        self, refuse_if_overloaded: Callable[[], None], metrics: Metrics, *, held_max: int = HELD_MAX
    ) -> None:
        self._refuse_if_overloaded = refuse_if_overloaded
        """Raises `Overloaded` if a delivery that arrives now would be answered too late."""
        self._metrics = metrics
        self._held_max = held_max
        self._loop = asyncio.get_running_loop()
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        """Lingering sockets in the order in which they will be closed."""
        self._silent: set[socket.socket] = set()
        """Lingering sockets whose clients have sent nothing and got no answer yet."""

    def use(self, *, held_max: int) -> None:
        """Apply a new limit on lingering sockets."""
        self._held_max = held_max

    @property
    def held_count(self) -> int:
        """Return the number of lingering sockets."""
        return len(self._held)

    def shed_if_overloaded(self, sock: socket.socket) -> bool:
        """Answer this connection with 503 if the receiver is overloaded. Return whether it was answered."""
        try:
            self._refuse_if_overloaded()
        except Overloaded as error:
            self._shed(sock, str(error))
            return True
        return False

    def _shed(self, sock: socket.socket, error: str) -> None:
        self._metrics.add("refusals", reason="overloaded_connection")
        refused.note("overloaded_connection", status=OVERLOADED_REPLY.status, error=error)
        # Without a drain, because the request is not read.
        self._metrics.add("deliveries", drain="", status=str(OVERLOADED_REPLY.status))
        limited.warning("overloaded_connection", "new connections are answered 503", error=error)
        # Make space first, so that a flood of connections cannot use up the file descriptors.
        while self._held and self.held_count >= self._held_max:
            self._close_held(next(iter(self._held)))
        self._hold(sock)
        self._silent.add(sock)
        # Some clients report a connection error if the answer arrives before they have sent a request.
        self._loop.add_reader(sock, self._answer, sock)

    def _hold(self, sock: socket.socket) -> None:
        self._held[sock] = self._loop.call_later(LINGER_S, self._close_held, sock)

    def _answer(self, sock: socket.socket) -> None:
        """Answer a connection whose request arrives, and restart its linger timer."""
        self._send_reply(sock)
        self._held.pop(sock).cancel()
        self._hold(sock)

    def _close_held(self, sock: socket.socket) -> None:
        if sock in self._silent:
            self._send_reply(sock)
        self._held.pop(sock).cancel()
        sock.close()

    def _send_reply(self, sock: socket.socket) -> None:
        self._silent.discard(sock)
        # The request stays unread, so the reader would be called in every iteration of the event loop.
        self._loop.remove_reader(sock)
        with suppress(OSError):
            # One call is enough: the answer fits into the empty send buffer of a new socket.
            sock.send(OVERLOADED_REPLY.wire(close=True, bodyless=False))
            # Only the sending side: unread bytes of the request would turn a full close into a reset.
            sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Answer and close all lingering sockets."""
        while self._held:
            self._close_held(next(iter(self._held)))
