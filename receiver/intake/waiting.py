"""Deliveries that wait for their receipt: in line for a group, for the store, or past their deadline.

Keeps: a receipt is given once, and whoever waits gets one by the deadline. The claim on a body is shared from
    joining the line until the body is let go, whatever its sender was told meanwhile.
Never: work for a delivery that nobody waits for any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from receiver.errors import DeadlinePassed, ReceiverError
from receiver.intake.admission import Claim
from receiver.model import ContentKind, Delivery, Outcome
from receiver.settings import MIB

GROUP_BYTES_MAX = 32 * MIB
GROUP_DELIVERIES_MAX = 1_024
UNPACKED_FACTOR = 16
"""What a compressed byte is taken to unpack to, when a group is filled."""

Give = Callable[[Outcome | ReceiverError], None]
"""Where a receipt goes. A verdict is one like any other. Must not raise."""


class Waiting:
    """One delivery, and the place where its receipt goes."""

    __slots__ = ("_give", "claim", "deadline", "delivery", "is_given", "until_stored", "weight_bytes")

    def __init__(
        self, delivery: Delivery, claim: Claim, give: Give, deadline: float, *, until_stored: bool
    ) -> None:
        self.delivery = delivery
        self.claim = claim
        self._give = give
        self.deadline = deadline
        """Time of the event loop."""
        self.until_stored = until_stored
        self.is_given = False
        """Also when nobody waits for it any more."""
        self.weight_bytes = len(delivery.body) * (UNPACKED_FACTOR if delivery.encodings else 1)
        """What this delivery counts in its group."""

    def give(self, receipt: Outcome | ReceiverError) -> None:
        """Give the receipt, unless the deadline was faster."""
        if not self.is_given:
            self.is_given = True
            give, self._give = self._give, _nobody
            give(receipt)

    def forget(self) -> None:
        """Wait for it no longer, and let go of who waited."""
        self.is_given = True
        self._give = _nobody

    def let_go(self) -> None:
        """Let go of the body: what is left is the place of a receipt."""
        self.delivery = GONE
        self.claim.release()


GONE = Delivery("", b"", ContentKind.PROTOBUF, (), 0, strict=False, body_bytes_max=0)
"""In the place of a delivery that was let go of."""


def _nobody(_: Outcome | ReceiverError) -> None:
    """Nobody waits any more."""


class Line:
    """Deliveries in line for the next group, in the order they came."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()
        self._by_deadline: deque[Waiting] = deque()
        """All that have no receipt yet, wherever they are by now."""
        self._arrived = asyncio.Event()
        self._is_awake = False
        self.weight_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, waiting: Waiting) -> None:
        """Stand in line."""
        waiting.claim.share()
        self._waiting.append(waiting)
        self.weight_bytes += waiting.weight_bytes
        self._by_deadline.append(waiting)
        if len(self._waiting) == 1:
            self._arrived.set()

    def put_back(self, postponed: Sequence[Waiting]) -> None:
        """Stand at the head of the line again, in the order they had."""
        for waiting in reversed(postponed):
            self._waiting.appendleft(waiting)
            self.weight_bytes += waiting.weight_bytes
        if postponed:
            self._arrived.set()

    async def arrival(self) -> None:
        """Wait until somebody stands in line, or `wake` is called."""
        await self._arrived.wait()

    def wake(self) -> None:
        """Let `arrival` return from now on."""
        self._is_awake = True
        self._arrived.set()

    def take_group(self, bytes_max: int) -> list[Waiting]:
        """Take the next group: as many as fit, and at least one. The taker lets go of their bodies."""
        group: list[Waiting] = []
        group_bytes, bytes_max = 0, min(bytes_max, GROUP_BYTES_MAX)
        waiting = self._waiting
        while waiting and len(group) < GROUP_DELIVERIES_MAX:
            first = waiting[0]
            if not first.is_given:
                group_bytes += first.weight_bytes
                if group and group_bytes > bytes_max:
                    break
                group.append(first)
            else:
                first.let_go()
            waiting.popleft()
            self.weight_bytes -= first.weight_bytes
        if not (waiting or self._is_awake):
            self._arrived.clear()
        return group

    def expire(self, now: float) -> None:
        """Tell those whose deadline has passed, wherever they are by now, and let go of those in line."""
        while self._by_deadline:
            first = self._by_deadline[0]
            if not first.is_given:
                if first.deadline > now:
                    break
                first.give(DeadlinePassed("the delivery could not be made safe in time; it may still be"))
            self._by_deadline.popleft()
        self._let_go()

    def _let_go(self) -> None:
        """Drop those at the head of the line that nobody waits for."""
        while self._waiting and self._waiting[0].is_given:
            first = self._waiting.popleft()
            self.weight_bytes -= first.weight_bytes
            first.let_go()
