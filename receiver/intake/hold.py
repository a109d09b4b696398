"""Hold: deliveries whose record did not fit into the journal, until it has space or their deadlines pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from receiver.errors import JournalFull
from receiver.intake.pending import DeliveryQueue, PendingDelivery, refuse


@dataclass(frozen=True, slots=True)
class Held:
    """A delivery that is held because the record of its group did not fit into the journal."""

    pending: PendingDelivery
    record_bytes: int
    """Expected size of its part of a record."""
    reason: str


class Hold:
    """Deliveries that are held until the journal has space for them or their deadlines have passed."""

    def __init__(self) -> None:
        self._held: list[Held] = []

    def add(self, pending: Sequence[PendingDelivery], record_bytes: int, reason: str) -> None:
        """Hold each delivery separately, because some may fit. The claims on their bodies remain."""
        # `or 1`: empty bodies weigh nothing.
        weight_bytes = sum(delivery.weight_bytes for delivery in pending) or 1
        for delivery in pending:
            self._held.append(Held(delivery, record_bytes * delivery.weight_bytes // weight_bytes, reason))

    def release(self, full_reason: Callable[[int], str | None], queue: DeliveryQueue, now: float) -> None:
        """Requeue the deliveries that fit now, oldest first; refuse deliveries past their deadline."""
        held, self._held = self._held, []
        returned: list[PendingDelivery] = []
        returned_bytes, refused_bytes_min = 0, math.inf
        for item in held:
            if not item.pending.is_resolved and item.pending.deadline <= now:
                item.pending.resolve(JournalFull(item.reason))
            if item.pending.is_resolved:
                item.pending.release_body()
            elif (
                # A delivery as large as a delivery that did not fit will not fit either: no need to measure.
                item.record_bytes < refused_bytes_min
                # Together with those returned before it, whose records are not on disk yet.
                and full_reason(returned_bytes + item.record_bytes) is None
            ):
                returned.append(item.pending)
                returned_bytes += item.record_bytes
            else:
                refused_bytes_min = min(refused_bytes_min, item.record_bytes)
                self._held.append(item)
        queue.requeue(returned)

    def refuse_all(self, reason: str) -> None:
        """Refuse all held deliveries, because no more space will become free in the journal."""
        held, self._held = self._held, []
        refuse([item.pending for item in held], JournalFull(reason))
