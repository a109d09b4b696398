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
from receiver.model import Delivery, Outcome, SegmentId
from receiver.settings import MIB

GROUP_BYTES_MAX = 32 * MIB
GROUP_DELIVERIES_MAX = 1_024
UNPACKED_FACTOR = 16
"""What a compressed byte is taken to unpack to, when a group is filled."""

Give = Callable[[Outcome | ReceiverError], None]
"""Where a receipt goes. A verdict is one like any other. Must not raise."""


class Receipt:
    """The place of a receipt, and until when it is waited for."""

    __slots__ = ("_give", "deadline", "is_given")

    def __init__(self, give: Give, deadline: float) -> None:
        self._give = give
        self.deadline = deadline
        """Time of the event loop."""
        self.is_given = False
        """Also when nobody waits for it any more."""

    def give(self, receipt: Outcome | ReceiverError) -> None:
        """Give it, unless the deadline was faster."""
        if not self.is_given:
            give = self._give
            self.forget()
            give(receipt)

    def forget(self) -> None:
        """Wait for it no longer, and let go of who waited."""
        self.is_given = True
        self._give = _nobody


def _nobody(_: Outcome | ReceiverError) -> None:
    """Nobody waits any more."""


class Waiting:
    """One delivery and the place where its receipt goes."""

    __slots__ = ("claim", "delivery", "receipt", "until_stored", "weight_bytes")

    def __init__(self, delivery: Delivery, claim: Claim, receipt: Receipt, *, until_stored: bool) -> None:
        self.delivery = delivery
        self.claim = claim
        self.receipt = receipt
        self.until_stored = until_stored
        self.weight_bytes = len(delivery.body) * (UNPACKED_FACTOR if delivery.encodings else 1)
        """What this delivery counts in its group."""


class Line:
    """Deliveries in line for the next group, in the order they came."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()
        self._receipts: deque[Receipt] = deque()
        """Those not given yet, by deadline. Without the bodies: they may be gone long before."""
        self._arrived = asyncio.Event()
        self.weight_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, waiting: Waiting) -> None:
        """Stand in line."""
        waiting.claim.share()
        self._waiting.append(waiting)
        self.weight_bytes += waiting.weight_bytes
        self._receipts.append(waiting.receipt)
        self._arrived.set()

    def put_back(self, postponed: Sequence[Waiting]) -> None:
        """Stand at the head of the line again, in the order they had."""
        for waiting in reversed(postponed):
            waiting.claim.share()
            self._waiting.appendleft(waiting)
            self.weight_bytes += waiting.weight_bytes
        if postponed:
            self._arrived.set()

    async def arrival(self) -> None:
        """Wait until somebody stands in line, or `wake` is called."""
        await self._arrived.wait()

    def wake(self) -> None:
        """Let `arrival` return from now on."""
        self._arrived.set()

    def take_group(self) -> list[Waiting]:
        """Take the next group: as many as fit, and at least one. Their claims are the taker's to release."""
        group: list[Waiting] = []
        group_bytes = 0
        self._let_go()
        while self._waiting and len(group) < GROUP_DELIVERIES_MAX:
            group_bytes += self._waiting[0].weight_bytes
            if group and group_bytes > GROUP_BYTES_MAX:
                break
            group.append(self._taken())
            self._let_go()
        if not self._waiting:
            self._arrived.clear()
        return group

    def expire(self, now: float) -> None:
        """Tell those whose deadline has passed, wherever they are by now, and let go of those in line."""
        while self._receipts:
            receipt = self._receipts[0]
            if not receipt.is_given:
                if receipt.deadline > now:
                    break
                receipt.give(DeadlinePassed("the delivery could not be made safe in time; it may still be"))
            self._receipts.popleft()
        self._let_go()

    def _let_go(self) -> None:
        """Drop those at the head of the line that nobody waits for."""
        while self._waiting and self._waiting[0].receipt.is_given:
            self._taken().claim.release()

    def _taken(self) -> Waiting:
        first = self._waiting.popleft()
        self.weight_bytes -= first.weight_bytes
        return first


class StoreLine:
    """Deliveries whose promise waits until their segment is in the store."""

    def __init__(self) -> None:
        self._by_segment: dict[SegmentId, list[tuple[Waiting, Outcome]]] = {}

    def join(self, segment: SegmentId, waiting: Waiting, outcome: Outcome) -> None:
        """Wait for a segment."""
        self._by_segment.setdefault(segment, []).append((waiting, outcome))

    def segments(self) -> list[SegmentId]:
        """List the segments somebody still waits for."""
        self._by_segment = {
            segment: still
            for segment, waiters in self._by_segment.items()
            if (still := [one for one in waiters if not one[0].receipt.is_given])
        }
        return list(self._by_segment)

    def stored(self, segment: SegmentId) -> None:
        """Give the receipts that waited for this segment."""
        for waiting, outcome in self._by_segment.pop(segment, []):
            waiting.receipt.give(outcome)
