"""What a commit gives back, as the intake sees it: the core's types fit, and so do hand-written doubles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from receiver.errors import BodyTooLarge, MalformedBody, ReceiverError
from receiver.model import Delivery, SegmentId


class Outcome(Protocol):
    """What became of one delivery. See `receiver/_transcode.pyi`."""

    @property
    def verdict(self) -> str:
        """`accepted`, `malformed`, `too_large`, `crashed`; `postponed`: its group had no room for it."""

    @property
    def received(self) -> int:
        """Spans in the body."""

    @property
    def stored(self) -> int:
        """Spans in the record."""

    @property
    def sampled_out(self) -> int:
        """Spans dropped by policy."""

    @property
    def rejected(self) -> int:
        """Spans refused one by one."""

    @property
    def unresolved(self) -> int:
        """Stored spans for which no project was found."""

    @property
    def message(self) -> str:
        """For `partial_success`, or why the delivery is refused."""

    @property
    def field(self) -> str:
        """The field at fault when refused."""

    @property
    def reasons(self) -> Sequence[tuple[str, int]]:
        """Warnings and rejections by their stable key."""


class Commit(Protocol):
    """One record, ready to append, and what became of each delivery."""

    @property
    def record(self) -> bytes:
        """Empty if there is nothing to journal."""

    @property
    def rows(self) -> int:
        """Rows in the record."""

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """One for each delivery, in their order."""


Transcode = Callable[[Sequence[Delivery], SegmentId], Commit]
"""The core, bound to the policy in force. Runs in a thread with the GIL released."""


def refusal(outcome: Outcome) -> ReceiverError | None:
    """Give the verdict on a refused delivery; none if it was accepted or crashed the core."""
    if outcome.verdict == "malformed":
        return MalformedBody(outcome.message, field=outcome.field or "body")
    if outcome.verdict == "too_large":
        return BodyTooLarge(outcome.message)
    return None
