"""Pending batch: deliveries that the core collected, which wait together for their receipt.

Invariant: what is not the same for all deliveries of a batch is decided for each alone: `split` returns a
    pending delivery for each, and every receipt but a complete acceptance goes to these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from receiver.errors import ReceiverError
from receiver.intake.admission import Claim
from receiver.intake.pending import UNPACKED_FACTOR, PendingDelivery, ReceiptCallback
from receiver.model import Delivery, Outcome
from receiver.transcode import FastBatch

OnAccepted = Callable[[FastBatch], None]
"""Called once if every delivery of the batch was accepted in full."""
Parts = Callable[[FastBatch], Iterable[tuple[Delivery, ReceiptCallback]]]
"""Returns the deliveries of a batch, each with the callback for its receipt."""


def deliveries_of(batch: FastBatch) -> Iterator[tuple[Any, Delivery]]:
    """Yield the deliveries of a batch, each with the protocol of its connection; `None` if that is closed."""
    for protocol, body in batch.split():
        yield protocol, batch.origin._replace(body=body, received_at_ns=batch.received_at_ns)


class PendingBatch:
    """Deliveries of one sender that wait for their receipt. Used as `PendingDelivery` is."""

    __slots__ = (
        "_is_accepted",
        "_is_queued",
        "_on_accepted",
        "_parts",
        "_singles",
        "claim",
        "count",
        "deadline",
        "delivery",
        "weight_bytes",
    )
    until_stored = False

    def __init__(
        self, batch: FastBatch, claim: Claim, on_accepted: OnAccepted, parts: Parts, deadline: float
    ) -> None:
        self.delivery = batch
        self.claim = claim
        self.deadline = deadline
        self._is_queued = False
        self.count = len(batch)
        self.weight_bytes = batch.body_bytes * (UNPACKED_FACTOR if batch.is_encoded else 1)
        self._on_accepted = on_accepted
        self._parts = parts
        self._is_accepted = False
        self._singles: list[PendingDelivery] | None = None

    @property
    def is_queued(self) -> bool:
        if self._singles is None:
            return self._is_queued
        # Those that were postponed or held are in the queue again.
        return any(single.is_queued and not single.is_resolved for single in self._singles)

    @is_queued.setter
    def is_queued(self, is_queued: bool) -> None:
        self._is_queued = is_queued

    @property
    def is_resolved(self) -> bool:
        if self._singles is None:
            return self._is_accepted
        return all(single.is_resolved for single in self._singles)

    def resolve(self, receipt: Outcome | ReceiverError) -> None:
        if self._singles is None and not isinstance(receipt, ReceiverError):
            self._is_accepted = True
            self._on_accepted(self.delivery)
            return
        for single in self._split():
            single.resolve(receipt)

    def split(self) -> Sequence[PendingDelivery]:
        singles = self._split()
        # It stays in the queue of deadlines, perhaps for long.
        del self.delivery
        return singles

    def _split(self) -> Sequence[PendingDelivery]:
        if self._singles is None:
            self._singles = [self._single(*part) for part in self._parts(self.delivery)]
            self.claim.release()
        return self._singles

    def _single(self, delivery: Delivery, on_receipt: ReceiptCallback) -> PendingDelivery:
        self.claim.share()
        single = PendingDelivery(delivery, self.claim, on_receipt, self.deadline, until_stored=False)
        single.is_queued = self._is_queued
        return single

    def release_body(self) -> None:
        del self.delivery
        if self._singles is None:
            self.claim.release()
        else:
            for single in self._singles:
                single.release_body()
