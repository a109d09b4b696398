"""A group of deliveries that share a journal record, and the counts of their spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from receiver.errors import Unavailable
from receiver.intake.waiting import Waiting
from receiver.journal.appender import StaleSegment
from receiver.metrics import Metrics
from receiver.model import Commit, Outcome, SegmentId


class Tried(NamedTuple):
    """An append that was tried."""

    seconds: float
    refused: StaleSegment | Unavailable | None = None


@dataclass(slots=True)
class Group:
    """Deliveries that share a record."""

    waiting: Sequence[Waiting]
    """Those that are part of the record, once it is made; until then all of them."""
    weight_bytes: int
    segment: SegmentId
    done: Commit | None = None
    outcomes: Sequence[Outcome] = ()
    """Of those that wait."""
    tried: Tried | None = None
    """The append of the record, if it was tried already."""


class SpanCounts:
    """What became of the spans of one drain."""

    __slots__ = ("_add", "_drain", "accepted", "received")

    def __init__(self, metrics: Metrics, drain: str) -> None:
        self._add = metrics.add
        self._drain = drain
        self.received = metrics.count("spans_received", drain=drain)
        self.accepted = metrics.count("spans_accepted", drain=drain)

    def add(self, received: int, stored: int, sampled_out: int, rejected: int, unresolved: int) -> None:
        """Count what is safe."""
        self.received.value += received
        self.accepted.value += stored
        if rejected:
            self._add("spans_rejected", rejected, drain=self._drain)
        if sampled_out:
            self._add("spans_sampled_out", sampled_out, drain=self._drain)
        if unresolved:
            self._add("spans_unresolved", unresolved, drain=self._drain)
