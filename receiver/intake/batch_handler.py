"""Batch handler: takes the deliveries that the core collected, and answers them together.

    FastConnection ─▶ FastSender ─▶ BatchHandler ─▶ committer ─▶ FastBatch.answer

A batch that is not taken is handed back: each connection handles its bytes as if they had just arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from receiver.errors import ReceiverError
from receiver.intake.admission import Claim
from receiver.intake.batch import OnAccepted, Parts, deliveries_of
from receiver.intake.handler import DeliveryHandler
from receiver.intake.head import Head
from receiver.intake.pending import ReceiptCallback
from receiver.intake.routes import Routes, Sender
from receiver.logs import limited
from receiver.model import Delivery, Outcome
from receiver.settings import KIB
from receiver.transcode import FastBatch, FastSender

COLLECTED_BYTES_MAX = 64 * KIB
"""Largest body that the core collects. Its memory is claimed after it has arrived, and of a larger body the
steps in Python cost little."""


class BatchCommitter(Protocol):
    """The part of the committer that takes batches."""

    def call_before_group(self, collect: Callable[[], None]) -> None:
        """Call this function soon, before deliveries are taken into a group."""

    def submit_batch(
        self, batch: FastBatch, received_at: float, claim: Claim, on_accepted: OnAccepted, parts: Parts
    ) -> None:
        """Queue a batch. Raises `Unavailable` if it cannot be taken."""


class BatchHandler:
    """The steps of one batch."""

    def __init__(
        self, delivery_handler: DeliveryHandler, committer: BatchCommitter, is_stopping: Callable[[], bool]
    ) -> None:
        self._delivery_handler = delivery_handler
        self._committer = committer
        self._is_stopping = is_stopping
        self._loop = asyncio.get_running_loop()

    def sender_of(self, request_head: Head) -> FastSender | None:
        """Return what collects the deliveries with this head; `None` if each needs steps of its own."""
        sender = request_head.only_sender
        # The receipts of a drain that waits for the store come one by one.
        if sender is None or sender.drain.acknowledge == "store":
            return None
        fast_sender = sender.collected.get(request_head.encodings)
        if fast_sender is None:
            drain, encodings, bytes_max = sender.drain, request_head.encodings, sender.body_bytes_max
            fast_sender = sender.collected[encodings] = FastSender(
                Delivery(drain.name, b"", request_head.kind, encodings, 0, drain.strict, bytes_max),
                min(COLLECTED_BYTES_MAX, request_head.inline_bytes_max, bytes_max),
                partial(self._announce, request_head.routes, sender),
            )
        return fast_sender

    def _announce(self, routes: Routes, sender: Sender, fast_sender: FastSender) -> None:
        # Not at once: what arrives while the group before is written costs no step in Python.
        arrived_at = self._loop.time()
        self._committer.call_before_group(partial(self._take, routes, sender, fast_sender, arrived_at))

    def _take(self, routes: Routes, sender: Sender, fast_sender: FastSender, arrived_at: float) -> None:
        """Take what has arrived, the first at this time."""
        # After a reload every head is checked again.
        is_current = routes is self._delivery_handler.routes and not self._is_stopping()
        for batch in fast_sender.take():
            if not is_current or not self._submit(sender, batch, arrived_at):
                batch.hand_back()

    def _submit(self, sender: Sender, batch: FastBatch, arrived_at: float) -> bool:
        """Take responsibility for a batch. Return False if it cannot be taken now."""
        try:
            arrival = self._delivery_handler.arrival(batch.body_bytes)
            batch.received_at_ns = arrival.received_at_ns
            on_accepted = partial(self._answer, sender, arrived_at)
            parts = partial(self._parts, sender, arrived_at)
            self._committer.submit_batch(batch, arrived_at, arrival.claim, on_accepted, parts)
        except Exception as error:  # noqa: BLE001 - each delivery is then refused with its own error
            if not isinstance(error, ReceiverError):
                limited.error("unforeseen", "batch failed with an unexpected error", exc_info=error)
            return False
        sender.body_bytes.value += batch.body_bytes
        return True

    def _answer(self, sender: Sender, received_at: float, batch: FastBatch) -> None:
        """Answer a batch whose deliveries were all accepted in full."""
        self._delivery_handler.count_accepted(sender, received_at, len(batch))
        reply = sender.accepted_reply
        wire = None if self._is_stopping() else reply.wire(close=False, bodyless=False)
        batch.answer(wire, reply, self._loop.time())

    def _count_unsent(self, sender: Sender, received_at: float, receipt: Outcome | ReceiverError) -> None:
        """Count a delivery whose connection is closed, as `_answer` does."""
        if not isinstance(receipt, ReceiverError):
            self._delivery_handler.count_accepted(sender, received_at, 1)

    def _parts(
        self, sender: Sender, received_at: float, batch: FastBatch
    ) -> Iterator[tuple[Delivery, ReceiptCallback]]:
        """Yield the deliveries of a batch with their receipts."""
        for protocol, delivery in deliveries_of(batch):
            if protocol is None:
                yield delivery, partial(self._count_unsent, sender, received_at)
            else:
                reply = protocol.answer_collected
                head = protocol.known_head
                yield delivery, partial(self._delivery_handler.send_receipt, head, sender, received_at, reply)
