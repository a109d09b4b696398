"""Deliveries that wait for their receipt: in line for a group, for the store, or past their deadline.

Keeps: a receipt is given once, and whoever waits gets one by the deadline. The claim on a body is shared from
    joining the line until the body is let go, whatever its sender was told meanwhile.
Never: work for a delivery that nobody waits for any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from receiver.errors import DeadlinePassed, ReceiverError
from receiver.intake.admission import Claim
from receiver.intake.outcome import Outcome
from receiver.model import Delivery, SegmentId
from receiver.settings import MIB

GROUP_BYTES_MAX = 32 * MIB
GROUP_DELIVERIES_MAX = 1_024
UNPACKED_FACTOR = 16
"""What a compressed byte is taken to unpack to, when a group is filled."""

Receipt = asyncio.Future[Outcome | ReceiverError]
"""A verdict is a result like any other: nobody may be there any more to hear it raised."""


@dataclass(slots=True, eq=False)
class Waiting:
    """One delivery and the place where its receipt goes."""

    delivery: Delivery
    claim: Claim
    until_stored: bool
    deadline: float
    """Time of the event loop."""
    receipt: Receipt

    def give(self, receipt: Outcome | ReceiverError) -> None:
        """Give the receipt, unless the deadline was faster."""
        if not self.receipt.done():
            self.receipt.set_result(receipt)

    @property
    def weight_bytes(self) -> int:
        """What this delivery counts in its group."""
        return len(self.delivery.body) * (UNPACKED_FACTOR if self.delivery.encodings else 1)


class Line:
    """Deliveries in line for the next group, in the order they came."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()
        self._deadlines: deque[tuple[float, Receipt]] = deque()
        self._arrived = asyncio.Event()
        self.weight_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, waiting: Waiting) -> None:
        """Stand in line."""
        waiting.claim.share()
        self._waiting.append(waiting)
        self.weight_bytes += waiting.weight_bytes
        self._deadlines.append((waiting.deadline, waiting.receipt))
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
        while self._deadlines:
            deadline, receipt = self._deadlines[0]
            if not receipt.done():
                if deadline > now:
                    break
                receipt.set_result(
                    DeadlinePassed("the delivery could not be made safe in time; it may still be")
                )
            self._deadlines.popleft()
        self._let_go()

    def _let_go(self) -> None:
        """Drop those at the head of the line that nobody waits for."""
        while self._waiting and self._waiting[0].receipt.done():
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
            if (still := [one for one in waiters if not one[0].receipt.done()])
        }
        return list(self._by_segment)

    def stored(self, segment: SegmentId) -> None:
        """Give the receipts that waited for this segment."""
        for waiting, outcome in self._by_segment.pop(segment, []):
            waiting.give(outcome)
