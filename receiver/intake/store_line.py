"""Deliveries whose answer waits until their segment is in the store (`acknowledge = "store"`).

Invariant: a 200 without `partial_success` means that every accepted span is in the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from receiver import transcode
from receiver.errors import ReceiverError, ShuttingDown, StoreTrouble
from receiver.intake.waiting import Waiting
from receiver.journal.frame import answers_of
from receiver.journal.outcomes import SegmentOutcome
from receiver.logs import limited
from receiver.model import Outcome, SegmentId

DEAD = "spans that ClickHouse refuses; they are kept as dead letters, see `trace-drain dead ls`"


@dataclass(frozen=True, slots=True)
class PartlyStored:
    """The outcome of a delivery some of whose spans the store refuses for good."""

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
    waiting: Waiting
    outcome: Outcome
    digest: str
    """Of the delivery, as the journal has it; empty: unknown."""


class StoreLine:
    """Deliveries whose answer waits until their segment is in the store."""

    def __init__(self) -> None:
        self._by_segment: dict[SegmentId, list[_Waiter]] = {}

    def join(self, segment: SegmentId, waiting: Waiting, outcome: Outcome, digest: str = "") -> None:
        """Wait for a segment."""
        self._by_segment.setdefault(segment, []).append(_Waiter(waiting, outcome, digest))

    def segments(self) -> list[SegmentId]:
        """List the segments that a delivery still waits for."""
        self._by_segment = {
            segment: still
            for segment, waiters in self._by_segment.items()
            if (still := [one for one in waiters if not one.waiting.is_given])
        }
        return list(self._by_segment)

    def settle(self, segment: SegmentId, became: SegmentOutcome | None) -> None:
        """Answer the deliveries that waited for this segment; `None`: the writer did not delete it."""
        if became is None:
            limited.error(
                "intake: segment gone", "segment was deleted before it was stored", segment=str(segment)
            )
        for waiter in self._by_segment.pop(segment, []):
            waiter.waiting.give(_receipt(waiter, became))

    def refuse_all(self, reason: str) -> None:
        """Refuse all deliveries that wait: the store has stopped."""
        waiting, self._by_segment = self._by_segment, {}
        for waiter in chain(*waiting.values()):
            waiter.waiting.give(ShuttingDown(reason))


def _receipt(waiter: _Waiter, became: SegmentOutcome | None) -> Outcome | ReceiverError:
    if became is None:
        return StoreTrouble("the delivery was deleted from the journal before it was stored")
    if became.is_incomplete or (became.dead_rows and not waiter.digest):
        return StoreTrouble("some spans could not be stored; expected the same delivery again")
    dead_rows = became.dead_rows.get(waiter.digest, 0)
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


def digests_in(record: bytes, count: int) -> list[str]:
    """Return the digest of each delivery of a record; empty ones if the record does not name so many."""
    digests = [one.digest.hex() for found in transcode.scan(record).records for one in answers_of(found)]
    return digests if len(digests) == count else [""] * count
