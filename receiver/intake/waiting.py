"""Deliveries that wait for their receipt: in line for a group, for room in the journal, or for the store.

Keeps: a receipt is given once, and whoever waits gets one by the deadline. The claim on a body is shared from
    joining the line until the body is let go, whatever its sender was told meanwhile.
Never: work for a delivery that nobody waits for any more.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from receiver.errors import DeadlinePassed, JournalFull, ReceiverError
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

    __slots__ = (
        "_give",
        "claim",
        "deadline",
        "delivery",
        "is_given",
        "is_in_line",
        "until_stored",
        "weight_bytes",
    )

    def __init__(
        self, delivery: Delivery, claim: Claim, give: Give, deadline: float, *, until_stored: bool
    ) -> None:
        self.delivery = delivery
        self.claim = claim
        self._give = give
        self.deadline = deadline
        """Time of the event loop."""
        self.until_stored = until_stored
        self.is_in_line = False
        """It belongs to no group yet: it is not on its way to the disk."""
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
        waiting.is_in_line = True
        self._waiting.append(waiting)
        self.weight_bytes += waiting.weight_bytes
        self._by_deadline.append(waiting)
        if len(self._waiting) == 1:
            self._arrived.set()

    def put_back(self, postponed: Sequence[Waiting]) -> None:
        """Stand at the head of the line again, in the order they had."""
        for waiting in reversed(postponed):
            self._waiting.appendleft(waiting)
            waiting.is_in_line = True
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
                first.is_in_line = False
            else:
                first.let_go()
            waiting.popleft()
            self.weight_bytes -= first.weight_bytes
        if not (waiting or self._is_awake):
            self._arrived.clear()
        return group

    def expire(self, now: float, full_reason: str | None = None) -> None:
        """Give a verdict to every delivery whose deadline has passed, and free the bodies of those in line.

        `full_reason`: why nothing is taken from the line now, if that is so.
        """
        while self._by_deadline:
            first = self._by_deadline[0]
            if not first.is_given:
                if first.deadline > now:
                    break
                first.give(_late_verdict(first, full_reason))
            self._by_deadline.popleft()
        self._let_go()

    def _let_go(self) -> None:
        """Drop those at the head of the line that nobody waits for."""
        while self._waiting and self._waiting[0].is_given:
            first = self._waiting.popleft()
            self.weight_bytes -= first.weight_bytes
            first.let_go()


def _late_verdict(waiting: Waiting, full_reason: str | None) -> ReceiverError:
    if full_reason is not None and waiting.is_in_line:
        return JournalFull(full_reason)
    return DeadlinePassed("the delivery could not be made safe in time; it may still be")


@dataclass(frozen=True, slots=True)
class Held:
    """A delivery that is held because the record of its group did not fit into the journal."""

    waiting: Waiting
    record_bytes: int
    """Its expected share of a record."""
    reason: str


class Hold:
    """Deliveries held until the journal has room for them, or their deadlines have passed."""

    def __init__(self) -> None:
        self._held: list[Held] = []

    def add(self, waiting: Sequence[Waiting], record_bytes: int, reason: str) -> None:
        """Hold deliveries each by itself: there may be room for some. Their bodies stay claimed."""
        weight_bytes = sum(one.weight_bytes for one in waiting) or 1
        for one in waiting:
            self._held.append(Held(one, record_bytes * one.weight_bytes // weight_bytes, reason))

    def release(self, full_reason: Callable[[int], str | None], line: Line, now: float) -> None:
        """Return to the line what has room now, oldest first; refuse deliveries past their deadline."""
        held, self._held = self._held, []
        returned: list[Waiting] = []
        returned_bytes, refused_bytes_min = 0, math.inf
        for one in held:
            if not one.waiting.is_given and one.waiting.deadline <= now:
                one.waiting.give(JournalFull(one.reason))
            if one.waiting.is_given:
                one.waiting.let_go()
            elif (
                one.record_bytes < refused_bytes_min
                and full_reason(returned_bytes + one.record_bytes) is None
            ):
                returned.append(one.waiting)
                returned_bytes += one.record_bytes
            else:
                refused_bytes_min = min(refused_bytes_min, one.record_bytes)
                self._held.append(one)
        line.put_back(returned)

    def refuse_all(self, reason: str) -> None:
        """Refuse what is held: there will be no more room."""
        held, self._held = self._held, []
        refuse([one.waiting for one in held], JournalFull(reason))


def refuse(waiting: Sequence[Waiting], reason: ReceiverError) -> None:
    """Give these deliveries a verdict and free their bodies."""
    for one in waiting:
        one.give(reason)
        one.let_go()
