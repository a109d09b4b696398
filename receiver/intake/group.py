"""Group: deliveries that share a journal record and one fsync, and the rate at which groups are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from receiver.errors import BodyTooLarge, MalformedBody, Overloaded, ReceiverError, StaleSegment, Unavailable
from receiver.intake.pending import Pending, PendingDelivery
from receiver.journal.writer_notes import SegmentOutcome
from receiver.metrics import Metrics
from receiver.model import Commit, Delivery, Outcome, SegmentId
from receiver.settings import MIB
from receiver.transcode import FastBatch

Transcode = Callable[[Sequence[Delivery | FastBatch], SegmentId], Commit]
"""The Rust core, bound to the current policy. Runs on a thread with the GIL released."""


def refusal(outcome: Outcome) -> ReceiverError | None:
    """Return the error for a refused delivery; `None` if it was accepted or crashed the decoder."""
    if outcome.verdict == "malformed":
        return MalformedBody(outcome.message, field=outcome.field or "body")
    if outcome.verdict == "too_large":
        return BodyTooLarge(outcome.message)
    return None


class Appender(Protocol):
    """The part of `receiver/journal/appender.py` that the committer uses."""

    def choose(self, *, is_awaited: bool = False) -> SegmentId:
        """Return the segment of the next record. `is_awaited`: a sender waits until it is stored."""

    def append(self, segment: SegmentId, record: bytes, rows: int) -> None:
        """Write and sync a record, or raise and ensure that no reader ever sees it."""

    def full_reason(self, more_bytes: int = 0) -> str | None:
        """Return why a record of this size cannot be appended now; `None` if it probably can."""

    @property
    def has_retired(self) -> bool:
        """Whether `seal_retired` has a segment to seal."""

    def seal_retired(self) -> None:
        """Seal the segments that are closed for appends. Safe to call concurrently with all other methods."""

    def retire_if_due(self) -> None:
        """Close the open segment for appends if it is old enough."""

    def seal(self) -> None:
        """Seal the open segment."""

    def close(self) -> None:
        """Seal all segments and accept no more records."""

    def is_stored(self, segment: SegmentId) -> bool:
        """Return whether a segment is no longer in the journal."""

    def outcome_of(self, segment: SegmentId) -> SegmentOutcome | None:
        """Return the outcome of a segment that is gone; `None` if the writer did not delete it."""


class AppendAttempt(NamedTuple):
    """Result of an append: its duration, or its error."""

    seconds: float
    error: StaleSegment | Unavailable | None = None


@dataclass(slots=True)
class Group:
    """Deliveries that share a record, until the record is in the journal."""

    pending: Sequence[Pending]
    """All deliveries of the group; once it is transcoded, those whose spans are in the record."""
    weight_bytes: int
    segment: SegmentId
    commit: Commit | None = None
    outcomes: Sequence[Outcome] = ()
    """An outcome for each delivery in `pending`, in the same order."""
    append_attempt: AppendAttempt | None = None
    """Result of the append, if the core thread has already appended the record."""

    def split(self) -> Sequence[PendingDelivery]:
        """Replace batches by their deliveries, and return all deliveries."""
        self.pending = singles = [single for pending in self.pending for single in pending.split()]
        return singles


class SpanCounts:
    """The span counters of one drain."""

    __slots__ = ("_add", "_drain", "accepted", "received")

    def __init__(self, metrics: Metrics, drain: str) -> None:
        self._add = metrics.add
        self._drain = drain
        self.received = metrics.count("spans_received", drain=drain)
        self.accepted = metrics.count("spans_accepted", drain=drain)

    def add(self, received: int, stored: int, sampled_out: int, rejected: int, unresolved: int) -> None:
        """Count spans whose record is on disk."""
        self.received.value += received
        self.accepted.value += stored
        # The rare counters are looked up on demand; the first two are used by every group.
        if rejected:
            self._add("spans_rejected", rejected, drain=self._drain)
        if sampled_out:
            self._add("spans_sampled_out", sampled_out, drain=self._drain)
        if unresolved:
            self._add("spans_unresolved", unresolved, drain=self._drain)


def log_first_delivery(pending: Sequence[PendingDelivery], drain: str, *, span_count: int) -> None:
    """Log the first group that contains deliveries of this drain since the intake started."""
    deliveries = (single.delivery for single in pending)
    kinds = [delivery.content_kind.value for delivery in deliveries if delivery.drain == drain]
    structlog.get_logger().info(
        "first delivery accepted",
        drain=drain,
        content_type=kinds[0] if kinds else "",
        deliveries=len(kinds),
        spans=span_count,
    )


FIRST_S_PER_BYTE = 10e-9
"""Initial estimate: 100 MB/s, a quarter of the speed of a current core."""
FIRST_BYTES = MIB
"""Weight of the initial estimate in the average."""
FASTEST_S_PER_BYTE = 1e-12
"""Lower limit of the estimate, so that dividing by it stays finite."""
DECAY = 0.5
"""Factor applied to the past measurements when a group is added."""
GROUP_COST_S = 0.001
"""Cost of a group that does not depend on its weight. Without it, hours of small groups would inflate the
cost per byte: a large delivery would seem to take seconds, and later deliveries would be refused needlessly.
"""
WAIT_SHARE_MAX = 0.5
"""Share of the deadline that a delivery may wait; the rest is for the disk and for estimation errors."""
GROUP_TARGET_S = 0.1
"""Expected duration of a group. Deliveries of the same size may differ a hundredfold in cost, so a larger
group of expensive deliveries could take longer than its senders wait."""


class CommitRate:
    """Moving average of the seconds per byte that groups take, and the decisions that follow from it.

    Without this estimate an overloaded receiver would answer no delivery in time, because each would wait in
    the queue until its deadline. Therefore a delivery that would wait for more than half of its deadline is
    refused at once. A group is limited to the work of `GROUP_TARGET_S`, because none of its deliveries is
    answered before all are done.

    Invariant: while the queue is empty, a delivery is accepted despite any estimate, so that the next
    measurement corrects a wrong estimate.
    """

    def __init__(self) -> None:
        self.bytes_in_progress = 0
        """Weight of the groups that have left the queue and are not acknowledged yet."""
        self._bytes = float(FIRST_BYTES)
        self._seconds = FIRST_BYTES * FIRST_S_PER_BYTE
        # Computed when a group is added, because every delivery reads it.
        self._s_per_byte = FIRST_S_PER_BYTE

    def observe(self, weight_bytes: int, seconds: float) -> None:
        """Add a transcoded group to the average, weighted by its bytes: a slow small group counts little."""
        if weight_bytes:
            # Subtracting the fixed cost must not make a fast small group look free.
            by_weight_s = weight_bytes * min(self._s_per_byte, FIRST_S_PER_BYTE)
            self._bytes = DECAY * self._bytes + weight_bytes
            self._seconds = DECAY * self._seconds + max(seconds - GROUP_COST_S, min(seconds, by_weight_s))
            self._s_per_byte = max(self._seconds / self._bytes, FASTEST_S_PER_BYTE)

    @property
    def group_bytes_max(self) -> int:
        """Weight of a group that is expected to take `GROUP_TARGET_S`."""
        return int(GROUP_TARGET_S / self._s_per_byte)

    def refuse_if_overloaded(self, queued_bytes: int, deadline_s: float) -> None:
        """Raise `Overloaded` if a delivery that arrives now would be answered too late."""
        # 0 if nothing waits, for any estimate.
        wait_s = (queued_bytes + self.bytes_in_progress) * self._s_per_byte
        if wait_s > deadline_s * WAIT_SHARE_MAX:
            raise Overloaded(f"overloaded: waiting deliveries need {wait_s:.1f} s to be written; retry later")
