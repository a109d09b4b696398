"""Group: deliveries that share a journal record and one fsync, and the span counters of their drains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from receiver.errors import StaleSegment, Unavailable
from receiver.intake.pending import PendingDelivery
from receiver.metrics import Metrics
from receiver.model import Commit, Outcome, SegmentId


class AppendAttempt(NamedTuple):
    """Result of an append: its duration, or its error."""

    seconds: float
    error: StaleSegment | Unavailable | None = None


@dataclass(slots=True)
class Group:
    """Deliveries that share a record, until the record is in the journal."""

    pending: Sequence[PendingDelivery]
    """All deliveries of the group; once it is transcoded, those whose spans are in the record."""
    weight_bytes: int
    segment: SegmentId
    commit: Commit | None = None
    outcomes: Sequence[Outcome] = ()
    """The outcomes of `pending`, in the same order."""
    append_attempt: AppendAttempt | None = None
    """Result of the append, if the core thread has already appended the record."""


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


def log_first_delivery(group: Group, drain: str, *, span_count: int) -> None:
    """Log the first group that contains deliveries of this drain since the intake started."""
    deliveries = (pending.delivery for pending in group.pending)
    kinds = [delivery.content_kind.value for delivery in deliveries if delivery.drain == drain]
    structlog.get_logger().info(
        "first delivery accepted",
        drain=drain,
        content_type=kinds[0] if kinds else "",
        deliveries=len(kinds),
        spans=span_count,
    )
