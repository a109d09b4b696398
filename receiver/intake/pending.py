"""Pending deliveries: queued for a group, held until the journal has space, or waiting for the store.

With `acknowledge = "store"` a delivery is answered once its segment is in the store: a 200 without
`partial_success` then means that every accepted span is stored.

Invariant: every pending delivery gets exactly one receipt, by its deadline. The claim on its body is held
    from the moment it is queued until the body is released, even if its sender was answered earlier.
Never: processes a delivery that already has its receipt.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol

from receiver import transcode
from receiver.errors import DeadlinePassed, JournalFull, ReceiverError, ShuttingDown, StoreTrouble
from receiver.intake.admission import Claim
from receiver.journal.frame import answers_of
from receiver.journal.writer_notes import SegmentOutcome
from receiver.logs import limited
from receiver.model import ContentKind, Delivery, Outcome, SegmentId
from receiver.settings import MIB
from receiver.transcode import FastBatch

GROUP_BYTES_MAX = 32 * MIB
GROUP_DELIVERIES_MAX = 1_024
"""Limits of one group, which becomes one record."""
UNPACKED_FACTOR = 16
"""Assumed expansion of a compressed body, used to estimate its weight before it is decompressed."""

DEAD = "spans that ClickHouse refuses; they are kept as dead letters, see `trace-drain dead ls`"
ReceiptCallback = Callable[[Outcome | ReceiverError], None]
"""Called once with the outcome, or with the error that refuses the delivery. Must not raise."""


class Pending(Protocol):
    """Deliveries that wait together: a `PendingDelivery`, or a `PendingBatch`."""

    claim: Claim
    deadline: float
    """Time of the event loop."""
    is_queued: bool
    """Whether it still waits for a group, so that no part of it is being written."""
    weight_bytes: int
    """Weight in its group."""

    @property
    def count(self) -> int:
        """Number of deliveries."""

    @property
    def delivery(self) -> Delivery | FastBatch:
        """What the core takes."""

    @property
    def until_stored(self) -> bool:
        """Whether the receipt waits for the store."""

    @property
    def is_resolved(self) -> bool:
        """Whether it has its receipt."""

    def resolve(self, receipt: Outcome | ReceiverError) -> None:
        """Pass on the receipt, unless there was a receipt before."""

    def split(self) -> Sequence[PendingDelivery]:
        """Return the single deliveries, which take its place in its group."""

    def release_body(self) -> None:
        """Free the bodies and their claim. The receipt can still be passed on."""


class PendingDelivery:
    """One delivery that waits for its receipt."""

    __slots__ = (
        "_on_receipt",
        "claim",
        "deadline",
        "delivery",
        "is_queued",
        "is_resolved",
        "is_written",
        "until_stored",
        "weight_bytes",
    )
    count = 1

    def __init__(
        self,
        delivery: Delivery,
        claim: Claim,
        on_receipt: ReceiptCallback,
        deadline: float,
        *,
        until_stored: bool,
    ) -> None:
        self.delivery = delivery
        self.claim = claim
        self._on_receipt = on_receipt
        self.deadline = deadline
        self.until_stored = until_stored
        self.is_queued = False
        self.is_written = False
        """Whether its record is on disk, so that only the store is awaited."""
        self.is_resolved = False
        """Whether it has its receipt or was abandoned."""
        self.weight_bytes = len(delivery.body) * (UNPACKED_FACTOR if delivery.encodings else 1)

    def split(self) -> Sequence[PendingDelivery]:
        return (self,)

    def resolve(self, receipt: Outcome | ReceiverError) -> None:
        if not self.is_resolved:
            self.is_resolved = True
            # Drop the callback before the call: it refers to the connection, which should not outlive its
            # answer.
            on_receipt, self._on_receipt = self._on_receipt, _ignore
            on_receipt(receipt)

    def abandon(self) -> None:
        """Discard the future receipt, and free the callback."""
        self.is_resolved = True
        self._on_receipt = _ignore

    def release_body(self) -> None:
        self.delivery = RELEASED
        self.claim.release()


RELEASED = Delivery("", b"", ContentKind.PROTOBUF, (), 0, strict=False, body_bytes_max=0)
"""Replaces a delivery whose body was released."""


def _ignore(_: Outcome | ReceiverError) -> None:
    """Discard a receipt."""


class DeliveryQueue:
    """Deliveries that wait for the next group, in order of arrival."""

    def __init__(self) -> None:
        self._pending: deque[Pending] = deque()
        self._by_deadline: deque[Pending] = deque()
        """Deliveries without a receipt, including those that have left the queue."""
        self._announced: list[Callable[[], None]] = []
        self._arrived = asyncio.Event()
        self._is_awake = False
        self.weight_bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    def announce(self, collect: Callable[[], None]) -> None:
        """Call this function, which joins deliveries, before the next group is taken."""
        self._announced.append(collect)
        self._arrived.set()

    def collect(self) -> None:
        """Let the announced deliveries join the queue."""
        announced, self._announced = self._announced, []
        for collect in announced:
            collect()

    def join(self, pending: Pending) -> None:
        """Add it to the queue and share its claim."""
        pending.claim.share()
        pending.is_queued = True
        self._pending.append(pending)
        self.weight_bytes += pending.weight_bytes
        # In order of arrival, which is nearly the order of the deadlines, so no heap is needed.
        self._by_deadline.append(pending)
        if len(self._pending) == 1:
            self._arrived.set()

    def requeue(self, postponed: Sequence[PendingDelivery]) -> None:
        """Return deliveries to the front of the queue, in their original order."""
        # `appendleft` reverses the order, so begin with the last delivery.
        for pending in reversed(postponed):
            self._pending.appendleft(pending)
            # It is still in `_by_deadline`, from `join`.
            pending.is_queued = True
            self.weight_bytes += pending.weight_bytes
        if postponed:
            self._arrived.set()

    async def wait_for_arrival(self) -> None:
        """Wait until the queue is not empty, or `wake` is called."""
        await self._arrived.wait()

    def wake(self) -> None:
        """Make `wait_for_arrival` return at once from now on."""
        self._is_awake = True
        self._arrived.set()

    def take_group(self, bytes_max: int) -> list[Pending]:
        """Take as many deliveries as fit into a group, at least one. The caller releases their bodies."""
        group: list[Pending] = []
        group_bytes, count, bytes_max = 0, 0, min(bytes_max, GROUP_BYTES_MAX)
        pending = self._pending
        while pending and count < GROUP_DELIVERIES_MAX:
            first = pending[0]
            if not first.is_resolved:
                group_bytes += first.weight_bytes
                # The first is always taken, or a delivery above the limit would block the queue.
                if group and group_bytes > bytes_max:
                    break
                group.append(first)
                count += first.count
                first.is_queued = False
            else:
                # Answered at its deadline or abandoned while it was queued.
                first.release_body()
            pending.popleft()
            self.weight_bytes -= first.weight_bytes
        # After `wake` the event stays set: a committer that stops must not wait for arrivals.
        if not (pending or self._announced or self._is_awake):
            self._arrived.clear()
        return group

    def expire(self, now: float, full_reason: str | None = None) -> None:
        """Refuse every delivery whose deadline has passed. Frees the bodies of those still in the queue.

        `full_reason`: reason that the journal accepts no records now; `None` if it accepts records.
        """
        while self._by_deadline:
            first = self._by_deadline[0]
            if not first.is_resolved:
                if first.deadline > now:
                    break
                first.resolve(_deadline_error(first, full_reason))
            self._by_deadline.popleft()
        self._drop_answered()

    def _drop_answered(self) -> None:
        """Drop deliveries at the front of the queue that have their receipt."""
        # Only at the front; `take_group` drops those behind it. Removing from the middle takes linear time.
        while self._pending and self._pending[0].is_resolved:
            first = self._pending.popleft()
            self.weight_bytes -= first.weight_bytes
            first.release_body()


def _deadline_error(pending: Pending, full_reason: str | None) -> ReceiverError:
    if full_reason is not None and pending.is_queued:
        return JournalFull(full_reason)
    if isinstance(pending, PendingDelivery) and pending.is_written:
        return DeadlinePassed(
            "the delivery is on disk, but its spans were not stored in time; they will be stored later"
        )
    return DeadlinePassed("the delivery was not written to disk in time; it may still be written")


def refuse(pending: Sequence[Pending], reason: ReceiverError) -> None:
    """Answer these deliveries with an error and free their bodies."""
    for delivery in pending:
        delivery.resolve(reason)
        delivery.release_body()


@dataclass(frozen=True, slots=True)
class PartlyStored:
    """Outcome of a delivery with spans that the store refuses permanently."""

    verdict: str
    received: int
    stored: int
    sampled_out: int
    rejected: int
    unresolved: int
    message: str
    reasons: Sequence[tuple[str, int]]
    field: str = ""
    is_plain: bool = False


class _Waiter(NamedTuple):
    pending: PendingDelivery
    outcome: Outcome
    digest: str
    """Digest of the delivery in the journal; empty if unknown."""


class StoreWaiters:
    """Deliveries whose answer waits until their segment is in the store."""

    def __init__(self) -> None:
        self._by_segment: dict[SegmentId, list[_Waiter]] = {}

    def join(self, segment: SegmentId, pending: PendingDelivery, outcome: Outcome, digest: str = "") -> None:
        """Answer this delivery when the segment is stored."""
        self._by_segment.setdefault(segment, []).append(_Waiter(pending, outcome, digest))

    def segments(self) -> list[SegmentId]:
        """Return the segments that unanswered deliveries wait for."""
        # Drops deliveries that were refused at their deadline; their segment may wait for hours.
        self._by_segment = {
            segment: unanswered
            for segment, waiters in self._by_segment.items()
            if (unanswered := [waiter for waiter in waiters if not waiter.pending.is_resolved])
        }
        return list(self._by_segment)

    def settle(self, segment: SegmentId, segment_outcome: SegmentOutcome | None) -> None:
        """Answer the deliveries of a segment. Outcome `None`: the writer did not delete the segment."""
        if segment_outcome is None:
            limited.error(
                "intake: segment gone", "segment was deleted before it was stored", segment=str(segment)
            )
        for waiter in self._by_segment.pop(segment, []):
            waiter.pending.resolve(_receipt(waiter, segment_outcome))

    def refuse_all(self, reason: str) -> None:
        """Refuse all waiting deliveries, because the store has stopped."""
        waiters, self._by_segment = self._by_segment, {}
        for waiter in chain(*waiters.values()):
            waiter.pending.resolve(ShuttingDown(reason))


def _receipt(waiter: _Waiter, segment_outcome: SegmentOutcome | None) -> Outcome | ReceiverError:
    if segment_outcome is None:
        return StoreTrouble("the delivery was deleted from the journal before it was stored")
    # It is unknown which deliveries lost rows, so every sender must send again; stored copies are recognised.
    if segment_outcome.is_incomplete or (segment_outcome.dead_rows and not waiter.digest):
        return StoreTrouble("some spans could not be stored; send the same delivery again")
    dead_rows = segment_outcome.dead_rows.get(waiter.digest, 0)
    if not dead_rows:
        return waiter.outcome
    outcome = waiter.outcome
    message = f"{dead_rows} {DEAD}"
    return PartlyStored(
        verdict=outcome.verdict,
        received=outcome.received,
        stored=outcome.stored - dead_rows,
        sampled_out=outcome.sampled_out,
        rejected=outcome.rejected + dead_rows,
        unresolved=outcome.unresolved,
        message=f"{outcome.message}; {message}" if outcome.message else message,
        reasons=outcome.reasons,
    )


def delivery_digests(record: bytes, count: int) -> list[str]:
    """Return the digest of each delivery of a record; empty strings unless the record has exactly `count`."""
    digests = [
        answer.digest.hex() for scanned in transcode.scan(record).records for answer in answers_of(scanned)
    ]
    return digests if len(digests) == count else [""] * count
