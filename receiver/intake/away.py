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
"""Sockets that are held after the answer; more are closed at once."""
HELD_SHARE = 4
"""And not more than one for so many connections: where descriptors are few, they are for who is let in."""
COME_AGAIN = answers.verdict(
    Overloaded("more waits than is made safe in time; expected to be faster soon"), ContentKind.JSON
)


def held_max(connections_max: int) -> int:
    """Give how many sockets are held beside so many connections."""
    return min(HELD_MAX, connections_max // HELD_SHARE)


class Away:
    """Sends away whom it does not suit."""

    def __init__(
        self, require_time: Callable[[], None], metrics: Metrics, *, held_max: int = HELD_MAX
    ) -> None:
        self._require_time = require_time
        """Raises `Overloaded` when a delivery that comes now would be answered too late."""
        self._metrics = metrics
        self._held_max = held_max
        self._loop = asyncio.get_running_loop()
        self._held: set[socket.socket] = set()

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
        with suppress(OSError):
            plug.send(COME_AGAIN.wire(close=True, bodyless=False))
            plug.shutdown(socket.SHUT_WR)
        if self.held_count >= self._held_max:
            plug.close()
            return
        self._held.add(plug)
        self._loop.call_later(FAREWELL_S, self._let_go, plug)

    def _let_go(self, plug: socket.socket) -> None:
        self._held.discard(plug)
        plug.close()

    def close(self) -> None:
        """Hold nobody any longer."""
        while self._held:
            self._held.pop().close()
