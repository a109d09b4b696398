"""Sends connections away while more waits than can be made safe in time.

To make a connection, parse a request and refuse it costs ten times what it costs to say so as soon as
somebody calls; of ten times the load that would be a quarter of a core. Who has a connection already is not
sent away: its deliveries are refused one by one, which is cheap.

Keeps: an answer is not destroyed by the reset that unread bytes would cause: a socket is held a while.
Never: a TLS connection, which would not understand.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from receiver.errors import Overloaded
from receiver.intake import answers
from receiver.intake.protocol import FAREWELL_S
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.model import ContentKind

HELD_MAX = 1_024
"""Sockets that are held until a while after the answer; of more, the one that has waited longest goes."""
HELD_SHARE = 4
"""And not more than one for so many connections: where descriptors are few, they are for who is let in."""
COME_AGAIN = answers.verdict(
    Overloaded("more waits than is made safe in time; expected to be faster soon"), ContentKind.JSON
)


def held_max(connections_max: int) -> int:
    """Give how many sockets are held beside so many connections."""
    return max(1, min(HELD_MAX, connections_max // HELD_SHARE))


class LoadShedder:
    """Sends away whom it does not suit."""

    def __init__(
        self, require_time: Callable[[], None], metrics: Metrics, *, held_max: int = HELD_MAX
    ) -> None:
        self._require_time = require_time
        """Raises `Overloaded` when a delivery that comes now would be answered too late."""
        self._metrics = metrics
        self._held_max = held_max
        self._loop = asyncio.get_running_loop()
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        """By the time when they are let go, the first of them first."""
        self._silent: set[socket.socket] = set()
        """Of them, those that have said nothing and were told nothing yet."""

    def use(self, *, held_max: int) -> None:
        """Hold so many from now on."""
        self._held_max = held_max

    @property
    def held_count(self) -> int:
        """Count the sockets whose answer may not be read yet."""
        return len(self._held)

    def takes(self, plug: socket.socket) -> bool:
        """Tell whether this one was sent away."""
        try:
            self._require_time()
        except Overloaded as reason:
            self._send_away(plug, str(reason))
            return True
        return False

    def _send_away(self, plug: socket.socket, why: str) -> None:
        self._metrics.add("refusals", reason="overloaded_connection")
        self._metrics.add("deliveries", drain="", status=str(COME_AGAIN.status))
        limited.warning("overloaded_connection", "connections are sent away", why=why)
        while self._held and self.held_count >= self._held_max:
            self._let_go(next(iter(self._held)))
        self._hold(plug)
        self._silent.add(plug)
        self._loop.add_reader(plug, self._answer, plug)

    def _hold(self, plug: socket.socket) -> None:
        self._held[plug] = self._loop.call_later(FAREWELL_S, self._let_go, plug)

    def _answer(self, plug: socket.socket) -> None:
        """Answer who has said something, and leave it the time to read that."""
        self._tell(plug)
        self._held.pop(plug).cancel()
        self._hold(plug)

    def _let_go(self, plug: socket.socket) -> None:
        if plug in self._silent:
            self._tell(plug)
        self._held.pop(plug).cancel()
        plug.close()

    def _tell(self, plug: socket.socket) -> None:
        self._silent.discard(plug)
        self._loop.remove_reader(plug)
        with suppress(OSError):
            plug.send(COME_AGAIN.wire(close=True, bodyless=False))
            plug.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Hold nobody any longer."""
        while self._held:
            self._let_go(next(iter(self._held)))
