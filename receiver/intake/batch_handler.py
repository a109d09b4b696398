"""Batch handler: takes the deliveries that the core collected, and answers them together.

    FastConnection ─▶ FastSender ─▶ BatchHandler ─▶ committer ─▶ FastBatch.answer

A batch that is not taken is handed back: each connection handles its bytes as if they had just arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from receiver.errors import ReceiverError
from receiver.intake.admission import Claim
from receiver.intake.batch import OnAccepted, Parts, deliveries_of
from receiver.intake.handler import DeliveryHandler
from receiver.intake.head import Head
from receiver.intake.pending import ReceiptCallback, ignore_receipt
from receiver.intake.routes import Routes, Sender
from receiver.logs import limited
from receiver.model import Delivery
from receiver.settings import KIB
from receiver.transcode import FastBatch, FastSender

COLLECTED_BYTES_MAX = 64 * KIB
"""Largest body that the core collects. Its memory is claimed after it has arrived, and of a larger body the
steps in Python cost little."""
SubmitBatch = Callable[[FastBatch, float, Claim, OnAccepted, Parts], None]
"""`Committer.submit_batch`."""


class BatchHandler:
    """The steps of one batch."""

    def __init__(
        self,
        delivery_handler: DeliveryHandler,
        submit_batch: SubmitBatch,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._delivery_handler = delivery_handler
        self._submit_batch = submit_batch
        self._is_stopping = is_stopping
        self._loop = asyncio.get_running_loop()

    def sender_of(self, request_head: Head) -> FastSender | None:
        """Return what collects the deliveries with this head; `None` if each needs steps of its own."""
        sender = request_head.only_sender
        # The receipts of a drain that waits for the store come one by one.
        if sender is None or request_head.is_endpoint_test or sender.drain.acknowledge == "store":
            return None
        fast_sender = sender.collected.get(request_head.encodings)
        if fast_sender is None:
            drain, encodings, bytes_max = sender.drain, request_head.encodings, sender.body_bytes_max
            fast_sender = sender.collected[encodings] = FastSender(
                Delivery(drain.name, b"", request_head.kind, encodings, 0, drain.strict, bytes_max),
                min(COLLECTED_BYTES_MAX, request_head.inline_bytes_max, bytes_max),
                partial(self._take_soon, request_head.routes, sender),
            )
        return fast_sender

    def _take_soon(self, routes: Routes, sender: Sender, fast_sender: FastSender) -> None:
        # In the next iteration of the event loop, after everything of this iteration has arrived.
        self._loop.call_soon(self._take, routes, sender, fast_sender)

    def _take(self, routes: Routes, sender: Sender, fast_sender: FastSender) -> None:
        """Take what arrived in the last iteration of the event loop."""
        # After a reload every head is checked again.
        is_current = routes is self._delivery_handler.routes and not self._is_stopping()
        for batch in fast_sender.take():
            if not is_current or not self._submit(sender, batch):
                batch.hand_back()

    def _submit(self, sender: Sender, batch: FastBatch) -> bool:
        """Take responsibility for a batch. Return False if it cannot be taken now."""
        try:
            arrival = self._delivery_handler.arrival(batch.body_bytes)
            batch.received_at_ns = arrival.received_at_ns
            self._submit_batch(
                batch,
                arrival.received_at,
                arrival.claim,
                partial(self._answer, sender, arrival.received_at),
                partial(self._parts, sender, arrival.received_at),
            )
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

    def _parts(
        self, sender: Sender, received_at: float, batch: FastBatch
    ) -> Iterator[tuple[Delivery, ReceiptCallback]]:
        """Yield the deliveries of a batch with their receipts."""
        for protocol, delivery in deliveries_of(batch):
            if protocol is None:
                yield delivery, ignore_receipt
            else:
                reply = protocol.answer_collected
                head = protocol.known_head
                yield delivery, partial(self._delivery_handler.send_receipt, head, sender, received_at, reply)
