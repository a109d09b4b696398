"""Store waiters: deliveries that are answered once their segment is in the store (`acknowledge = "store"`).

Invariant: a 200 without `partial_success` means that every accepted span is in the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from receiver import transcode
from receiver.errors import ReceiverError, ShuttingDown, StoreTrouble
from receiver.intake.pending import PendingDelivery
from receiver.journal.frame import answers_of
from receiver.journal.outcomes import SegmentOutcome
from receiver.logs import limited
from receiver.model import Outcome, SegmentId

DEAD = "spans that ClickHouse refuses; they are kept as dead letters, see `trace-drain dead ls`"


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
